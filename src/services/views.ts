import type { AfterWhen } from '../domain/after.ts'
import type { CallbackOutcome } from '../domain/callback.ts'
import type { FailureClass } from '../domain/failure.ts'
import type { HealthVerdict, Verdict } from '../domain/health.ts'
import type { ItemState } from '../domain/ledger.ts'
import type { LedgerEntry } from '../domain/ledger-entry.ts'
import type { OperationStatus } from '../domain/operation.ts'
import type { Json } from '../domain/operation-type.ts'

/**
 * What the use cases answer with: rows parsed into named fields. Ids are uuids, times are the database's own text
 * (`2026-11-29 14:20:18.123456+00`, microseconds kept), counters are numbers. `http/resources` turns them into JSON.
 */

/** `T` in database text form; null where the thing has not happened. */
export type DbTime = string

/** One page of a keyset list; `next` is the position behind the last row, absent at the end. */
export interface Page<T, P> {
  items: T[]
  next: P | null
}

export interface OperationCounts {
  total: number
  applied: number
  skipped: number
  failed: number
  uncertain: number
  /** total − the four above; includes what is in flight. */
  unprocessed: number
  inFlight: number
}

export interface CancelView {
  /** False once the operation is final or a cancel was requested. */
  possible: boolean
  /** `cancelGuarantee(type)`. */
  guarantee: string
  requestedAt: DbTime | null
  requestedBy: string | null
  reason: string | null
  acknowledgedAt: DbTime | null
  settledAt: DbTime | null
  appliedAfterRequest: number
}

export interface ApprovalView {
  required: boolean
  decision: string | null
  decidedBy: string | null
  decidedAt: DbTime | null
  note: string | null
}

export interface OperationView {
  id: string
  type: string
  typeVersion: number
  status: OperationStatus
  /** operations.version + sum of the shards' versions: the ETag. */
  version: number
  counts: OperationCounts
  failures: Partial<Record<FailureClass, number>>
  /** Callers without `ledger:read` see ranges. */
  countsSensitive: boolean
  lastProgressAt: DbTime | null
  cancel: CancelView
  approval: ApprovalView | null
  replayOf: string | null
  replayedBy: string[]
  compensates: string | null
  compensatedBy: string[]
  after: string[]
  afterWhen: AfterWhen | null
  /** Of `after`, those that have not ended yet, while it waits for them. */
  waitingFor: string[]
  risk: string
  /** Names of the signals that are raised now, for example `heartbeat_late`; empty when all is well. */
  stuckSignals: string[]
  error: { code: string; detail: string } | null
  callbackUrl: string | null
  requestedBy: string
  reason: string | null
  labels: Record<string, string>
  priority: number
  runAfter: DbTime | null
  deadlineAt: DbTime | null
  createdAt: DbTime
  startedAt: DbTime | null
  completedAt: DbTime | null
  /** Since when parts of it are deleted by age. */
  itemsPurgedAt: DbTime | null
  ledgerPurgedAt: DbTime | null
  /** The database's clock when the row was read: rates and ages are computed against it, never against ours. */
  now: DbTime
}

export interface ItemView {
  ord: number
  key: string
  state: ItemState | 'unprocessed'
  /** Where it waits or got to; null: it has no steps, or none has been begun. */
  step: string | null
  failureClass: FailureClass | null
  reasonCode: string | null
  attempt: number
  retryAt: DbTime | null
  effectKey: string | null
  effectRef: string | null
  evidenceRef: string | null
  observedAt: DbTime | null
}

export type LedgerEntryView = LedgerEntry

export interface CheckpointView {
  shard: number
  fromOrd: number
  toOrd: number
  cursor: number
  state: string
  epoch: number
  owner: string | null
  leaseExpiresAt: DbTime | null
  lastProgressAt: DbTime | null
  typeVersion: number
  schemaVersion: number
  codeVersion: string | null
}

export interface EventView {
  version: number
  /** For example `accepted`, `running`, `cancel_requested`, `settled`. */
  kind: string
  status: string
  at: DbTime
  actor: string
  reason: string | null
}

export interface CaseView {
  id: string
  operationId: string
  type: string
  itemKey: string
  step: string | null
  effectKey: string
  /** The send in doubt: a later one than at first where the effect was sent again. */
  send: number
  status: string
  cause: string
  openedAt: DbTime
  dueAt: DbTime
  /** Of the type: who the case is escalated to. */
  owner: string | null
  lookups: { count: number; lastAnswer: string | null; nextAt: DbTime | null }
  resolution: {
    resolution: string
    evidenceRef: string | null
    effectRef: string | null
    note: string | null
    resolvedBy: string | null
    resolvedAt: DbTime
    source: string
  } | null
}

export interface HistoryView {
  kind: string
  at: DbTime
  operationId: string
  /** What the operation is a replay of. */
  replayOf: string | null
  /** What the operation is a compensation of. */
  compensates: string | null
  actor: string | null
  reason: string | null
  deadLetterId: string | null
  incidentId: string | null
  entry: LedgerEntryView | null
}

export interface OperationTypeView {
  name: string
  version: number
  description: string | null
  owner: string | null
  effect: string
  risk: string
  touches: string[]
  approval: string
  idempotencyKey: string
  cancelGuarantee: string
  /** In order; empty: an item is one effect. */
  steps: { name: string; irreversible: boolean }[]
  batch: { maxItems: number; maxMs: number }
  parallelism: number
  concurrency: number
  ratePerSecond: number | null
  leaseMs: number
  /** 2–3 × p95, never below the call timeout; null while there is no p95. */
  leaseAdviceMs: { min: number; max: number } | null
  p95Ms: number | null
  maxCancelMs: number
  retry: { maxAttempts: number; baseMs: number; maxMs: number }
  stopIf: string[]
  counts: string
  retention: { itemsDays: number; ledgerDays: number }
  compensation: string
  noCompensationReason: string | null
  codeVersion: string
  inputSchema: Json
  /** The kill switch. */
  paused: { at: DbTime; by: string | null; reason: string | null } | null
}

/** An item as a worker elsewhere gets it; its input is not masked. */
export interface HandedItemView {
  effectKey: string
  send: number
  key: string
  /** '' for an item without steps. */
  step: string
  input: Json
  attempt: number
  resend: boolean
}

/** Deadlines are milliseconds from before the request was sent: domain/remote-work.ts. */
export interface WorkBatchView {
  lease: string
  type: string
  operationId: string
  isolated: boolean
  leaseWithinMs: number
  sendWithinMs: number
  /** The same instant by the clock of the service, for people and logs: RFC 3339. */
  sendBy: string
  traceparent: string | null
  items: HandedItemView[]
}

export interface ClaimedWorkView {
  worker: string
  /** Types of the request, as `name@version`, that this service has in another version: no items of them are handed out. */
  notRunnable: string[]
  batch: WorkBatchView | null
}

export interface ReportedWorkView {
  /** To name from now on; null: it is over. */
  lease: string | null
  /** `finished`: the lease was given back. */
  leaseState: 'held' | 'finished' | 'lost'
  stop: 'pause' | 'cancel' | null
  /** Begin nothing more, and report what is in hand: the shard is wanted back. */
  giveBack: boolean
  leaseWithinMs: number
  /** Results that changed something; one that is repeated does not. */
  recorded: number
  /** Effect keys that are none of this lease's. */
  unknown: string[]
  /** Items in hand, those of `batch` included. */
  inHand: number
  batch: WorkBatchView | null
  /** Of a finished shard: when it is due again. */
  dueInMs: number | null
}

export interface HeldLeaseView {
  lease: string
  leaseState: 'held' | 'lost'
  stop: 'pause' | 'cancel' | null
  giveBack: boolean
  leaseWithinMs: number
}

export interface WorkerView {
  id: string
  host: string
  pid: number
  state: string
  startedAt: DbTime
  lastSeenAt: DbTime
  codeVersion: string
  leases: number
}

export interface HealthReportView {
  generatedAt: DbTime
  types: {
    type: string
    /** Callers without `ledger:read` see ranges of counts. */
    countsSensitive: boolean
    verdict: Verdict
    figures: HealthVerdict[]
    cancelContract: HealthVerdict[]
  }[]
}

export interface ReadinessView {
  ready: boolean
  checks: { name: string; ok: boolean; detail: string | null }[]
}

/** One gauge of `/metrics`; the name comes without the `opledger_` prefix. */
export interface Gauge {
  name: string
  help: string
  labelNames: string[]
  /** It counts items: of some types not everybody may see them exactly. */
  ofItems?: boolean
  values: { labels: Record<string, string>; value: number }[]
}

export interface CallbackView {
  eventId: string
  outcome: CallbackOutcome
  /** The event was received before. */
  duplicate: boolean
  /** Judged by this very request, and not before. */
  judged: boolean
  operationId: string | null
  itemKey: string | null
  effectKey: string | null
  caseId: string | null
}

/** Who did what, when and why. */
export interface AuditView {
  /** The database's own text. */
  at: string
  /** Tells entries of one instant apart. */
  seq: number
  actor: string
  auth: string
  scope: string | null
  action: string
  subjectKind: string
  subjectId: string
  reason: string | null
  requestId: string | null
  traceId: string | null
  details: Record<string, unknown>
}
