import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'

/** What a person or the system asks of an operation. Each is an intent, stored with the shards in one commit. */
export interface StopRequest extends Audited {
  tenantId: number
  operationId: string
  actor: string
  reason: string | null
}

/** Locks an operation and then its shards (L1), for a change that concerns all of them. */
export const lockOperation = (sql: Sql, request: Pick<StopRequest, 'tenantId' | 'operationId'>): Promise<unknown> =>
  Promise.all([
    sql`select 1 from operations where tenant_id = ${request.tenantId} and id = ${request.operationId}::uuid for no key update`,
    sql`
      select 1 from operation_shards where tenant_id = ${request.tenantId} and operation_id = ${request.operationId}::uuid
      order by shard for no key update`,
  ])

/**
 * Stores a cancel. From this commit on no intent can be claimed: the shards carry it. Shards that nobody works on are done
 * at once; the others are collected by their workers. What the operation has published before is superseded with it.
 * False: it was cancelled already, or is final.
 */
export const requestCancel = (database: Database, request: StopRequest): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, request),
    work: sql`
      with o as (
        update operations set
          cancel_requested_at = clock_timestamp(), cancel_requested_by = ${request.actor}, cancel_reason = ${request.reason},
          status = case status when 'reconciliation_required' then status else 'cancel_requested' end,
          after_open = false, version = version + 1
        where tenant_id = ${request.tenantId} and id = ${request.operationId}::uuid and cancel_requested_at is null
          and completed_at is null
        returning tenant_id, id, version, status),
      stopped as (
        update operation_shards s set
          stop_requested = 'cancel', version = s.version + 1,
          state = case s.state when 'leased' then 'leased' else 'done' end,
          stop_seen_at = case s.state when 'leased' then null else clock_timestamp() end
        from o where s.tenant_id = o.tenant_id and s.operation_id = o.id),
      withdrawn as (
        update artifacts a set superseded_at = clock_timestamp(), supersede_reason = 'cancel'
        from o where a.tenant_id = o.tenant_id and a.operation_id = o.id and a.superseded_at is null),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'cancel_requested', status, ${request.actor}, ${request.reason} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(request.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))

/** Stores a pause; the operation is `paused` once every shard has stopped at a safe boundary. False: nothing to pause. */
export const requestPause = (
  database: Database,
  request: StopRequest & { error?: { code: string; detail: string } },
): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, request),
    work: sql`
      with o as (
        update operations set
          pause_requested_at = clock_timestamp(), pause_requested_by = ${request.actor}, pause_reason = ${request.reason},
          status = 'pause_requested', version = version + 1,
          error = coalesce(${request.error ? JSON.stringify(request.error) : null}::text::jsonb, error)
        where tenant_id = ${request.tenantId} and id = ${request.operationId}::uuid and cancel_requested_at is null
          and status in ('pending', 'running')
        returning tenant_id, id, version, status),
      stopped as (
        update operation_shards s set
          stop_requested = 'pause', version = s.version + 1,
          state = case s.state when 'leased' then 'leased' else 'done' end,
          stop_seen_at = case s.state when 'leased' then null else clock_timestamp() end
        from o where s.tenant_id = o.tenant_id and s.operation_id = o.id),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'pause_requested', status, ${request.actor}, ${request.reason} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(request.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))

/**
 * Takes a pause back: shards with work left are ready again, at their cursor. Also before every shard has stopped: a shard
 * still leased runs on. Those of an operation that still waits for others stay done. False: it is not paused.
 */
export const resume = (database: Database, request: StopRequest): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, request),
    work: sql`
      with o as (
        update operations set
          pause_requested_at = null, pause_requested_by = null, pause_reason = null, error = null,
          status = case when started_at is null then 'pending' else 'running' end, version = version + 1
        where tenant_id = ${request.tenantId} and id = ${request.operationId}::uuid and cancel_requested_at is null
          and status in ('pause_requested', 'paused')
        returning tenant_id, id, version, status, run_after, after_open),
      going as (
        update operation_shards s set
          stop_requested = null, stop_seen_at = null, version = s.version + 1,
          state = case when s.state = 'leased' then 'leased' when o.after_open then 'done'
            when s.cursor < s.to_ord or s.waiting > 0 then 'ready' else 'done' end,
          run_at = greatest(now(), o.run_after)
        from o where s.tenant_id = o.tenant_id and s.operation_id = o.id),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'resumed', status, ${request.actor}, ${request.reason} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(request.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))

/** Operations whose deadline passed and which nobody has cancelled yet, over all tenants. */
export const readPassedDeadlines = async (
  { sql }: Connection,
  limit: number,
): Promise<{ tenantId: number; operationId: string }[]> => {
  const rows = await sql<{ tenant_id: number; id: string }>`
    select tenant_id, id from operations
    where completed_at is null and deadline_at <= now() and cancel_requested_at is null
    order by deadline_at limit ${limit}`
  return rows.map((row) => ({ tenantId: row.tenant_id, operationId: row.id }))
}
