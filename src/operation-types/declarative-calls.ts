/** What the calls of a declarative type have in common, whether they apply an effect or take one back. */

import type { LookupDefinition } from '../domain/http-definition.ts'
import type { EffectCall, Executor } from '../domain/operation-type.ts'
import { TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { classifyLookup } from './answers.ts'
import type { Exchange } from './outbound.ts'
import type { OutboundRequest, RequestTemplate } from './request-template.ts'

/** The trace of the operation goes with the request, unless the type sets its own header. */
export const withTrace = (request: OutboundRequest, { traceparent }: EffectCall): OutboundRequest => {
  if (traceparent !== null) request.headers.traceparent ??= traceparent
  return request
}

/** The request of a call, linked to the trace of the operation. */
export const traced = (template: RequestTemplate, call: EffectCall): OutboundRequest =>
  withTrace(
    template.render({
      input: call.input,
      itemKey: call.itemKey,
      effectKey: call.effectKey,
      operationId: call.operationId,
    }),
    call,
  )

export const lookupOf = (
  definition: LookupDefinition,
  callTimeoutMs: number,
  ask: (call: EffectCall, timeoutMs: number) => Promise<Exchange>,
): NonNullable<Extract<Executor, { kind: 'external' }>['lookup']> => {
  const timeoutMs = definition.timeout_ms ?? callTimeoutMs
  return {
    afterMs: definition.after_ms ?? TYPE_LIMITS.lookupAfterMs.default,
    timeoutMs,
    find: async (call) => classifyLookup(definition.outcome, await ask(call, timeoutMs)),
  }
}
