import type { OperationStatus, SettleFacts } from '../domain/operation.ts'
import type { Connection } from './connection.ts'

export interface SettleRow extends SettleFacts {
  version: string
  type: string
  /** A cancel stopped items between two steps, and no entry says so yet. */
  unexplainedSteps: boolean
}

/** The facts that decide a status, from one snapshot. Null: no such operation. */
export const readSettleFacts = async (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
): Promise<SettleRow | null> => {
  const [row] = await sql<{
    version: string
    type: string
    status: OperationStatus
    cancelled: boolean
    paused: boolean
    started: boolean
    items_total: string
    open: boolean
    in_flight: number
    waiting: number
    applied: number
    skipped: number
    failed: number
    uncertain: number
    unexplained_steps: boolean
  }>`
    select o.version, o.type, o.status, o.cancel_requested_at is not null as cancelled,
      o.pause_requested_at is not null as paused, o.started_at is not null as started, o.items_total, n.*,
      case when n.stepped and n.waiting > 0 and o.cancel_requested_at is not null and o.completed_at is null and not n.open
        then exists (
        select from item_retries r join operation_shards s on s.tenant_id = r.tenant_id and s.operation_id = r.operation_id
          and s.shard = r.shard and s.stop_requested = 'cancel'
        where r.tenant_id = o.tenant_id and r.operation_id = o.id and r.step <> s.steps[1]
          and (r.prior_state is null or r.reason = 'next_step')) else false end as unexplained_steps
    from operations o, lateral (
      select coalesce(bool_or(s.state <> 'done'), false) as open, coalesce(sum(s.in_flight), 0)::float8 as in_flight,
        coalesce(sum(s.waiting), 0)::float8 as waiting, coalesce(sum(s.applied), 0)::float8 as applied,
        coalesce(sum(s.skipped), 0)::float8 as skipped, coalesce(sum(s.failed), 0)::float8 as failed,
        coalesce(sum(s.uncertain), 0)::float8 as uncertain, coalesce(bool_or(s.steps <> '{}'), false) as stepped
      from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id) n
    where o.tenant_id = ${tenantId} and o.id = ${operationId}::uuid`
  if (!row) return null
  return {
    version: row.version,
    type: row.type,
    unexplainedSteps: row.unexplained_steps,
    status: row.status,
    stop: row.cancelled ? 'cancel' : row.paused ? 'pause' : null,
    started: row.started,
    shardsOpen: row.open,
    inFlight: row.in_flight,
    waiting: row.waiting,
    counts: {
      total: Number(row.items_total),
      applied: row.applied,
      skipped: row.skipped,
      failed: row.failed,
      uncertain: row.uncertain,
    },
  }
}

/**
 * Compare-and-set on the version that the facts were read with; the event is written with it, and the webhook that tells of it
 * (webhook-outbox.ts). Null: somebody was first.
 * `awaited` is read from the row that this writes: other operations wait for it, or did.
 */
export const writeStatus = async (
  { sql }: Connection,
  change: {
    tenantId: number
    operationId: string
    seenVersion: string
    status: OperationStatus
    final: boolean
    summary: string | null
  },
): Promise<{ awaited: boolean; tookMs: number; traceparent: string | null } | null> => {
  const [row] = await sql<{ awaited: boolean; tookMs: number; traceparent: string | null }>`
    with o as (
      update operations set
        status = ${change.status}, version = version + 1,
        completed_at = case when ${change.final} then clock_timestamp() end,
        started_at = case when ${change.status} in ('pending', 'pause_requested', 'paused', 'cancelled') then started_at
          else coalesce(started_at, clock_timestamp()) end,
        result_summary = coalesce(${change.summary}::text::jsonb, result_summary)
      where tenant_id = ${change.tenantId} and id = ${change.operationId}::uuid and version = ${change.seenVersion}::bigint
      returning tenant_id, id, version, status, items_total, created_at, completed_at, callback_url, awaited, traceparent),
    webhook as (
      insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, url, facts, state,
        next_attempt_at)
      select o.tenant_id, o.id, o.version,
        case when ${change.final} then 'operation.settled' else 'operation.reconciliation_required' end, o.status,
        o.callback_url, jsonb_build_object('timestamp', clock_timestamp(), 'version', o.version + s.version,
          'counts', jsonb_build_object('total', o.items_total, 'applied', s.applied, 'skipped', s.skipped,
            'failed', s.failed, 'uncertain', s.uncertain),
          'completed_at', o.completed_at),
        case when gone.yes then 'disabled' else 'pending' end, case when not gone.yes then clock_timestamp() end
      from o,
        lateral (
          select coalesce(sum(version), 0) as version, coalesce(sum(applied), 0) as applied,
            coalesce(sum(skipped), 0) as skipped, coalesce(sum(failed), 0) as failed, coalesce(sum(uncertain), 0) as uncertain
          from operation_shards where tenant_id = o.tenant_id and operation_id = o.id) s,
        lateral (
          select exists (
            select from webhook_deliveries d
            where d.tenant_id = o.tenant_id and d.operation_id = o.id and d.state = 'disabled') as yes) gone
      where o.callback_url is not null and (${change.final} or o.status = 'reconciliation_required')),
    event as (
      insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
      select tenant_id, id, version, ${change.final ? 'settled' : 'status_changed'}, status, 'system:settle' from o)
    select awaited, traceparent,
      (extract(epoch from coalesce(completed_at, clock_timestamp()) - created_at) * 1000)::float8 as "tookMs"
    from o`
  return row ?? null
}

/** Operations that are open although every shard of theirs is done: somebody died between finish and settle. */
export const readUnsettled = async (
  { sql }: Connection,
  limit: number,
): Promise<{ tenantId: number; operationId: string }[]> => {
  const rows = await sql<{ tenant_id: number; id: string }>`
    select o.tenant_id, o.id from operations o, lateral (
      -- an aggregate is looked up per open operation; as EXISTS it was a join that reads the shards of all history
      select coalesce(bool_and(s.state = 'done'), true) as done, coalesce(sum(s.uncertain), 0) as uncertain
      from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id) n
    where o.completed_at is null and o.status not in ('draft', 'awaiting_approval', 'paused')
      and n.done and not (o.status = 'reconciliation_required' and n.uncertain > 0)
      and not (o.status = 'pending' and o.after_open)
    order by o.tenant_id, o.id limit ${limit}`
  return rows.map((row) => ({ tenantId: row.tenant_id, operationId: row.id }))
}

/** The first claim of a shard makes the operation `running`. */
export const markStarted = async ({ sql }: Connection, tenantId: number, operationId: string): Promise<void> => {
  await sql`
    with o as (
      update operations set status = 'running', started_at = coalesce(started_at, clock_timestamp()), version = version + 1
      where tenant_id = ${tenantId} and id = ${operationId}::uuid and status = 'pending'
      returning tenant_id, id, version, status)
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
    select tenant_id, id, version, 'started', status, 'system:worker' from o`
}
