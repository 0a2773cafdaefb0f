import type { AuditAuthor } from '../domain/audit.ts'

/**
 * What a caller may do. `read`: every GET; `write`: submit, cancel, pause, preflight; `operate`: reconcile; `admin`: kill switches;
 * `work`: take items of remote types, unmasked, and say what became of them.
 */
export const SCOPES = ['read', 'write', 'operate', 'admin', 'work'] as const
export type Scope = (typeof SCOPES)[number]

/** Who is asking. Every use case takes one, so that no query can forget the tenant. */
export interface Principal {
  tenantId: number
  /** Recorded as `requested_by`, as the actor of events and of the audit, and as the resolver of cases. */
  name: string
  scopes: readonly Scope[]
  /** How the request came in, for the audit. */
  origin?: Omit<AuditAuthor, 'actor'>
}

/** What reading the audit takes. */
export const AUDIT_SCOPE: Scope = 'admin'

export const DEFAULT_TENANT_ID = 1
