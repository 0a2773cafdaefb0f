/**
 * `remote` of a type file: its items are run by workers that ask for them over HTTP (docs/worker-api.md). What is left to do
 * from here is to ask the provider about an effect in doubt.
 */
import type { LookupDefinition, RemoteDefinition } from '../domain/http-definition.ts'
import type { EffectLookup } from '../domain/operation-type.ts'
import { assertSteps, DefinitionError, TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import type { ExternalPart } from './declarative.ts'
import { lookupOf, traced } from './declarative-calls.ts'
import type { Outbound } from './outbound.ts'
import type { TemplateScope } from './placeholders.ts'
import { compileRequest, type RequestTemplate } from './request-template.ts'
import { stepExecutor } from './step-executor.ts'

export const compileRemote = (remote: RemoteDefinition, scope: TemplateScope, outbound: Outbound): ExternalPart => {
  const callTimeoutMs = remote.call_timeout_ms ?? TYPE_LIMITS.callTimeoutMs.default
  if (remote.steps !== undefined) {
    if (remote.lookup !== undefined) {
      throw new DefinitionError('remote.lookup', 'must not stand beside steps: each step has its own')
    }
    assertSteps(remote.steps, { field: 'remote.steps', compensates: false })
  }
  const steps: readonly { name: string; lookup?: LookupDefinition | undefined }[] = remote.steps ?? [
    { name: '', lookup: remote.lookup },
  ]
  const effects = steps.map(({ name, lookup }, index) => ({
    step: name,
    // no worker of ours runs such an item: see startEngine
    send: async () => ({ outcome: { state: 'unsent' as const }, downstreamError: false }),
    ...compileLookup(lookup, {
      scope,
      outbound,
      callTimeoutMs,
      field: remote.steps ? `remote.steps.${index}` : 'remote',
    }),
  }))
  return {
    provider: remote,
    executor: { ...stepExecutor(effects, callTimeoutMs), remote: true },
    compensator: null,
    slowestMs: callTimeoutMs,
    requests: effects.flatMap(({ step, template }) => (template === null ? [] : [{ step, template }])),
  }
}

const compileLookup = (
  lookup: LookupDefinition | undefined,
  context: { scope: TemplateScope; outbound: Outbound; callTimeoutMs: number; field: string },
): { lookup: EffectLookup | null; template: RequestTemplate | null } => {
  if (lookup === undefined) return { lookup: null, template: null }
  const template = compileRequest(lookup, context.scope, `${context.field}.lookup`, 'GET')
  return {
    template,
    lookup: lookupOf(lookup, context.callTimeoutMs, (call, timeoutMs) =>
      context.outbound.exchange(traced(template, call), timeoutMs),
    ),
  }
}
