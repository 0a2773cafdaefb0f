/** Bulk actions: one action over many operations that a filter named once. */
import type { ErrorCode } from './errors.ts'
import { isFinal, isSettled, OPERATION_STATUSES, type OperationStatus } from './operation.ts'

export const BULK_ACTIONS = ['cancel', 'replay'] as const
export type BulkActionKind = (typeof BULK_ACTIONS)[number]

/** `dry_run`: the set is frozen and nothing is done. `finished`, `aborted`: no further target is begun. */
export const BULK_STATUSES = ['dry_run', 'running', 'finished', 'aborted'] as const
export type BulkStatus = (typeof BULK_STATUSES)[number]

/** `skipped`: not begun, as the action was aborted before. */
export const BULK_TARGET_STATES = ['pending', 'done', 'refused', 'failed', 'skipped'] as const
export type BulkTargetState = (typeof BULK_TARGET_STATES)[number]

export const BULK_TARGETS_MAX = 10_000
export const BULK_RATE_DEFAULT = 10
export const BULK_RATE_MAX = 100
export const DRY_RUN_HOURS = 24
/** A target whose worker died, or that met a fault, so often is given up. */
export const BULK_CLAIMS_MAX = 5

/** Statuses of operations that the action makes sense for; a frozen set holds no others. */
export const candidateStatuses = (action: BulkActionKind): OperationStatus[] => {
  switch (action) {
    case 'cancel':
      // a cancel that was asked for stands
      return OPERATION_STATUSES.filter((status) => !isFinal(status) && status !== 'cancel_requested')
    case 'replay':
      return OPERATION_STATUSES.filter(isSettled)
  }
}

export interface BulkFilter {
  status: readonly string[]
  type: string | null
  requestedBy: string | null
  labels: Readonly<Record<string, string>>
  createdAfter: string | null
  createdBefore: string | null
  replayOf: string | null
}

/** Which items of each operation a replay takes, as it was asked for; null: as a preflight does by default. */
export interface BulkScope {
  states: string[] | null
  failureClasses: string[] | null
  itemKeys: string[] | null
}

/** Whether a filter leaves anything out. A list of all statuses that the action makes sense for does not. */
export const isRestrictive = (action: BulkActionKind, filter: BulkFilter): boolean => {
  const { type, requestedBy, labels, createdAfter, createdBefore, replayOf } = filter
  if ([type, requestedBy, createdAfter, createdBefore, replayOf].some((value) => value !== null)) return true
  if (Object.keys(labels).length > 0) return true
  return filter.status.length > 0 && candidateStatuses(action).some((status) => !filter.status.includes(status))
}

export type StartDecision = 'start' | 'expired' | 'not-startable'

export const startDecision = (status: BulkStatus, expired: boolean): StartDecision => {
  if (status !== 'dry_run') return 'not-startable'
  return expired ? 'expired' : 'start'
}

export type AbortDecision = 'abort' | 'receipt' | 'not-abortable'

export const abortDecision = (status: BulkStatus): AbortDecision => {
  switch (status) {
    case 'dry_run':
    case 'running':
      return 'abort'
    case 'aborted':
      return 'receipt'
    case 'finished':
      return 'not-abortable'
  }
}

/** What says nothing of the target: the facts moved, or the service could not do it now. */
const AGAIN: ReadonlySet<ErrorCode> = new Set([
  'version-conflict',
  'preflight-outdated',
  'database-unavailable',
  'overloaded',
  'shutting-down',
  'not-ready',
  'internal',
])

/** Whether an error of the single action is its answer for this target; otherwise it is tried again. */
export const isRefusal = (code: ErrorCode): boolean => !AGAIN.has(code)
