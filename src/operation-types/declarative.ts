/** An entry of a type file becomes an operation type: external effects over HTTP, described and not programmed. */
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { compensationKey, SEND_MAX } from '../domain/compensation.ts'
import {
  type DeclarativeDefinition,
  declarativeTypeSchema,
  type EffectDefinition,
  type HttpDefinition,
} from '../domain/http-definition.ts'
import type { EffectCall, InputIssue, Json, OperationType } from '../domain/operation-type.ts'
import { assertSteps, DefinitionError, resolvePolicy, TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { stepKey } from '../domain/steps.ts'
import { classifySend } from './answers.ts'
import { compileCallback } from './callback-rules.ts'
import { lookupOf, withTrace } from './declarative-calls.ts'
import { compileCompensation } from './declarative-compensation.ts'
import { parseDefinition } from './definition-issues.ts'
import { compileEffectKey, itemKeyBytesMax } from './effect-key.ts'
import { compileInputSchema } from './input-schema.ts'
import type { Outbound } from './outbound.ts'
import type { TemplateScope } from './placeholders.ts'
import { compileRequest, type RequestTemplate } from './request-template.ts'
import { type StepHandlers, stepExecutor } from './step-executor.ts'

export interface DeclarativeContext extends Omit<TemplateScope, 'type'> {
  outbound: Outbound
}

const ANY_OBJECT = { type: 'object' }

/** Throws a DefinitionError that names the field. `entry` is JSON (see `assertJson`). */
export const buildDeclarativeType = (entry: Json, context: DeclarativeContext): OperationType => {
  const definition = parseDefinition(declarativeTypeSchema, entry)
  const http = externalHttp(definition)
  const effects = effectsOf(http)
  const callTimeoutMs = Math.max(...effects.map(timeoutOf))
  if (http.steps !== undefined)
    assertSteps(http.steps, { field: 'http.steps', compensates: http.compensate !== undefined })
  const policy = resolvePolicy(
    {
      ...definition,
      on_absent: http.on_absent,
      provider_idempotent_hours: http.provider_idempotent_hours,
      no_compensation: definition.no_compensation ?? http.no_compensation,
    },
    {
      callTimeoutMs: Math.max(callTimeoutMs, http.compensate?.timeout_ms ?? 0),
      compensates: http.compensate !== undefined,
      steps: http.steps,
    },
  )
  const scope: TemplateScope = { type: policy.name, env: context.env, secrets: context.secrets }
  const compiled = effects.map((effect) => compileEffect(effect, scope, context.outbound))
  const compensation =
    http.compensate === undefined
      ? null
      : compileCompensation(http.compensate, { scope, outbound: context.outbound, callTimeoutMs })
  const requests = [
    ...compiled.flatMap(({ step, templates }) => templates.map((template) => ({ step, template }))),
    ...(compensation?.templates ?? []).map((template) => ({ step: '', template })),
  ]
  const inputSchema = definition.input ?? ANY_OBJECT
  const schemaIssues = compileSchema(inputSchema)
  const effectKeyOf = compileEffectKey(definition.effect_key, scope, itemKeyBytesMax(policy.steps))
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
    executor: stepExecutor(compiled, callTimeoutMs),
    callback: http.callback === undefined ? null : compileCallback(http.callback, scope),
    compensator: compensation?.executor ?? null,
    close: async () => {},
  }
}

const externalHttp = (definition: DeclarativeDefinition): HttpDefinition => {
  if (definition.effect !== 'external') {
    throw new DefinitionError('effect', `${definition.effect} needs code: write the type with defineOperationType`)
  }
  if (definition.http === undefined) throw new DefinitionError('http', 'is required for effect external')
  return definition.http
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

/** The request of a call, linked to the trace of the operation unless the type sets its own header. */
const traced = (template: RequestTemplate, call: EffectCall): ReturnType<RequestTemplate['render']> =>
  withTrace(
    template.render({
      input: call.input,
      itemKey: call.itemKey,
      effectKey: call.effectKey,
      operationId: call.operationId,
    }),
    call,
  )

/** A type's own entry, not its file: another type's change is no new code of this one. */
const hashOf = (entry: Json): string =>
  `sha256:${createHash('sha256')
    .update(canonicalize(entry) ?? '')
    .digest('hex')
    .slice(0, 16)}`
