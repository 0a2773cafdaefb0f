/**
 * The audit as it is written, read and forgotten. An entry is written by the statement, or in the transaction, of what it
 * tells of: `audit_row` (drizzle/0016_audit.sql) makes a row of the JSON that `auditJson` makes of it, and none of null, so a
 * write that is nobody's from outside says so with null.
 *
 * The table refuses UPDATE, TRUNCATE and DELETE; a retention deletes in a transaction that says so, and the table bounds it:
 * so many at once, and none that is young.
 */
import { and, desc, eq, gt, inArray, lt, sql as text } from 'drizzle-orm'
import type { AuditEntry } from '../domain/audit.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'
import { auditEntries } from './schema.ts'

/** For `audit_row`. What PostgreSQL stores in no text (U+0000, half of a pair that was cut) becomes U+FFFD: it undoes no write. */
export const auditJson = (entry: AuditEntry | null | undefined): string | null =>
  entry
    ? JSON.stringify(
        {
          actor: entry.actor,
          auth: entry.auth,
          scope: entry.scope,
          action: entry.action,
          subject_kind: entry.subjectKind,
          subject_id: entry.subjectId,
          reason: entry.reason,
          request_id: entry.requestId,
          trace_id: entry.traceId,
          details: entry.details,
        },
        (_name, value: unknown) => (typeof value === 'string' ? value.replace(/\0|\p{Surrogate}/gu, '\ufffd') : value),
      )
    : null

/** A statement of its own, for a transaction of several. */
export const recordAudit = async (sql: Sql, tenantId: number, entry: AuditEntry | null | undefined): Promise<void> => {
  const json = auditJson(entry)
  if (json === null) return
  await sql`insert into audit_entries select a.* from audit_row(${tenantId}::int, ${json}::text::jsonb) a`
}

export interface AuditRow extends Record<string, unknown> {
  at: string
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

export interface AuditFilters {
  actor: string | null
  /** Any of them; none: all. */
  action: readonly string[]
  /** The id of a subject, as clients know it. */
  subject: string | null
  createdAfter: string | null
  createdBefore: string | null
}

/** Newest first, behind `position`. */
export const listAuditRows = (
  { db }: Connection,
  tenantId: number,
  filters: AuditFilters,
  position: AuditPosition | null,
  limit: number,
): Promise<AuditRow[]> => {
  const e = auditEntries
  return db
    .select({
      at: e.at,
      seq: e.seq,
      actor: e.actor,
      auth: e.auth,
      scope: e.scope,
      action: e.action,
      subjectKind: e.subjectKind,
      subjectId: e.subjectId,
      reason: e.reason,
      requestId: e.requestId,
      traceId: e.traceId,
      details: e.details,
    })
    .from(e)
    .where(
      and(
        eq(e.tenantId, tenantId),
        filters.actor === null ? undefined : eq(e.actor, filters.actor),
        filters.action.length > 0 ? inArray(e.action, [...filters.action]) : undefined,
        // the second half lets the planner use the index, which leaves out submissions
        filters.action.length > 0 && !filters.action.includes('operation.submit')
          ? text`${e.action} <> 'operation.submit'`
          : undefined,
        filters.subject === null ? undefined : eq(e.subjectId, filters.subject),
        filters.createdAfter === null ? undefined : gt(e.at, filters.createdAfter),
        filters.createdBefore === null ? undefined : lt(e.at, filters.createdBefore),
        position === null
          ? undefined
          : text`(${e.at}, ${e.seq}) < (${position.at}::timestamptz, ${position.seq}::bigint)`,
      ),
    )
    .orderBy(desc(e.at), desc(e.seq))
    .limit(limit)
}

export interface AuditPosition {
  at: string
  seq: number
}

/** Deleted by one transaction; the table refuses more than ten thousand. */
export const AUDIT_PURGE_MAX = 5_000

/** pg_advisory_xact_lock key: "op audit" in hex. Of the workers one deletes at a time: to lock rows would take a right to change them. */
const PURGE_LOCK = '8029953738555025780'

/** Deletes entries older than `days`, oldest first, `limit` at most. Answers with how many; 0: another one is at it, or none is old. */
export const purgeAudit = (database: Database, days: number, limit = AUDIT_PURGE_MAX): Promise<number> =>
  database.transaction(async ({ sql }) => {
    const [turn] = await sql<{ mine: boolean }>`
      select pg_try_advisory_xact_lock(${PURGE_LOCK}::bigint) as mine, set_config('opledger.retention', 'on', true)`
    if (!turn?.mine) return 0
    const rows = await sql`
      -- a tenant at a time, as the key begins with it
      with recursive tenant (id) as (
        (select tenant_id from audit_entries order by tenant_id limit 1)
        union all
        select (select a.tenant_id from audit_entries a where a.tenant_id > t.id order by a.tenant_id limit 1)
        from tenant t where t.id is not null),
      gone as materialized (
        select a.tenant_id, a.at, a.seq from tenant t cross join lateral (
          select o.tenant_id, o.at, o.seq from audit_entries o
          where o.tenant_id = t.id and o.at < now() - ${days}::int * interval '1 day'
          order by o.at, o.seq limit ${limit}) a
        where t.id is not null limit ${limit})
      delete from audit_entries e using gone
      where e.tenant_id = gone.tenant_id and e.at = gone.at and e.seq = gone.seq
      returning 1`
    return rows.length
  })
