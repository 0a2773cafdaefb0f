/** An entry of a type file becomes an operation type: external effects over HTTP, described and not programmed. */
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { compensationKey, SEND_MAX } from '../domain/compensation.ts'
import type { EffectCall, InputIssue, Json, OperationType } from '../domain/operation-type.ts'
import {
  type DeclarativeDefinition,
  DefinitionError,
  declarativeTypeSchema,
  type HttpDefinition,
  resolvePolicy,
  TYPE_LIMITS,
} from '../domain/operation-type-definition.ts'
import { classifySend } from './answers.ts'
import { lookupOf, withTrace } from './declarative-calls.ts'
import { compileCompensation } from './declarative-compensation.ts'
import { parseDefinition } from './definition-issues.ts'
import { compileEffectKey } from './effect-key.ts'
import { compileInputSchema } from './input-schema.ts'
import type { Outbound } from './outbound.ts'
import type { TemplateScope } from './placeholders.ts'
import { compileRequest, type RequestTemplate } from './request-template.ts'

export interface DeclarativeContext extends Omit<TemplateScope, 'type'> {
  outbound: Outbound
}

const ANY_OBJECT = { type: 'object' }

/** Throws a DefinitionError that names the field. `entry` is JSON (see `assertJson`). */
export const buildDeclarativeType = (entry: Json, context: DeclarativeContext): OperationType => {
  const definition = parseDefinition(declarativeTypeSchema, entry)
  const http = externalHttp(definition)
  const callTimeoutMs = http.request.timeout_ms ?? TYPE_LIMITS.callTimeoutMs.default
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
    },
  )
  const scope: TemplateScope = { type: policy.name, env: context.env, secrets: context.secrets }
  const request = compileRequest(http.request, scope, 'http.request', 'POST')
  const lookup = http.lookup === undefined ? null : compileRequest(http.lookup, scope, 'http.lookup', 'GET')
  const compensation =
    http.compensate === undefined
      ? null
      : compileCompensation(http.compensate, { scope, outbound: context.outbound, callTimeoutMs })
  const requests = [request, lookup, ...(compensation?.templates ?? [])].filter((template) => template !== null)
  const inputSchema = definition.input ?? ANY_OBJECT
  const schemaIssues = compileSchema(inputSchema)
  const effectKeyOf = compileEffectKey(definition.effect_key, scope)
  return {
    ...policy,
    codeVersion: definition.code_version ?? hashOf(entry),
    inputSchema: inputSchema as Json,
    validateInput: (input) => {
      const issues = schemaIssues(input)
      return issues.length > 0 ? issues : urlAndHeaderIssues(requests, input)
    },
    effectKey: (item) => {
      const made = effectKeyOf(item)
      if ('issue' in made) return made
      const values = {
        input: item.input,
        itemKey: item.key,
        effectKey: made.key,
        // as long as it can get
        compensationKey: compensationKey({ effectKey: made.key, send: SEND_MAX }),
        operationId: item.rootOperationId,
      }
      for (const template of requests) {
        const issue = template.urlIssue(values)
        if (issue !== null) return { issue }
      }
      return made
    },
    executor: {
      kind: 'external',
      callTimeoutMs,
      send: async (call) =>
        classifySend(http.outcome, await context.outbound.exchange(traced(request, call), callTimeoutMs)),
      lookup:
        lookup === null || http.lookup === undefined
          ? null
          : lookupOf(http.lookup, callTimeoutMs, async (call, timeoutMs) =>
              context.outbound.exchange(traced(lookup, call), timeoutMs),
            ),
    },
    compensator: compensation?.executor ?? null,
    close: async () => {},
  }
}

const externalHttp = (definition: DeclarativeDefinition): HttpDefinition => {
  if (definition.effect === 'transactional') {
    throw new DefinitionError('effect', 'transactional needs code: write the type with defineOperationType')
  }
  if (definition.effect !== 'external') {
    throw new DefinitionError('effect', `${definition.effect} is not available yet; use external`)
  }
  if (definition.http === undefined) throw new DefinitionError('http', 'is required for effect external')
  return definition.http
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
