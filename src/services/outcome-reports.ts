import { type FailureClass, fingerprint } from '../domain/failure.ts'
import { type Executor, lookupAfterMs, type OperationType, type SendOutcome } from '../domain/operation-type.ts'
import { retryDecision } from '../domain/retry.ts'
import type { Evidence, Report } from '../storage/run/evidence.ts'
import type { Lease } from '../storage/run/lease.ts'
import { report } from './evidence-reports.ts'

/** An effect that a worker has an intent for. */
export interface Intent {
  ord: number
  effectKey: string
  send: number
}

/** Who holds a shard, and what it runs there. */
export interface Holder {
  lease: Lease
  type: OperationType
  /** Applies the effects of the items, or takes those of another operation back. */
  executor: Executor
  providerIdempotentMs: number
}

/** What the holder of a shard has to say. */
export const workerEvidence = (holder: Holder, reports: readonly Report[]): Evidence => ({
  source: 'worker',
  epoch: holder.lease.epoch,
  workerId: holder.lease.workerId,
  actor: null,
  codeVersion: holder.type.codeVersion,
  lookupAfterMs: firstLookupMs(holder),
  reports,
})

/** Its author changed the steps of the type under the same version: nothing is sent, and a person has to look. */
export const unknownStep = (step: string): SendOutcome => ({
  state: 'failed',
  failureClass: 'bug_suspected',
  reasonCode: 'UNKNOWN_STEP',
  message: step === '' ? 'the type has steps now' : `the type has no step "${step}" now`,
})

/**
 * When the reconciler first looks at what became uncertain: to ask the provider, or to repeat the send where the provider
 * deduplicates it. Null: only a person can say.
 */
export const firstLookupMs = ({
  executor,
  providerIdempotentMs,
}: Pick<Holder, 'executor' | 'providerIdempotentMs'>): number | null => {
  if (executor.kind !== 'external') return null
  return lookupAfterMs(executor) ?? (providerIdempotentMs > 0 ? 0 : null)
}

/** What becomes of an item that failed: another attempt, a dead letter, or a result that stands. */
export const failureFate = (
  type: OperationType,
  failure: {
    failureClass: Exclude<FailureClass, 'ambiguous_effect'>
    reasonCode: string | null
    message: string | null
  },
  item: { key: string; effectKey: string; attempt: number },
): { retryMs: number | null; fingerprint: string | null } => {
  const decision = retryDecision({
    failureClass: failure.failureClass,
    attempt: item.attempt,
    maxAttempts: type.retry.maxAttempts,
    baseMs: type.retry.baseMs,
    maxMs: type.retry.maxMs,
    random: Math.random(),
  })
  switch (decision.kind) {
    case 'retry':
      return { retryMs: decision.delayMs, fingerprint: null }
    case 'dead-letter':
      return {
        retryMs: null,
        fingerprint: fingerprint({ type: type.name, ...failure, names: [item.key, item.effectKey] }),
      }
    case 'final':
      return { retryMs: null, fingerprint: null }
  }
}

/** An intent that was never sent goes back, uncharged; a resend goes back to what it was, which is unknown. */
export const unsentReport = (intent: Intent & { resend: boolean }): Report =>
  intent.resend
    ? report(intent, { effect: 'uncertain', item: null })
    : report(intent, { effect: 'absent', item: null, retry: { afterMs: 0, reason: 'unsent' } })

/** What the answer to a send says about effect and item. */
export const sentReport = (
  type: OperationType,
  sent: Intent & { key: string; attempt: number; resend: boolean },
  outcome: SendOutcome,
): Report => {
  // the provider deduplicates a resend; any answer but "applied" says nothing about the first send
  if (sent.resend && outcome.state !== 'applied') {
    return report(sent, {
      effect: 'uncertain',
      item: 'uncertain',
      reasonCode: 'RESEND_UNANSWERED',
      message: `the resend answered ${outcome.state}`,
    })
  }
  switch (outcome.state) {
    case 'applied':
      return report(sent, { effect: 'applied', item: 'applied', effectRef: outcome.effectRef ?? null })
    case 'skipped':
      return report(sent, {
        effect: 'applied',
        item: 'skipped',
        reasonCode: outcome.reasonCode,
        effectRef: outcome.effectRef ?? null,
      })
    case 'uncertain':
      return report(sent, {
        effect: 'uncertain',
        item: 'uncertain',
        reasonCode: outcome.reasonCode,
        message: outcome.message ?? null,
      })
    case 'failed': {
      const failure = {
        failureClass: outcome.failureClass,
        reasonCode: outcome.reasonCode ?? null,
        message: outcome.message ?? null,
      }
      const fate = failureFate(type, failure, sent)
      return report(sent, {
        effect: 'absent',
        item: 'failed',
        ...failure,
        retry: fate.retryMs === null ? null : { afterMs: fate.retryMs, reason: 'failed' },
        fingerprint: fate.fingerprint,
      })
    }
  }
}
