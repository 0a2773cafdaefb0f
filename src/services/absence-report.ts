import { fingerprint } from '../domain/failure.ts'
import { lookupAfterMs, type OperationType } from '../domain/operation-type.ts'
import { backoffMs } from '../domain/retry.ts'
import type { Report } from '../storage/run/evidence.ts'

const ABSENT = {
  effect: 'absent',
  item: 'failed',
  failureClass: 'transient',
  reasonCode: 'CONFIRMED_ABSENT',
} as const

/** How long after the last instant at which a send could begin its absence cannot change any more. */
export const absenceStableAfterMs = (executor: OperationType['executor']): number =>
  executor.kind === 'external' ? executor.callTimeoutMs + (lookupAfterMs(executor) ?? 0) : 0

/** What is reported of an effect that is confirmed absent: another attempt, or a failure that stands. */
export const absenceReport = (
  type: Pick<OperationType, 'name' | 'retry'>,
  decision: { kind: 'absent-retry' } | { kind: 'absent-failed'; deadLetter: boolean },
  { attempt, evidenceRef }: { attempt: number; evidenceRef: string | null },
): Pick<Report, 'effect' | 'item'> & Partial<Report> => {
  switch (decision.kind) {
    case 'absent-retry':
      return {
        ...ABSENT,
        evidenceRef,
        retry: {
          afterMs: backoffMs({ ...type.retry, attempt, random: Math.random() }),
          reason: 'confirmed_absent',
        },
      }
    case 'absent-failed':
      return {
        ...ABSENT,
        evidenceRef,
        fingerprint: decision.deadLetter
          ? fingerprint({ type: type.name, failureClass: 'transient', reasonCode: ABSENT.reasonCode, message: null })
          : null,
      }
  }
}
