import type { AuditAuthor } from '../domain/audit.ts'
import { AppError } from '../domain/errors.ts'
import type { Scope } from '../domain/scope.ts'

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
export const AUDIT_SCOPE: Scope = 'audit:read'

export const DEFAULT_TENANT_ID = 1

/** @throws AppError `forbidden`, which names the scope */
export const requireScope = ({ scopes }: Pick<Principal, 'scopes'>, scope: Scope): void => {
  if (!scopes.includes(scope))
    throw new AppError('forbidden', `The caller lacks the scope ${scope}`, { extra: { scope } })
}
