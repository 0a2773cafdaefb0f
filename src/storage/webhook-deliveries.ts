/** Webhook deliveries as people see them, and the one thing that a person does to them. */

import { and, type SQL, sql } from 'drizzle-orm'
import type { AuditEntry } from '../domain/audit.ts'
import type { DeliveryState, WebhookEvent } from '../domain/webhook.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface AttemptRow {
  attempt: number
  at: string
  status: number | null
  error: string | null
  durationMs: number | null
}

export interface DeliveryRow extends Record<string, unknown> {
  id: string
  operationId: string
  event: WebhookEvent
  /** The event of the operation that it tells of. */
  eventVersion: number
  operationStatus: string
  url: string
  state: DeliveryState
  sending: boolean
  attempts: number
  nextAttemptAt: string | null
  createdAt: string
  deliveredAt: string | null
  lastStatus: number | null
  lastError: string | null
  /** The last ones, oldest first. */
  log: AttemptRow[]
}

/** Attempts shown of a delivery: each redelivery adds some, so there is no end to them. */
export const ATTEMPTS_SHOWN_MAX = 50

const read = ({ db }: Connection, conditions: SQL[], limit: number): Promise<DeliveryRow[]> =>
  db.execute<DeliveryRow>(sql`
    select d.id, d.operation_id as "operationId", d.event, d.event_version::float8 as "eventVersion",
      d.status as "operationStatus", d.url, d.state, coalesce(d.held_until > now(), false) as sending, d.attempts,
      d.next_attempt_at as "nextAttemptAt", d.created_at as "createdAt", d.delivered_at as "deliveredAt",
      d.last_status as "lastStatus", d.last_error as "lastError", l.log
    from webhook_deliveries d cross join lateral (
      -- the time as the database writes it in a column: JSON has another form
      select coalesce(jsonb_agg(jsonb_build_object('attempt', a.attempt, 'at', a.at::text, 'status', a.status,
        'error', a.error, 'durationMs', a.duration_ms) order by a.attempt), '[]') as log
      from webhook_attempts a
      where a.tenant_id = d.tenant_id and a.delivery_id = d.id and a.attempt > d.attempts - ${ATTEMPTS_SHOWN_MAX}) l
    where ${and(...conditions)} order by d.event_version limit ${limit}`)

/** In the order of the operation's events, behind `afterVersion`. */
export const listDeliveryRows = (
  connection: Connection,
  tenantId: number,
  operationId: string,
  afterVersion: number | null,
  limit: number,
): Promise<DeliveryRow[]> => {
  const mine = sql`d.tenant_id = ${tenantId} and d.operation_id = ${operationId}::uuid`
  return read(connection, [mine, sql`d.event_version > ${afterVersion ?? -1}`], limit)
}

export const findDeliveryRow = async (
  connection: Connection,
  tenantId: number,
  id: string,
): Promise<DeliveryRow | null> => {
  const [row] = await read(connection, [sql`d.tenant_id = ${tenantId} and d.id = ${id}::uuid`], 1)
  return row ?? null
}

/** Makes a delivery due now, whatever became of it, with all its tries before it again. False: it is being sent just now. */
export const redeliver = async (
  connection: Connection,
  tenantId: number,
  id: string,
  audit: AuditEntry | null = null,
): Promise<boolean> => {
  const rows = await connection.sql`
    with d as (
      update webhook_deliveries set
        state = 'pending', tries = 0, next_attempt_at = clock_timestamp(), held_until = null
      where tenant_id = ${tenantId} and id = ${id}::uuid and (held_until is null or held_until <= now())
      returning tenant_id),
    audit as (
      insert into audit_entries select a.* from d, audit_row(d.tenant_id, ${auditJson(audit)}::text::jsonb) a)
    select 1 from d`
  return rows.length > 0
}
