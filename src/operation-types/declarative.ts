/** An entry of a type file becomes an operation type: external effects over HTTP, described and not programmed. */
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { compensationKey, SEND_MAX } from '../domain/compensation.ts'
import {
  type DeclarativeDefinition,
  declarativeTypeSchema,
  type EffectDefinition,
  type HttpDefinition,
  type RemoteDefinition,
} from '../domain/http-definition.ts'
import type { InputIssue, Json, OperationType } from '../domain/operation-type.ts'
import { assertSteps, DefinitionError, resolvePolicy, TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { stepKey } from '../domain/steps.ts'
import { classifySend } from './answers.ts'
import { compileCallback } from './callback-rules.ts'
import { lookupOf, traced } from './declarative-calls.ts'
import { compileCompensation } from './declarative-compensation.ts'
import { parseDefinition } from './definition-issues.ts'
import { compileEffectKey, itemKeyBytesMax } from './effect-key.ts'
import { compileInputSchema } from './input-schema.ts'
import type { Outbound } from './outbound.ts'
import type { TemplateScope } from './placeholders.ts'
import { compileRemote } from './remote.ts'
import { compileRequest, type RequestTemplate } from './request-template.ts'
import { type StepHandlers, stepExecutor } from './step-executor.ts'

export interface DeclarativeContext extends Omit<TemplateScope, 'type'> {
  outbound: Outbound
}

const ANY_OBJECT = { type: 'object' }

/** Throws a DefinitionError that names the field. `entry` is JSON (see `assertJson`). */
export const buildDeclarativeType = (entry: Json, context: DeclarativeContext): OperationType => {
  const definition = parseDefinition(declarativeTypeSchema, entry)
  const scope: TemplateScope = { type: definition.name, env: context.env, secrets: context.secrets }
  const part = externalPart(definition, scope, context.outbound)
  const { provider, requests } = part
  const policy = resolvePolicy(
    {
      ...definition,
      on_absent: provider.on_absent,
      provider_idempotent_hours: provider.provider_idempotent_hours,
      no_compensation: definition.no_compensation ?? provider.no_compensation,
    },
    { callTimeoutMs: part.slowestMs, compensates: part.compensator !== null, steps: provider.steps },
  )
  const inputSchema = definition.input ?? ANY_OBJECT
  const schemaIssues = compileSchema(inputSchema)
  const effectKeyOf = compileEffectKey(definition.effect_key, scope, itemKeyBytesMax(policy.steps), policy.mask)
  return {
    ...policy,
    codeVersion: definition.code_version ?? hashOf(entry),
    inputSchema: inputSchema as Json,
    validateInput: (input) => {
      const issues = schemaIssues(input)
      return issues.length > 0
        ? issues
        : urlAndHeaderIssues(
            requests.map(({ template }) => template),
            input,
          )
    },
    effectKey: (item) => {
      const made = effectKeyOf(item)
      if ('issue' in made) return made
      const values = {
        input: item.input,
        itemKey: item.key,
        // as long as it can get
        compensationKey: compensationKey({ effectKey: made.key, step: policy.steps.at(-1) ?? '', send: SEND_MAX }),
        operationId: item.rootOperationId,
      }
      for (const { step, template } of requests) {
        const issue = template.urlIssue({ ...values, effectKey: stepKey(made.key, step) })
        if (issue !== null) return { issue }
      }
      return made
    },
    executor: part.executor,
    callback: provider.callback === undefined ? null : compileCallback(provider.callback, scope),
    compensator: part.compensator,
    close: async () => {},
  }
}

/** What brings the effects about, compiled. */
export interface ExternalPart {
  provider: Pick<
    HttpDefinition | RemoteDefinition,
    'on_absent' | 'provider_idempotent_hours' | 'no_compensation' | 'callback' | 'steps'
  >
  executor: OperationType['executor']
  compensator: OperationType['compensator']
  /** The longest call, that of a compensation included. */
  slowestMs: number
  /** Every request that an item's values go into. */
  requests: { step: string; template: RequestTemplate }[]
}

const externalPart = (definition: DeclarativeDefinition, scope: TemplateScope, outbound: Outbound): ExternalPart => {
  const { http, remote } = definition
  if (definition.effect !== 'external') {
    throw new DefinitionError('effect', `${definition.effect} needs code: write the type with defineOperationType`)
  }
  if (remote !== undefined) {
    if (http !== undefined)
      throw new DefinitionError('http', 'must not stand beside remote: its workers make the calls')
    return compileRemote(remote, scope, outbound)
  }
  if (http === undefined) throw new DefinitionError('http', 'is required for effect external, or remote in its place')
  return compileHttp(http, scope, outbound)
}

const compileHttp = (http: HttpDefinition, scope: TemplateScope, outbound: Outbound): ExternalPart => {
  const effects = effectsOf(http)
  const callTimeoutMs = Math.max(...effects.map(timeoutOf))
  if (http.steps !== undefined)
    assertSteps(http.steps, { field: 'http.steps', compensates: http.compensate !== undefined })
  const compiled = effects.map((effect) => compileEffect(effect, scope, outbound))
  const compensation =
    http.compensate === undefined ? null : compileCompensation(http.compensate, { scope, outbound, callTimeoutMs })
  return {
    provider: http,
    executor: stepExecutor(compiled, callTimeoutMs),
    compensator: compensation?.executor ?? null,
    slowestMs: Math.max(callTimeoutMs, http.compensate?.timeout_ms ?? 0),
    requests: [
      ...compiled.flatMap(({ step, templates }) => templates.map((template) => ({ step, template }))),
      ...(compensation?.templates ?? []).map((template) => ({ step: '', template })),
    ],
  }
}

/** An effect of an item: a step, or the only one. */
interface NamedEffect extends EffectDefinition {
  step: string
  /** The path of the effect in the definition, for messages. */
  field: string
}

/** The effects of an item in their order. Exactly one of the two forms must stand. */
const effectsOf = ({ request, outcome, lookup, steps }: HttpDefinition): NamedEffect[] => {
  if (steps !== undefined) {
    const surplus = Object.entries({ request, outcome, lookup }).find(([, member]) => member !== undefined)
    if (surplus !== undefined) {
      throw new DefinitionError(`http.${surplus[0]}`, 'must not stand beside steps: each step has its own')
    }
    return steps.map((step, index) => ({ ...step, step: step.name, field: `http.steps.${index}` }))
  }
  if (request === undefined) throw new DefinitionError('http.request', 'is required, unless there are steps')
  if (outcome === undefined) throw new DefinitionError('http.outcome', 'is required, unless there are steps')
  return [{ request, outcome, lookup, step: '', field: 'http' }]
}

const timeoutOf = ({ request }: EffectDefinition): number => request.timeout_ms ?? TYPE_LIMITS.callTimeoutMs.default

interface CompiledEffect extends StepHandlers {
  templates: RequestTemplate[]
}

const compileEffect = (effect: NamedEffect, scope: TemplateScope, outbound: Outbound): CompiledEffect => {
  const { step, field } = effect
  const timeoutMs = timeoutOf(effect)
  const request = compileRequest(effect.request, scope, `${field}.request`, 'POST')
  const lookup = effect.lookup && compileRequest(effect.lookup, scope, `${field}.lookup`, 'GET')
  return {
    step,
    templates: lookup === undefined ? [request] : [request, lookup],
    send: async (call) =>
      classifySend(effect.outcome, await outbound.exchange(traced(request, call), timeoutMs, call.mayStart)),
    lookup:
      lookup === undefined || effect.lookup === undefined
        ? null
        : lookupOf(effect.lookup, timeoutMs, (call, lookupTimeoutMs) =>
            outbound.exchange(traced(lookup, call), lookupTimeoutMs),
          ),
  }
}

const compileSchema = (schema: Record<string, unknown> | boolean): ((input: Json) => InputIssue[]) => {
  try {
    return compileInputSchema(schema)
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error)
    throw new DefinitionError('input', `is not a usable JSON Schema 2020-12: ${detail}`, { cause: error })
  }
}

/** The same member can stand in several URLs and headers: one issue per member. */
const urlAndHeaderIssues = (requests: readonly RequestTemplate[], input: Json): InputIssue[] => {
  const issues = requests.flatMap((request) => request.inputIssues(input))
  return issues.filter(({ pointer }, index) => issues.findIndex((other) => other.pointer === pointer) === index)
}

/** A type's own entry, not its file: another type's change is no new code of this one. */
const hashOf = (entry: Json): string =>
  `sha256:${createHash('sha256')
    .update(canonicalize(entry) ?? '')
    .digest('hex')
    .slice(0, 16)}`
