import type { Json } from '../domain/operation-type.ts'

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
  after: string[]
  stopIf: string[]
  idempotencyKey: string | null
  /** The body as parsed, for the RFC 8785 hash. Its depth is bounded (`MAX_JSON_DEPTH`). */
  body: Json
  traceparent: string | null
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
}

export interface PreflightRequest {
  /** Null: the default scope. */
  scope: { states: string[] | null; failureClasses: string[] | null; itemKeys: string[] | null } | null
}

export interface ReplayRequest {
  preflightId: string
  reason: string
  /** Blocking codes that the caller overrides; only signs of trouble can be. */
  force: string[]
}

export interface ApprovalRequest {
  decision: 'approve' | 'reject'
  note: string | null
}
