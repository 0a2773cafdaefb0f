/**
 * `http.compensate` of a type file: the request that takes an applied effect back. `{effect_key}` in it is the key of that
 * effect; `{compensation_key}` is the undoing's own, and goes with it as Idempotency-Key unless the type sets that header.
 */
import { parseCompensationKey } from '../domain/compensation.ts'
import type { CompensateDefinition, SendRule } from '../domain/http-definition.ts'
import type { EffectCall, Executor } from '../domain/operation-type.ts'
import { classifySend } from './answers.ts'
import { lookupOf, withTrace } from './declarative-calls.ts'
import type { Outbound } from './outbound.ts'
import type { TemplateScope, TemplateValues } from './placeholders.ts'
import { compileRequest, type RequestTemplate } from './request-template.ts'

const IDEMPOTENCY_KEY = 'Idempotency-Key'
const SUCCESSES = Array.from({ length: 100 }, (_, index) => 200 + index)

/** Where the type names no rules. What none of them names (a 5xx, a redirect) is uncertain. */
const GONE: SendRule = { status: [404, 410], state: 'skipped', reason_code: 'ALREADY_GONE' }
const defaultRules = (method: string): SendRule[] => [
  { status: SUCCESSES, state: 'applied' },
  ...(method === 'DELETE' ? [GONE] : []),
  { status: [400, 422], state: 'failed', class: 'validation_rejected' },
  { status: [401, 403], state: 'failed', class: 'policy_denied' },
  { status: [409], state: 'failed', class: 'conflict' },
  { status: [429], state: 'failed', class: 'transient' },
]

export const compileCompensation = (
  definition: CompensateDefinition,
  context: { scope: TemplateScope; outbound: Outbound; callTimeoutMs: number },
): { executor: Executor; templates: RequestTemplate[] } => {
  const { outbound } = context
  const scope: TemplateScope = { ...context.scope, compensates: true }
  const callTimeoutMs = definition.timeout_ms ?? context.callTimeoutMs
  const method = definition.method ?? 'POST'
  const headers = definition.headers ?? {}
  const isKeyed = Object.keys(headers).some((name) => name.toLowerCase() === IDEMPOTENCY_KEY.toLowerCase())
  const request = compileRequest(
    { ...definition, method, headers: isKeyed ? headers : { ...headers, [IDEMPOTENCY_KEY]: '{compensation_key}' } },
    scope,
    'http.compensate',
    'POST',
  )
  const rules = definition.outcome ?? defaultRules(method)
  const exchange = async (template: RequestTemplate, call: EffectCall, timeoutMs: number, mayStart?: () => boolean) =>
    outbound.exchange(withTrace(template.render(valuesOf(call)), call), timeoutMs, mayStart)
  const lookup =
    definition.lookup === undefined ? null : compileRequest(definition.lookup, scope, 'http.compensate.lookup', 'GET')
  return {
    templates: lookup === null ? [request] : [request, lookup],
    executor: {
      kind: 'external',
      callTimeoutMs,
      send: async (call) => classifySend(rules, await exchange(request, call, callTimeoutMs, call.mayStart)),
      lookup:
        lookup === null || definition.lookup === undefined
          ? null
          : lookupOf(definition.lookup, callTimeoutMs, (call, timeoutMs) => exchange(lookup, call, timeoutMs)),
    },
  }
}

const valuesOf = (call: EffectCall): TemplateValues => {
  const undone = parseCompensationKey(call.effectKey)
  if (undone === null) throw new Error(`"${call.effectKey}" is the key of no compensation`)
  return {
    input: call.input,
    itemKey: call.itemKey,
    effectKey: undone.effectKey,
    compensationKey: call.effectKey,
    operationId: call.operationId,
  }
}
