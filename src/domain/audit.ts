/**
 * The audit: who did what, when and why. One entry for each write that came from outside (the API, the command line on the
 * database itself), written in the transaction of what it tells of: so there is none for what was refused or rolled back, and
 * none for a repeat that an idempotency key has answered. What the service does by itself stands in the events of the
 * operation; what a worker did, in the ledger, under the id that `worker.register` ties to its key.
 *
 * Codes are stable: an action is never renamed, new ones may be added.
 */
export const AUDIT_ACTIONS = [
  'operation.submit',
  'operation.items_add',
  'operation.start',
  'operation.cancel',
  'operation.pause',
  'operation.resume',
  'operation.approve',
  'operation.reject',
  'operation.replay_preflight',
  'operation.replay',
  'operation.compensation_preflight',
  'operation.compensate',
  'bulk_action.create',
  'bulk_action.start',
  'bulk_action.abort',
  'case.lookup',
  'case.resolve',
  'dead_letter.discard',
  'incident.resolve',
  'webhook.redeliver',
  'operation_type.pause',
  'operation_type.resume',
  'callback.receive',
  'worker.register',
  'api_key.create',
  'api_key.rotate',
  'api_key.revoke',
  'tenant.create',
  'database.restored',
] as const
export type AuditAction = (typeof AUDIT_ACTIONS)[number]

export type AuditSubjectKind =
  | 'operation'
  | 'bulk_action'
  | 'case'
  | 'dead_letter'
  | 'incident'
  | 'webhook_delivery'
  | 'operation_type'
  | 'callback'
  | 'worker'
  | 'api_key'
  | 'tenant'
  | 'database'

/**
 * By what the actor was known. `none`: the service runs without keys, and whoever reaches it is who they say they are;
 * `signature`: a provider signed its event; `bulk_action`: a worker acts for whoever asked for it; `command_line`: somebody who
 * has the database itself.
 */
export const AUDIT_AUTHS = ['key', 'jwt', 'none', 'signature', 'bulk_action', 'command_line'] as const
export type AuditAuth = (typeof AUDIT_AUTHS)[number]

/** Who acts, and how they came in. */
export interface AuditAuthor {
  actor: string
  auth: AuditAuth
  /** By which scope it was allowed; null: none was asked for. */
  scope: string | null
  requestId: string | null
  traceId: string | null
}

export interface AuditEntry extends AuditAuthor {
  action: AuditAction
  subjectKind: AuditSubjectKind
  /** As clients know it: `op_…`, a type's name. */
  subjectId: string
  reason: string | null
  /** A few small facts; never inputs, keys of items or secrets. */
  details: Readonly<Record<string, string | number | boolean>>
}

/** What is written with an entry of the audit; none: the service does it by itself. */
export interface Audited {
  audit?: AuditEntry | null
}

/** The 32 hex digits of the trace that a W3C `traceparent` belongs to. */
export const traceIdOf = (traceparent: string | null): string | null => traceparent?.split('-')[1] ?? null

/** Younger entries cannot be deleted: the database refuses it too. */
export const AUDIT_DAYS_MIN = 30
export const AUDIT_DAYS_DEFAULT = 365
