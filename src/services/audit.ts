import type { AuditAction, AuditAuthor, AuditEntry, AuditSubjectKind } from '../domain/audit.ts'
import { type AuditFilters, type AuditPosition, type AuditRow, listAuditRows } from '../storage/audit.ts'
import type { ServiceContext } from './context.ts'
import { readPage, streamPages } from './paging.ts'
import type { Principal } from './principal.ts'
import type { PageRequest } from './requests.ts'
import type { Page } from './views.ts'

export const authorOf = ({ name, origin }: Pick<Principal, 'name' | 'origin'>): AuditAuthor => ({
  actor: name,
  auth: origin?.auth ?? 'none',
  scope: origin?.scope ?? null,
  requestId: origin?.requestId ?? null,
  traceId: origin?.traceId ?? null,
})

/** Whoever has the database, and says no more. */
export const UNNAMED: AuditAuthor = {
  actor: 'unnamed',
  auth: 'command_line',
  scope: null,
  requestId: null,
  traceId: null,
}

/** The entry of what a caller is about to do. */
export const auditEntry = (
  author: AuditAuthor,
  action: AuditAction,
  [subjectKind, subjectId]: readonly [AuditSubjectKind, string],
  reason: string | null,
  details: AuditEntry['details'] = {},
): AuditEntry => ({ ...author, action, subjectKind, subjectId, reason, details })

export const listAudit = (
  { database }: Pick<ServiceContext, 'database'>,
  { tenantId }: Principal,
  filters: AuditFilters,
  { limit, position }: PageRequest<AuditPosition>,
): Promise<Page<AuditRow, AuditPosition>> =>
  database.query((connection) =>
    readPage(limit, (rows) => listAuditRows(connection, tenantId, filters, position, rows), positionOf),
  )

/** All of it, page by page; the next page is read only when the consumer asks for it. */
export const streamAudit = (
  { database }: Pick<ServiceContext, 'database'>,
  { tenantId }: Principal,
  filters: AuditFilters,
): AsyncIterable<AuditRow[]> =>
  streamPages<AuditRow, AuditPosition>(
    (position, limit) => database.query((connection) => listAuditRows(connection, tenantId, filters, position, limit)),
    positionOf,
  )

const positionOf = ({ at, seq }: AuditRow): AuditPosition => ({ at, seq })
