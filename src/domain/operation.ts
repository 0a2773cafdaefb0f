/**
 * The status of an operation: which there are, which may follow which, and what the facts make of it.
 * `settle` is the only place that decides a status after the start. It is pure, so whoever finishes a shard, converges
 * an effect or sweeps may call it in any order and any number of times: the same facts give the same status, and the
 * storage writes it with a compare-and-set on the version.
 */
import { assertThat } from './assert.ts'

/** Items that one request may carry inline; larger sets are uploaded to a draft. */
export const INLINE_ITEMS_MAX = 10_000

const OPEN_STATUSES = [
  'draft',
  'awaiting_approval',
  'pending',
  'running',
  'pause_requested',
  'paused',
  'cancel_requested',
  'reconciliation_required',
] as const

export const FINAL_STATUSES = [
  'succeeded',
  'partially_succeeded',
  'failed',
  'cancelled',
  'completed_after_cancel',
] as const

export const OPERATION_STATUSES = [...OPEN_STATUSES, ...FINAL_STATUSES] as const

export type FinalStatus = (typeof FINAL_STATUSES)[number]
export type OperationStatus = (typeof OPERATION_STATUSES)[number]

const FINAL: ReadonlySet<string> = new Set(FINAL_STATUSES)

export const isFinal = (status: OperationStatus): status is FinalStatus => FINAL.has(status)

/** Nothing moves by itself any more, except by evidence: where `Prefer: wait` stops waiting and a preflight may look. */
export const isSettled = (status: OperationStatus): boolean => isFinal(status) || status === 'reconciliation_required'

/** A run may end before anybody wrote `running` (shards commit before the operation), hence pending → final. */
export const TRANSITIONS = {
  draft: ['awaiting_approval', 'pending', 'cancel_requested', 'cancelled'],
  awaiting_approval: ['pending', 'cancel_requested', 'cancelled'],
  pending: ['running', 'pause_requested', 'paused', 'cancel_requested', 'reconciliation_required', ...FINAL_STATUSES],
  running: ['pause_requested', 'paused', 'cancel_requested', 'reconciliation_required', ...FINAL_STATUSES],
  pause_requested: ['pending', 'running', 'paused', 'cancel_requested', 'reconciliation_required', ...FINAL_STATUSES],
  paused: ['pending', 'running', 'pause_requested', 'cancel_requested', 'reconciliation_required', ...FINAL_STATUSES],
  cancel_requested: ['reconciliation_required', 'cancelled', 'completed_after_cancel'],
  reconciliation_required: ['running', 'pause_requested', 'paused', ...FINAL_STATUSES],
  succeeded: [],
  partially_succeeded: [],
  failed: [],
  cancelled: [],
  completed_after_cancel: [],
} as const satisfies Record<OperationStatus, readonly OperationStatus[]>

export const canTransition = (from: OperationStatus, to: OperationStatus): boolean =>
  (TRANSITIONS[from] as readonly OperationStatus[]).includes(to)

/** Items by the state of their latest ledger entry. */
export interface Counts {
  total: number
  applied: number
  skipped: number
  failed: number
  uncertain: number
}

export interface CompleteCounts extends Counts {
  unprocessed: number
}

/** The conservation law: every item is in exactly one count. Throws when the counts claim more items than there are. */
export const conservation = (counts: Counts): CompleteCounts => {
  const { total, applied, skipped, failed, uncertain } = counts
  const unprocessed = total - applied - skipped - failed - uncertain
  const parts = [applied, skipped, failed, uncertain, unprocessed]
  assertThat(
    parts.every((part) => Number.isSafeInteger(part) && part >= 0),
    `applied + skipped + failed + uncertain + unprocessed = total, each ≥ 0: ${JSON.stringify(counts)}`,
  )
  return { total, applied, skipped, failed, uncertain, unprocessed }
}

export interface SettleFacts {
  status: OperationStatus
  /** What was asked for; a cancel outlives a pause. */
  stop: null | 'pause' | 'cancel'
  /** A worker has ever held a shard of it. */
  started: boolean
  /** Any shard is not `done`. A stopped shard is `done` once its worker let go of it. */
  shardsOpen: boolean
  inFlight: number
  /** Items that waited for a retry, counted also after a cancel gave these retries up. */
  waiting: number
  counts: Counts
}

const settleWithoutStop = (facts: SettleFacts): OperationStatus => {
  const { applied, skipped, failed, uncertain } = facts.counts
  if (facts.waiting > 0) return 'running'
  if (uncertain > 0) return 'reconciliation_required'
  if (failed === 0) return 'succeeded'
  return applied + skipped === 0 ? 'failed' : 'partially_succeeded'
}

const settleCancelled = (facts: SettleFacts, busy: boolean, unprocessed: number): OperationStatus => {
  const { status, counts } = facts
  // Nothing is claimable in these two, so nothing can be running. The empty ones did not "complete" either.
  if (status === 'draft' || status === 'awaiting_approval') return 'cancelled'
  if (busy) return status === 'reconciliation_required' ? status : 'cancel_requested'
  if (counts.uncertain > 0) return 'reconciliation_required'
  return counts.total === 0 || unprocessed > 0 || facts.waiting > 0 ? 'cancelled' : 'completed_after_cancel'
}

/** The one decision about a status. Final states stay; a cancel is never forgotten, whatever else was asked for. */
export const settle = (facts: SettleFacts): OperationStatus => {
  const { status } = facts
  if (isFinal(status)) return status
  const { unprocessed } = conservation(facts.counts)
  const busy = facts.shardsOpen || facts.inFlight > 0
  if (facts.stop === 'cancel' || status === 'cancel_requested') return settleCancelled(facts, busy, unprocessed)
  if (status === 'draft' || status === 'awaiting_approval') return status
  if (facts.stop === 'pause') {
    if (busy) return 'pause_requested'
    return unprocessed > 0 || facts.waiting > 0 ? 'paused' : settleWithoutStop(facts)
  }
  if (unprocessed === 0 && !busy) return settleWithoutStop(facts)
  // Work is left (also where no shard is open: saying `succeeded` over unprocessed items would be a lie). Only what nobody ever took is still `pending`, also when it was paused in between.
  const untouched = !facts.started && status !== 'running' && status !== 'reconciliation_required'
  return untouched ? 'pending' : 'running'
}

export type CancelDecision =
  | { kind: 'stop' }
  /** Asked before: the same receipt again. `httpFinal` answers 200 instead of 202. */
  | { kind: 'receipt'; httpFinal: boolean }
  | { kind: 'already-final'; status: FinalStatus }

export const cancelDecision = (status: OperationStatus, cancelRequested: boolean): CancelDecision => {
  if (status === 'cancelled' || status === 'completed_after_cancel') return { kind: 'receipt', httpFinal: true }
  if (isFinal(status)) return { kind: 'already-final', status }
  return cancelRequested || status === 'cancel_requested' ? { kind: 'receipt', httpFinal: false } : { kind: 'stop' }
}

export type PauseDecision =
  | { kind: 'stop' }
  /** Asked before. `reached` says that the safe boundary was reached (`paused`). */
  | { kind: 'receipt'; reached: boolean }
  | { kind: 'not-pausable'; status: OperationStatus }

export const pauseDecision = (status: OperationStatus): PauseDecision => {
  if (status === 'pending' || status === 'running') return { kind: 'stop' }
  if (status === 'pause_requested' || status === 'paused') return { kind: 'receipt', reached: status === 'paused' }
  return { kind: 'not-pausable', status }
}

export type ResumeDecision = { kind: 'resume' } | { kind: 'not-paused'; status: OperationStatus }

export const resumeDecision = (status: OperationStatus): ResumeDecision =>
  status === 'pause_requested' || status === 'paused' ? { kind: 'resume' } : { kind: 'not-paused', status }
