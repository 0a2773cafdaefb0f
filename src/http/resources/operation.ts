import { z } from 'zod'
import { AFTER_WHEN } from '../../domain/after.ts'
import { countRange, inTenths, lowerEnd, mapCounts } from '../../domain/count-range.ts'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { formatId } from '../../domain/ids.ts'
import { OPERATION_STATUSES } from '../../domain/operation.ts'
import { progress } from '../../domain/progress.ts'
import { toMillis, toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import { seesRanges } from '../../services/count-ranges.ts'
import type { Principal } from '../../services/principal.ts'
import type { OperationView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

const count = z.int().min(0)
const operationId = z.string().describe('Opaque.').meta({ example: 'op_0198c0de7f3a7c0d9a5e4b1f2a3c4d5e' })

export const OperationResource = z
  .object({
    id: operationId,
    type: z.string(),
    type_version: z.int(),
    status: openEnum(OPERATION_STATUSES, 'What the operation is doing, or how it ended.'),
    version: z.int().describe('Grows with every change that the resource shows; also the ETag.'),
    counts: z
      .object({
        total: count,
        applied: count,
        skipped: count,
        failed: count,
        uncertain: count,
        unprocessed: count.describe('Without an outcome yet; includes `in_flight`.'),
        in_flight: count,
      })
      .describe('applied + skipped + failed + uncertain + unprocessed = total, at every moment.'),
    count_ranges: z
      .record(z.string(), z.object({ min: count, max: count }))
      .nullable()
      .describe(
        'Null: the counts are exact. Otherwise the type shows ranges of them to callers without the scope ledger:read: here they are, by the names of `counts`, and every count in the resource is the lower end of its range.',
      ),
    failures: z
      .record(z.string(), count)
      .describe(`Failed items per failure class: ${FAILURE_CLASSES.join(', ')}. Further classes may be added.`),
    progress: z.object({
      ratio: z.number().nullable().describe('0…1 of the items have an outcome; null when there are none.'),
      rate_per_second: z.number().nullable(),
      eta: time.nullable(),
      last_progress_at: time.nullable(),
    }),
    cancel: z.object({
      possible: z.boolean(),
      guarantee: openEnum(
        ['discarded_before_publish', 'stops_at_batch_boundary', 'no_new_sends', 'no_new_commands'],
        'What a cancel of this type promises.',
      ),
      requested_at: time.nullable(),
      requested_by: z.string().nullable(),
      reason: z.string().nullable(),
      acknowledged_at: time.nullable().describe('When every worker had seen the request. No request is sent after it.'),
      settled_at: time.nullable(),
      applied_after_request: count,
    }),
    approval: z
      .object({
        required: z.boolean(),
        decision: z.string().nullable(),
        decided_by: z.string().nullable(),
        decided_at: time.nullable(),
        note: z.string().nullable(),
      })
      .nullable(),
    replay_of: z.string().nullable(),
    replayed_by: z.array(z.string()),
    compensates: z.string().nullable().describe('The operation whose applied effects it takes back.'),
    compensated_by: z.array(z.string()),
    after: z.array(z.string()).describe('Operations that it starts after.'),
    after_when: openEnum(AFTER_WHEN, 'What it waits for them to be; null: it waits for none.').nullable(),
    waiting_for: z.array(z.string()).describe('Of `after`, those that have not ended yet, while it waits for them.'),
    risk: openEnum(['low', 'medium', 'high'], 'As its type says.'),
    stuck_signals: z
      .array(z.string())
      .describe('Signals that are raised now, for example heartbeat_late or no_worker.'),
    error: z.object({ code: z.string(), detail: z.string() }).nullable(),
    callback_url: z.string().nullable().describe('Where webhooks go, in one spelling.'),
    requested_by: z.string(),
    reason: z.string().nullable(),
    labels: z.record(z.string(), z.string()),
    priority: z.int(),
    run_after: time.nullable(),
    deadline_at: time.nullable(),
    created_at: time,
    started_at: time.nullable(),
    completed_at: time.nullable(),
    items_purged_at: time.nullable().describe('Its items were deleted then, as their time was over.'),
    ledger_purged_at: time.nullable().describe('Its ledger was deleted then, as its time was over.'),
    links: z.object({
      self: z.string(),
      cancel: z.string(),
      pause: z.string(),
      resume: z.string(),
      items: z.string(),
      ledger: z.string(),
      checkpoints: z.string(),
      events: z.string(),
      replay_preflight: z.string(),
      replay: z.string(),
      webhook_deliveries: z.string(),
      compensation_preflight: z.string(),
      compensations: z.string(),
    }),
  })
  .meta({ id: 'Operation' })
export type OperationResource = z.infer<typeof OperationResource>

/** As this caller may see it. */
export const toOperation = (view: OperationView, caller: Pick<Principal, 'scopes'>): OperationResource => {
  const exact = toExactOperation(view)
  return seesRanges(caller, view) ? inRanges(exact) : exact
}

/** What is exact would tell the counts, or what they are made of. */
const inRanges = (exact: OperationResource): OperationResource => ({
  ...exact,
  counts: mapCounts(exact.counts, lowerEnd),
  count_ranges: mapCounts(exact.counts, countRange),
  failures: mapCounts(exact.failures, lowerEnd),
  progress: {
    ...exact.progress,
    ratio: exact.progress.ratio === null ? null : inTenths(exact.progress.ratio),
    rate_per_second: null,
  },
  cancel: { ...exact.cancel, applied_after_request: lowerEnd(exact.cancel.applied_after_request) },
})

const toExactOperation = (view: OperationView): OperationResource => ({
  id: formatId('op', view.id),
  type: view.type,
  type_version: view.typeVersion,
  status: view.status,
  version: view.version,
  counts: {
    total: view.counts.total,
    applied: view.counts.applied,
    skipped: view.counts.skipped,
    failed: view.counts.failed,
    uncertain: view.counts.uncertain,
    unprocessed: view.counts.unprocessed,
    in_flight: view.counts.inFlight,
  },
  count_ranges: null,
  failures: view.failures,
  progress: toProgress(view),
  cancel: {
    possible: view.cancel.possible,
    guarantee: view.cancel.guarantee,
    requested_at: toRfc3339OrNull(view.cancel.requestedAt),
    requested_by: view.cancel.requestedBy,
    reason: view.cancel.reason,
    acknowledged_at: toRfc3339OrNull(view.cancel.acknowledgedAt),
    settled_at: toRfc3339OrNull(view.cancel.settledAt),
    applied_after_request: view.cancel.appliedAfterRequest,
  },
  approval: view.approval && {
    required: view.approval.required,
    decision: view.approval.decision,
    decided_by: view.approval.decidedBy,
    decided_at: toRfc3339OrNull(view.approval.decidedAt),
    note: view.approval.note,
  },
  replay_of: view.replayOf && formatId('op', view.replayOf),
  replayed_by: view.replayedBy.map((id) => formatId('op', id)),
  compensates: view.compensates && formatId('op', view.compensates),
  compensated_by: view.compensatedBy.map((id) => formatId('op', id)),
  after: view.after.map((id) => formatId('op', id)),
  after_when: view.afterWhen,
  waiting_for: view.waitingFor.map((id) => formatId('op', id)),
  risk: view.risk,
  stuck_signals: view.stuckSignals,
  error: view.error,
  callback_url: view.callbackUrl,
  requested_by: view.requestedBy,
  reason: view.reason,
  labels: view.labels,
  priority: view.priority,
  run_after: toRfc3339OrNull(view.runAfter),
  deadline_at: toRfc3339OrNull(view.deadlineAt),
  created_at: toRfc3339(view.createdAt),
  started_at: toRfc3339OrNull(view.startedAt),
  completed_at: toRfc3339OrNull(view.completedAt),
  items_purged_at: toRfc3339OrNull(view.itemsPurgedAt),
  ledger_purged_at: toRfc3339OrNull(view.ledgerPurgedAt),
  links: toLinks(view.id),
})

export const operationPath = (id: string): string => `/operations/${formatId('op', id)}`

const toLinks = (id: string): OperationResource['links'] => {
  const self = operationPath(id)
  return {
    self,
    cancel: `${self}/cancel`,
    pause: `${self}/pause`,
    resume: `${self}/resume`,
    items: `${self}/items`,
    ledger: `${self}/ledger`,
    checkpoints: `${self}/checkpoints`,
    events: `${self}/events`,
    replay_preflight: `${self}/replay-preflight`,
    replay: `${self}/replay`,
    webhook_deliveries: `${self}/webhook-deliveries`,
    compensation_preflight: `${self}/compensation-preflight`,
    compensations: `${self}/compensations`,
  }
}

const toProgress = (view: OperationView): OperationResource['progress'] => {
  const { counts, startedAt, completedAt, lastProgressAt } = view
  const runSeconds = startedAt === null ? null : (toMillis(completedAt ?? view.now) - toMillis(startedAt)) / 1000
  const { ratio, ratePerSecond, etaSeconds } = progress({ counts, inFlight: counts.inFlight, waiting: 0, runSeconds })
  // only what runs comes to an end at its rate: what is stopping, paused or in doubt ends when somebody decides
  const hasEta = etaSeconds !== null && view.status === 'running'
  return {
    ratio,
    rate_per_second: ratePerSecond,
    eta: hasEta ? new Date(toMillis(view.now) + etaSeconds * 1000).toISOString() : null,
    last_progress_at: toRfc3339OrNull(lastProgressAt),
  }
}
