/** Incidents: all dead letters of a tenant with one fingerprint. Nothing is stored of them but their resolutions. */

import { and, eq, type SQL, sql } from 'drizzle-orm'
import type { Audited } from '../domain/audit.ts'
import type { FailureClass } from '../domain/failure.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'

export interface IncidentRow extends Record<string, unknown> {
  fingerprint: string
  type: string
  count: number
  openCount: number
  operations: number
  firstSeenAt: string
  lastSeenAt: string
  /** The newest of its dead letters. */
  sample: {
    message: string | null
    reasonCode: string | null
    itemKey: string
    operationId: string
    failureClass: FailureClass
  }
  /** The latest one. */
  resolution: { resolvedAt: string; resolvedBy: string; fixedIn: string | null; reason: string } | null
}

export interface IncidentListFilters {
  type: string | null
  fingerprint: string | null
  /** `open`, `resolved`; none or both: all. */
  status: readonly string[]
}

const isOpen = sql`exists (
  select from dead_letter_standings d
  where d.tenant_id = i.tenant_id and d.fingerprint = i.fingerprint and d.closed_as is null and d.status = 'open')`

/**
 * In the order of their first dead letter, which stands still while new ones come. The counts over all dead letters are read
 * from one index; what needs their standing is looked up for the rows of the page only.
 */
export const listIncidentRows = async (
  { db }: Connection,
  tenantId: number,
  filters: IncidentListFilters,
  position: { firstSeenAt: string; fingerprint: string } | null,
  limit: number,
): Promise<IncidentRow[]> => {
  const wanted = new Set(filters.status)
  const letters: (SQL | undefined)[] = [
    eq(sql`tenant_id`, tenantId),
    filters.type === null ? undefined : eq(sql`type`, filters.type),
    filters.fingerprint === null ? undefined : eq(sql`fingerprint`, filters.fingerprint),
  ]
  const incidents: (SQL | undefined)[] = [
    sql`true`,
    wanted.has('open') && !wanted.has('resolved') ? isOpen : undefined,
    wanted.has('resolved') && !wanted.has('open') ? sql`not ${isOpen}` : undefined,
    position === null
      ? undefined
      : sql`(i.first_seen_at, i.fingerprint) > (${position.firstSeenAt}::timestamptz, ${position.fingerprint}::text)`,
  ]
  return db.execute<IncidentRow>(sql`
    with i as materialized (
      select tenant_id, fingerprint, min(type) as type, count(*)::float8 as count,
        count(distinct operation_id)::float8 as operations, min(created_at) as first_seen_at, max(created_at) as last_seen_at
      from dead_letters where ${and(...letters)} group by tenant_id, fingerprint),
    page as materialized (
      select * from i where ${and(...incidents)} order by first_seen_at, fingerprint limit ${limit})
    select p.fingerprint, p.type, p.count, o.n as "openCount", p.operations, p.first_seen_at as "firstSeenAt",
      p.last_seen_at as "lastSeenAt", s.sample, r.resolution
    from page p
      cross join lateral (
        select count(*)::float8 as n from dead_letter_standings d
        where d.tenant_id = p.tenant_id and d.fingerprint = p.fingerprint and d.closed_as is null and d.status = 'open') o
      cross join lateral (
        select jsonb_build_object('message', message, 'reasonCode', reason_code, 'itemKey', item_key, 'operationId',
          operation_id, 'failureClass', failure_class) as sample
        from dead_letters d where d.tenant_id = p.tenant_id and d.fingerprint = p.fingerprint
        order by created_at desc, id desc limit 1) s
      left join lateral (
        -- the time as the database writes it in a column: JSON has another form
        select jsonb_build_object('resolvedAt', resolved_at::text, 'resolvedBy', resolved_by, 'fixedIn', fixed_in, 'reason',
          reason) as resolution
        from incident_resolutions r where r.tenant_id = p.tenant_id and r.fingerprint = p.fingerprint
        order by resolved_at desc limit 1) r on true
    order by p.first_seen_at, p.fingerprint`)
}

/** Dead letters closed in one transaction. */
const CLOSE_CHUNK = 10_000

/**
 * Records the resolution, then closes what is open of the incident up to that instant, in bounded steps; a crash between
 * them leaves an open incident with its resolution in the history, and resolving it again goes on. What became a dead
 * letter meanwhile stays open. False: there is no such incident.
 */
export const resolveIncident = async (
  database: Database,
  resolve: Audited & { tenantId: number; fingerprint: string; by: string; fixedIn: string | null; reason: string },
): Promise<boolean> => {
  const { tenantId, fingerprint } = resolve
  const [recorded] = await database.query(
    ({ sql }) => sql<{ resolved_at: string }>`
      with r as (
        insert into incident_resolutions (tenant_id, fingerprint, resolved_by, fixed_in, reason)
        select ${tenantId}::int, ${fingerprint}::text, ${resolve.by}::text, ${resolve.fixedIn}::text, ${resolve.reason}::text
        where exists (select from dead_letters where tenant_id = ${tenantId} and fingerprint = ${fingerprint})
        returning tenant_id, resolved_at),
      audit as (
        insert into audit_entries select a.* from r, audit_row(r.tenant_id, ${auditJson(resolve.audit)}::text::jsonb) a)
      select resolved_at from r`,
  )
  if (!recorded) return false
  for (let closed = CLOSE_CHUNK; closed === CLOSE_CHUNK; ) {
    closed = await database.transaction(async ({ sql }) => {
      const rows = await sql`
        with chunk as materialized (
          select d.tenant_id, d.id from dead_letters d
          where d.tenant_id = ${tenantId} and d.fingerprint = ${fingerprint} and d.closed_as is null
            and d.created_at <= ${recorded.resolved_at}::timestamptz
            and not exists (
              select from effects e where e.tenant_id = d.tenant_id and e.effect_key = d.effect_key
                and e.state in ('applied', 'compensated'))
          order by d.created_at, d.id limit ${CLOSE_CHUNK} for no key update of d)
        update dead_letters d set
          closed_at = clock_timestamp(), closed_by = ${resolve.by}, close_reason = ${resolve.reason}, closed_as = 'resolved'
        from chunk c where d.tenant_id = c.tenant_id and d.id = c.id
        returning 1`
      return rows.length
    })
  }
  return true
}

export interface ReplayProposal {
  operationId: string
  targets: number
  /** The first `keysMax` of them, in the order of the operation. */
  itemKeys: string[]
  failureClasses: FailureClass[]
}

/**
 * Where the items of an incident could be replayed from, oldest operation first: for each effect the run in which it died
 * last, unless it was discarded or has recovered. A later death of another cause belongs to another incident.
 */
export const listReplayProposals = (
  { sql }: Connection,
  key: { tenantId: number; fingerprint: string },
  { operationsMax, keysMax }: { operationsMax: number; keysMax: number },
): Promise<ReplayProposal[]> =>
  sql<ReplayProposal>`
    with last as (
      select d.operation_id, d.ord, d.item_key, d.failure_class, d.created_at,
        row_number() over (partition by d.operation_id order by d.ord) as n
      from dead_letter_standings d
      where d.tenant_id = ${key.tenantId} and d.fingerprint = ${key.fingerprint} and d.status in ('open', 'resolved')
        and not exists (
          select from dead_letters l
          where l.tenant_id = d.tenant_id and l.effect_key = d.effect_key and (l.created_at, l.id) > (d.created_at, d.id)))
    select operation_id as "operationId", count(*)::float8 as targets,
      coalesce(jsonb_agg(item_key order by ord) filter (where n <= ${keysMax}::int), '[]') as "itemKeys",
      jsonb_agg(distinct failure_class) as "failureClasses"
    from last group by operation_id order by min(created_at), operation_id limit ${operationsMax}`
