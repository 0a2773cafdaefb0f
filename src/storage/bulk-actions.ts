/** Bulk actions as they are made, read, started and aborted. How their targets are worked on stands in bulk-targets.ts. */

import { and, desc, eq, inArray, type SQL, sql as text } from 'drizzle-orm'
import type { Audited } from '../domain/audit.ts'
import {
  BULK_TARGETS_MAX,
  type BulkActionKind,
  type BulkFilter,
  type BulkScope,
  type BulkStatus,
  type BulkTargetState,
  candidateStatuses,
  DRY_RUN_HOURS,
} from '../domain/bulk-action.ts'
import { texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import { operationConditions } from './operations.ts'
import { bulkActions, bulkActionTargets, operations } from './schema.ts'

export interface NewBulkAction extends Audited {
  tenantId: number
  id: string
  action: BulkActionKind
  filter: BulkFilter
  /** Of a replay. */
  scope: BulkScope | null
  reason: string
  dryRun: boolean
  ratePerSecond: number
  requestedBy: string
  requesterScopes: readonly string[]
  idempotencyKey: string | null
  requestHash: string
}

/**
 * Stores a bulk action and freezes its targets, oldest operation first, in one statement: both from one snapshot, or neither.
 * `targets` is what the filter matches, at most BULK_TARGETS_MAX + 1; `stored` is false when that is too many, or the
 * idempotency key is taken.
 */
export const insertBulkAction = async (
  { db }: Connection,
  action: NewBulkAction,
): Promise<{ targets: number; stored: boolean }> => {
  const candidates = candidateStatuses(action.action)
  const [row] = await db.execute<{ targets: number; stored: boolean }>(text`
    with candidate as materialized (
      select id, row_number() over (order by created_at, id) - 1 as ord from (
        select ${operations.id} as id, ${operations.createdAt} as created_at from ${operations}
        where ${operationConditions(action.tenantId, action.filter)}
          and ${operations.status} = any(${texts(candidates)}::text[])
          and (${action.action !== 'cancel'}::boolean or ${operations.cancelRequestedAt} is null)
        order by created_at, id limit ${BULK_TARGETS_MAX + 1}) matching),
    n as (select count(*)::int as n from candidate),
    b as (
      insert into bulk_actions (tenant_id, id, action, status, filter, scope, reason, rate_per_second, requested_by,
        requester_scopes, idempotency_key, request_hash, targets, expires_at, started_at, started_by, completed_at)
      select ${action.tenantId}::int, ${action.id}::uuid, ${action.action}::text,
        case when d.dry then 'dry_run' when n.n = 0 then 'finished' else 'running' end,
        ${JSON.stringify(action.filter)}::text::jsonb,
        ${action.scope && JSON.stringify(action.scope)}::text::jsonb, ${action.reason}::text,
        ${action.ratePerSecond}::int, ${action.requestedBy}::text, ${JSON.stringify(action.requesterScopes)}::text::jsonb,
        ${action.idempotencyKey}::text, ${action.requestHash}::text, n.n,
        case when d.dry then clock_timestamp() + ${DRY_RUN_HOURS}::int * interval '1 hour' end,
        case when not d.dry then clock_timestamp() end, case when not d.dry then ${action.requestedBy}::text end,
        case when not d.dry and n.n = 0 then clock_timestamp() end
      from n, (select ${action.dryRun}::boolean as dry) d
      where n.n <= ${BULK_TARGETS_MAX}
      on conflict (tenant_id, idempotency_key) where idempotency_key is not null do nothing
      returning tenant_id, id),
    target as (
      insert into bulk_action_targets (tenant_id, bulk_id, ord, operation_id)
      select b.tenant_id, b.id, c.ord, c.id from b, candidate c),
    audit as (
      insert into audit_entries
      select a.* from b, audit_row(b.tenant_id, ${auditJson(action.audit)}::text::jsonb) a)
    select n.n as targets, exists (select from b) as stored from n`)
  return row ?? { targets: 0, stored: false }
}

export interface BulkActionRow extends Record<string, unknown> {
  id: string
  action: BulkActionKind
  status: BulkStatus
  filter: BulkFilter
  scope: BulkScope | null
  reason: string
  ratePerSecond: number
  requestedBy: string
  targets: number
  done: number
  refused: number
  failed: number
  skipped: number
  createdAt: string
  expiresAt: string | null
  expired: boolean
  startedAt: string | null
  startedBy: string | null
  startReason: string | null
  abortedAt: string | null
  abortedBy: string | null
  abortReason: string | null
  completedAt: string | null
}

const columns = text.raw(`id, action, status, filter, scope, reason, rate_per_second as "ratePerSecond",
  requested_by as "requestedBy", targets, done, refused, failed, skipped, created_at as "createdAt",
  expires_at as "expiresAt", coalesce(expires_at <= now(), false) as expired, started_at as "startedAt",
  started_by as "startedBy", start_reason as "startReason", aborted_at as "abortedAt", aborted_by as "abortedBy",
  abort_reason as "abortReason", completed_at as "completedAt"`)

export const findBulkAction = async (
  { db }: Connection,
  tenantId: number,
  id: string,
): Promise<BulkActionRow | null> => {
  const [row] = await db.execute<BulkActionRow>(text`
    select ${columns} from bulk_actions where tenant_id = ${tenantId} and id = ${id}::uuid`)
  return row ?? null
}

/** The bulk action that owns an idempotency key. */
export const findBulkActionByKey = async (
  { db }: Connection,
  tenantId: number,
  idempotencyKey: string,
): Promise<(BulkActionRow & { requestHash: string }) | null> => {
  const [row] = await db.execute<BulkActionRow & { requestHash: string }>(text`
    select ${columns}, request_hash as "requestHash" from bulk_actions
    where tenant_id = ${tenantId} and idempotency_key = ${idempotencyKey}`)
  return row ?? null
}

/** Newest first, behind `position`. */
export const listBulkActionRows = async (
  { db }: Connection,
  tenantId: number,
  filters: { action: readonly string[]; status: readonly string[] },
  position: { createdAt: string; id: string } | null,
  limit: number,
): Promise<BulkActionRow[]> => {
  const conditions: (SQL | undefined)[] = [
    eq(bulkActions.tenantId, tenantId),
    filters.action.length > 0 ? inArray(bulkActions.action, [...filters.action]) : undefined,
    filters.status.length > 0 ? inArray(bulkActions.status, [...filters.status]) : undefined,
    position === null
      ? undefined
      : text`(${bulkActions.createdAt}, ${bulkActions.id}) < (${position.createdAt}::timestamptz, ${position.id}::uuid)`,
  ]
  return db.execute<BulkActionRow>(text`
    select ${columns} from ${bulkActions} where ${and(...conditions)}
    order by ${desc(bulkActions.createdAt)}, ${desc(bulkActions.id)} limit ${limit}`)
}

export interface BulkTargetRow extends Record<string, unknown> {
  ord: number
  operationId: string
  state: BulkTargetState
  code: string | null
  detail: string | null
  blockedBy: string[]
  resultOperationId: string | null
  at: string | null
}

/** In the order in which they are worked on, behind `afterOrd`. */
export const listBulkTargetRows = async (
  { db }: Connection,
  tenantId: number,
  bulkId: string,
  states: readonly string[],
  afterOrd: number | null,
  limit: number,
): Promise<BulkTargetRow[]> => {
  const conditions: (SQL | undefined)[] = [
    eq(bulkActionTargets.tenantId, tenantId),
    eq(bulkActionTargets.bulkId, bulkId),
    states.length > 0 ? inArray(bulkActionTargets.state, [...states]) : undefined,
    afterOrd === null ? undefined : text`${bulkActionTargets.ord} > ${afterOrd}`,
  ]
  return db.execute<BulkTargetRow>(text`
    select ord, operation_id as "operationId", state, code, detail, blocked_by as "blockedBy",
      result_operation_id as "resultOperationId", at
    from ${bulkActionTargets} where ${and(...conditions)} order by ord limit ${limit}`)
}

export interface BulkDecision extends Audited {
  tenantId: number
  id: string
  actor: string
  reason: string | null
}

/** Runs the frozen set of a dry run. False: it is none (any more), or has expired. */
export const startBulkAction = async ({ sql }: Connection, decision: BulkDecision): Promise<boolean> => {
  const rows = await sql`
    with b as (
      update bulk_actions set
        status = case targets when 0 then 'finished' else 'running' end, expires_at = null, started_at = clock_timestamp(),
        started_by = ${decision.actor}, start_reason = ${decision.reason}, next_at = clock_timestamp(),
        completed_at = case targets when 0 then clock_timestamp() end
      where tenant_id = ${decision.tenantId} and id = ${decision.id}::uuid and status = 'dry_run' and expires_at > now()
      returning tenant_id),
    audit as (
      insert into audit_entries select a.* from b, audit_row(b.tenant_id, ${auditJson(decision.audit)}::text::jsonb) a)
    select 1 from b`
  return rows.length > 0
}

/**
 * Aborts: from this commit on no target is begun. Those that nobody has begun are skipped; one that a worker has in hand keeps
 * its place and gets the outcome that it comes to. False: it is over.
 */
export const abortBulkAction = (database: Database, decision: BulkDecision): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from bulk_actions where tenant_id = ${decision.tenantId} and id = ${decision.id}::uuid for no key update`,
    work: sql`
      with b as materialized (
        select tenant_id, id from bulk_actions
        where tenant_id = ${decision.tenantId} and id = ${decision.id}::uuid and status in ('dry_run', 'running')),
      skip as (
        update bulk_action_targets t set state = 'skipped', code = 'aborted', at = clock_timestamp()
        from b where t.tenant_id = b.tenant_id and t.bulk_id = b.id and t.state = 'pending' and t.begun_at is null
        returning 1),
      n as (select count(*)::int as n from skip),
      audit as (
        insert into audit_entries select a.* from b, audit_row(b.tenant_id, ${auditJson(decision.audit)}::text::jsonb) a)
      update bulk_actions a set
        status = 'aborted', expires_at = null, skipped = skipped + n.n, aborted_at = clock_timestamp(),
        aborted_by = ${decision.actor}, abort_reason = ${decision.reason},
        completed_at = case when done + refused + failed + skipped + n.n = targets then clock_timestamp() end
      from b, n where a.tenant_id = b.tenant_id and a.id = b.id
      returning 1`.then((rows) => rows.length > 0),
  }))
