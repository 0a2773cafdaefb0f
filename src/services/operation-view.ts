import { areCountsSensitive } from '../domain/count-range.ts'
import { FAILURE_CLASSES, type FailureClass } from '../domain/failure.ts'
import { stuckSignals } from '../domain/health.ts'
import { isFinal } from '../domain/operation.ts'
import { cancelGuarantee, type OperationType } from '../domain/operation-type.ts'
import type { Share } from '../domain/replay.ts'
import type { OperationState } from '../storage/operation-state.ts'
import type { OperationView } from './views.ts'

/** What is known of a type from outside an operation: its provider's errors, and who could run it. */
export interface TypePulse {
  downstreamErrors5m: Share
  liveWorkers: number
}

const STALL_MS_UNKNOWN_TYPE = 60_000

const failures = (state: OperationState): Partial<Record<FailureClass, number>> => {
  const counts: Record<FailureClass, number> = {
    transient: state.failedTransient,
    validation_rejected: state.failedValidationRejected,
    conflict: state.failedConflict,
    ambiguous_effect: 0,
    policy_denied: state.failedPolicyDenied,
    bug_suspected: state.failedBugSuspected,
  }
  return Object.fromEntries(FAILURE_CLASSES.filter((name) => counts[name] > 0).map((name) => [name, counts[name]]))
}

/** The view of an operation: the stored facts, and what follows from them and from its type. */
export const operationView = (
  state: OperationState,
  type: OperationType | undefined,
  pulse: TypePulse,
): OperationView => {
  const { applied, skipped, failed, uncertain, itemsTotal } = state
  const cancelled = state.cancelRequestedAt !== null
  return {
    id: state.id,
    type: state.type,
    typeVersion: state.typeVersion,
    status: state.status,
    version: state.version,
    counts: {
      total: itemsTotal,
      applied,
      skipped,
      failed,
      uncertain,
      unprocessed: itemsTotal - applied - skipped - failed - uncertain,
      inFlight: state.inFlight,
    },
    failures: failures(state),
    countsSensitive: areCountsSensitive(type),
    lastProgressAt: state.lastProgressAt,
    cancel: {
      possible: !isFinal(state.status) && !cancelled,
      guarantee: type ? cancelGuarantee(type) : 'unknown',
      requestedAt: state.cancelRequestedAt,
      requestedBy: state.cancelRequestedBy,
      reason: state.cancelReason,
      acknowledgedAt: state.cancelAcknowledgedAt,
      settledAt: cancelled ? state.completedAt : null,
      appliedAfterRequest: state.appliedAfterCancel,
    },
    approval:
      state.approvalRequired === null
        ? null
        : {
            required: true,
            decision: state.approvalDecision,
            decidedBy: state.approvalBy,
            decidedAt: state.approvalAt,
            note: state.approvalNote,
          },
    replayOf: state.replayOf,
    replayedBy: state.replayedBy,
    compensates: state.compensates,
    compensatedBy: state.compensatedBy,
    after: state.after,
    afterWhen: state.afterWhen,
    waitingFor: state.waitingFor,
    risk: state.risk,
    stuckSignals: stuckSignals({
      status: state.status,
      oldestBeat:
        state.sinceBeatMs === null || state.beatLeaseMs === null
          ? null
          : { sinceBeatMs: state.sinceBeatMs, leaseMs: state.beatLeaseMs },
      sinceProgressMs: state.sinceProgressMs,
      sinceLedgerWriteMs: state.sinceProgressMs,
      stallMs: type?.stallMs ?? STALL_MS_UNKNOWN_TYPE,
      attemptsMost: state.attemptsMost,
      downstreamErrors5m: pulse.downstreamErrors5m,
      liveWorkers: pulse.liveWorkers,
    }),
    error: state.error,
    callbackUrl: state.callbackUrl,
    requestedBy: state.requestedBy,
    reason: state.reason,
    labels: state.labels,
    priority: state.priority,
    runAfter: state.runAfter,
    deadlineAt: state.deadlineAt,
    createdAt: state.createdAt,
    startedAt: state.startedAt,
    completedAt: state.completedAt,
    itemsPurgedAt: state.itemsPurgedAt,
    ledgerPurgedAt: state.ledgerPurgedAt,
    now: state.now,
  }
}
