import type { BulkActionKind, BulkScope, BulkStatus, BulkTargetState } from '../domain/bulk-action.ts'
import type { OperationFilters } from './requests.ts'
import type { DbTime } from './views.ts'

/** Who decided something, when and why. */
export interface DecisionView {
  at: DbTime
  by: string
  reason: string | null
}

export interface BulkActionView {
  id: string
  action: BulkActionKind
  status: BulkStatus
  filter: OperationFilters
  /** Of a replay, as it was asked for; null: the default, or a cancel. */
  scope: BulkScope | null
  reason: string
  ratePerSecond: number
  requestedBy: string
  counts: { total: number; pending: number; done: number; refused: number; failed: number; skipped: number }
  createdAt: DbTime
  /** Until when a dry run can be started. */
  expiresAt: DbTime | null
  started: DecisionView | null
  aborted: DecisionView | null
  completedAt: DbTime | null
}

export interface BulkTargetView {
  ord: number
  operationId: string
  state: BulkTargetState
  code: string | null
  detail: string | null
  blockedBy: string[]
  /** Of a replay that was made. */
  resultOperationId: string | null
  at: DbTime | null
}
