import type { AfterWhen } from '../domain/after.ts'
import type { BulkActionKind } from '../domain/bulk-action.ts'
import type { Fault } from '../domain/errors.ts'
import type { FailureClass } from '../domain/failure.ts'
import type { Json } from '../domain/operation-type.ts'
import type { Principal } from './principal.ts'

/** What callers ask for, checked against the route's own schema, but not yet against types or facts. */

export interface SubmitRequest {
  type: string
  /** Keys are 1…255 bytes, not yet checked for duplicates or against the type; empty when none were sent. */
  items: { key: string; input: Json }[]
  input: Json | undefined
  reason: string | null
  labels: Record<string, string>
  priority: number
  /** RFC 3339 with an offset, as sent. */
  runAfter: string | null
  deadlineAt: string | null
  draft: boolean
  callbackUrl: string | null
  /** Null: not the id of an operation. */
  after: (string | null)[]
  afterWhen: AfterWhen
  stopIf: string[]
  idempotencyKey: string | null
  /** The body as parsed, for the RFC 8785 hash. Its depth is bounded (`MAX_JSON_DEPTH`). */
  body: Json
  traceparent: string | null
}

/** One row of an upload: an item not yet checked against its type, or why it is none. Lines count from 1. */
export type UploadRow = { line: number; key: string; input: Json } | { line: number; faults: Fault[] }

export interface UploadRequest {
  /** Some rows at a time, in order. More of the body is read only when they are asked for. */
  rows: AsyncIterable<UploadRow[]>
  /** `text`: inputs are cells of a table, which become values as the type's schema says. */
  cells: 'json' | 'text'
  /** Reads what is left of the body. SHA-256 of all of it and of how it is to be read, as base64url. */
  hash(): Promise<string>
  idempotencyKey: string | null
  /** As in `CancelRequest`. */
  ifMatchVersion: number | null
}

/** What a download link says; its signature is not checked yet. */
export interface DownloadRequest {
  artifactId: string
  expiresSeconds: number
  signature: string
}

export interface CancelRequest {
  reason: string | null
  /** From `If-Match`; null: not asked. A tag that cannot be a version is −1, which no operation has. */
  ifMatchVersion: number | null
}
export type PauseRequest = CancelRequest

export interface WaitRequest {
  seconds: number
  /** Answer when the version differs from this one; null: when the operation is settled. */
  seenVersion: number | null
  /** Aborted when the client has gone or the server closes: answer with what is known. */
  signal: AbortSignal
}

export interface PageRequest<P> {
  limit: number
  position: P | null
}

export interface OperationFilters {
  status: string[]
  type: string | null
  requestedBy: string | null
  labels: Record<string, string>
  /** RFC 3339. */
  createdAfter: string | null
  createdBefore: string | null
  replayOf: string | null
}
/** The filters of the list, which bulk actions do not have: they find an operation by what is in it. */
export interface OperationSearch extends OperationFilters {
  /** Of one of its items. */
  itemKey: string | null
  /** Of an effect that it was the last to send. */
  effectKey: string | null
}
/** Newest first, by the database's clock; `createdAt` is its own text, so no microsecond is lost. */
export type OperationPosition = { createdAt: string; id: string }

export interface ItemFilters {
  state: string[]
  failureClass: string[]
  key: string | null
}
export type ItemPosition = { ord: number }
export type LedgerPosition = { ord: number; seq: number }
export type CheckpointPosition = { shard: number }
export type EventPosition = { version: number }

/** The event of the operation that the last delivery told of. */
export type WebhookDeliveryPosition = { eventVersion: number }

export interface CaseFilters {
  operationId: string | null
  type: string | null
  status: string[]
  itemKey: string | null
}
/** Oldest first; `openedAt` is the database's own text too. */
export type CasePosition = { openedAt: string; id: string }

export interface ResolveCaseRequest {
  resolution: 'applied' | 'not_applied'
  evidenceRef: string
  effectRef: string | null
  note: string | null
  retry: boolean
  /** Which send the evidence is about; undefined: the one that the case was opened for. */
  send?: number | undefined
}

export interface AuditFilters {
  actor: string | null
  action: string[]
  /** The id of a subject, as it was given. */
  subject: string | null
  createdAfter: string | null
  createdBefore: string | null
}
/** Newest first; `at` is the database's own text. */
export type AuditPosition = { at: string; seq: number }

export interface DeadLetterFilters {
  operationId: string | null
  type: string | null
  failureClass: string[]
  /** The fingerprint. */
  incidentId: string | null
  status: string[]
}
/** Oldest first, by the database's own text. */
export type DeadLetterPosition = { createdAt: string; id: string }

export interface IncidentFilters {
  type: string | null
  status: string[]
}
/** In the order of their first dead letter; the id is the fingerprint. */
export type IncidentPosition = { firstSeenAt: string; id: string }

export interface ResolveIncidentRequest {
  /** The version that mends the cause, as the caller names it. */
  fixedIn: string | null
  reason: string
}

/** By time; `rank` and `position` keep what happened in one instant in its order. */
export type HistoryPosition = { at: string; rank: number; operationId: string; position: number }

export interface PreflightRequest {
  /** Null: the default scope. */
  scope: { states: string[] | null; failureClasses: string[] | null; itemKeys: string[] | null } | null
}

export interface ReplayRequest {
  preflightId: string
  reason: string
  /** Blocking codes that the caller overrides; only signs of trouble can be. */
  force: string[]
  /** As in `CancelRequest`. */
  ifMatchVersion: number | null
}

export interface CompensationPreflightRequest {
  /** Null: all that is applied. */
  scope: { itemKeys: string[] | null } | null
}

export interface CompensateRequest {
  /** Null: the service takes and records one itself, over all that is applied. */
  preflightId: string | null
  reason: string
  /** As in `ReplayRequest`. */
  force: string[]
  /** As in `CancelRequest`. */
  ifMatchVersion: number | null
}

export interface ApprovalRequest {
  decision: 'approve' | 'reject'
  note: string | null
  /** As in `CancelRequest`. */
  ifMatchVersion: number | null
}

/** An event as a provider sent it: nothing of it is believed before its signature is. */
export interface CallbackRequest {
  type: string
  /** Names in lower case. */
  headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** The exact bytes. */
  body: Buffer
  /** Whose effect it is, where several tenants have one with the same key. */
  tenantId: number | null
  /** For the audit. */
  origin?: Principal['origin']
}
export interface BulkActionRequest {
  action: BulkActionKind
  filter: OperationFilters
  /** As in `PreflightRequest`; only a replay may have one. */
  scope: PreflightRequest['scope']
  reason: string
  dryRun: boolean
  ratePerSecond: number
  idempotencyKey: string | null
  /** As in `SubmitRequest`. */
  body: Json
}

export interface BulkActionFilters {
  action: string[]
  status: string[]
}
/** Newest first, by the database's own text. */
export type BulkActionPosition = { createdAt: string; id: string }
export type BulkTargetPosition = { ord: number }

export interface ClaimWorkRequest {
  /** Null: register. */
  worker: string | null
  host: string
  pid: number
  codeVersion: string
  types: { name: string; version: number }[]
  maxItems: number | null
  /** The answer to an earlier claim was not read, and nothing of leases that `leases` does not name was begun. */
  lostAnswer: boolean
  leases: string[]
  seconds: number
  /** Aborted when the client has gone or the server closes. */
  signal: AbortSignal
}

/** What became of one send. */
export interface WorkResult {
  effectKey: string
  send: number
  outcome:
    | { state: 'applied'; effectRef: string | null }
    | { state: 'skipped'; effectRef: string | null; reasonCode: string | null }
    | {
        state: 'failed'
        failureClass: Exclude<FailureClass, 'ambiguous_effect'>
        reasonCode: string | null
        message: string | null
      }
    | { state: 'uncertain'; reasonCode: string | null; message: string | null }
    | { state: 'unsent' }
  downstreamError: boolean
  durationMs: number | null
}

export interface ReportWorkRequest {
  lease: string
  /** Each effect once. */
  results: WorkResult[]
  /** Null: as many as the type allows; 0: none. */
  maxItems: number | null
  /** The worker has closed its gate: it begins nothing more under this stop. */
  stopSeen: 'pause' | 'cancel' | null
  /** As in `ClaimWorkRequest`, of items that neither `results` nor `inHand` names. */
  lostAnswer: boolean
  inHand: { effectKey: string; send: number }[]
}

export interface GiveBackWorkRequest {
  lease: string
  results: WorkResult[]
  /** What became of items that no result names. */
  rest: 'unsent' | 'uncertain'
}

export interface WorkHeartbeatRequest {
  worker: string
  /** Null: as it was. */
  state: 'active' | 'draining' | 'gone' | null
  leases: { lease: string; stopSeen: 'pause' | 'cancel' | null }[]
}
