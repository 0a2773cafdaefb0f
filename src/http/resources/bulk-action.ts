import { z } from 'zod'
import { BULK_ACTIONS, BULK_STATUSES, BULK_TARGET_STATES } from '../../domain/bulk-action.ts'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import type { BulkActionView, BulkTargetView, DecisionView } from '../../services/bulk-action-views.ts'
import { openEnum, time } from '../fields.ts'

const count = z.int().min(0)
const Decision = z.object({ at: time, by: z.string(), reason: z.string().nullable() })

export const BulkActionResource = z
  .object({
    id: z.string().describe('Opaque.').meta({ example: 'bulk_0198c0de7f3a7c0d9a5e4b1f2a3c4d5e' }),
    action: openEnum(BULK_ACTIONS, 'What is done to each target.'),
    status: openEnum(BULK_STATUSES, 'A `dry_run` does nothing until it is started.'),
    filter: z
      .object({
        status: z.array(z.string()),
        type: z.string().nullable(),
        requested_by: z.string().nullable(),
        labels: z.record(z.string(), z.string()),
        created_after: z.string().nullable(),
        created_before: z.string().nullable(),
        replay_of: z.string().nullable(),
      })
      .describe('As it was when the targets were frozen.'),
    scope: z
      .object({
        states: z.array(z.string()).nullable(),
        failure_classes: z.array(z.string()).nullable(),
        item_keys: z.array(z.string()).nullable(),
      })
      .nullable()
      .describe('Of a replay: which items of each operation, as it was asked for. Null: as by default.'),
    reason: z.string(),
    rate_per_second: z.int(),
    requested_by: z.string().describe('Each target is worked on in this name.'),
    counts: z
      .object({ total: count, pending: count, done: count, refused: count, failed: count, skipped: count })
      .describe('Targets by state. Those that are pending after an abort are in hand: their outcome is still to come.'),
    created_at: time,
    expires_at: time.nullable().describe('Until when a dry run can be started.'),
    started: Decision.nullable(),
    aborted: Decision.nullable(),
    completed_at: time.nullable().describe('Since then every target has its outcome.'),
    links: z.object({ self: z.string(), targets: z.string(), start: z.string(), abort: z.string() }),
  })
  .meta({ id: 'BulkAction' })

export const BulkTargetResource = z
  .object({
    ord: count,
    operation_id: z.string(),
    state: openEnum(BULK_TARGET_STATES, '`skipped`: the bulk action was aborted before it was begun.'),
    code: z.string().nullable().describe('Of a target that was not done: why, as a problem code.'),
    detail: z.string().nullable(),
    blocked_by: z.array(z.string()).describe('Of a replay that was blocked: the codes of its preflight.'),
    result_operation_id: z.string().nullable().describe('The replay that was made.'),
    at: time.nullable(),
  })
  .meta({ id: 'BulkActionTarget' })

export const bulkActionPath = (id: string): string => `/bulk-actions/${formatId('bulk', id)}`

const toDecision = (view: DecisionView | null) => view && { ...view, at: toRfc3339(view.at) }

export const toBulkAction = (view: BulkActionView): z.infer<typeof BulkActionResource> => {
  const { filter, scope } = view
  const self = bulkActionPath(view.id)
  return {
    id: formatId('bulk', view.id),
    action: view.action,
    status: view.status,
    filter: {
      status: filter.status,
      type: filter.type,
      requested_by: filter.requestedBy,
      labels: filter.labels,
      created_after: filter.createdAfter,
      created_before: filter.createdBefore,
      replay_of: filter.replayOf && formatId('op', filter.replayOf),
    },
    scope: scope && { states: scope.states, failure_classes: scope.failureClasses, item_keys: scope.itemKeys },
    reason: view.reason,
    rate_per_second: view.ratePerSecond,
    requested_by: view.requestedBy,
    counts: view.counts,
    created_at: toRfc3339(view.createdAt),
    expires_at: toRfc3339OrNull(view.expiresAt),
    started: toDecision(view.started),
    aborted: toDecision(view.aborted),
    completed_at: toRfc3339OrNull(view.completedAt),
    links: { self, targets: `${self}/targets`, start: `${self}/start`, abort: `${self}/abort` },
  }
}

export const toBulkTarget = (view: BulkTargetView): z.infer<typeof BulkTargetResource> => ({
  ord: view.ord,
  operation_id: formatId('op', view.operationId),
  state: view.state,
  code: view.code,
  detail: view.detail,
  blocked_by: view.blockedBy,
  result_operation_id: view.resultOperationId && formatId('op', view.resultOperationId),
  at: toRfc3339OrNull(view.at),
})
