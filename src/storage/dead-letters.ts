/** Dead letters, read through the view `dead_letter_standings`, which says where each stands now. */

import { and, asc, eq, inArray, type SQL, sql } from 'drizzle-orm'
import type { Audited } from '../domain/audit.ts'
import type { DeadLetterStatus } from '../domain/dead-letter.ts'
import type { FailureClass } from '../domain/failure.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface DeadLetterRow extends Record<string, unknown> {
  id: string
  operationId: string
  type: string
  itemKey: string
  step: string | null
  effectKey: string
  failureClass: FailureClass
  reasonCode: string | null
  message: string | null
  attempts: number
  fingerprint: string
  createdAt: string
  status: DeadLetterStatus
  closedAt: string | null
  closedBy: string | null
  closeReason: string | null
}

export interface DeadLetterListFilters {
  operationId: string | null
  type: string | null
  failureClass: readonly string[]
  fingerprint: string | null
  status: readonly string[]
}

const columns = sql.raw(`id, operation_id as "operationId", type, item_key as "itemKey", nullif(step, '') as step,
  effect_key as "effectKey", failure_class as "failureClass", reason_code as "reasonCode", message, attempts, fingerprint, created_at as "createdAt",
  status, closed_at as "closedAt", closed_by as "closedBy", close_reason as "closeReason"`)

/** Oldest first, behind `position`. */
export const listDeadLetterRows = async (
  { db }: Connection,
  tenantId: number,
  filters: DeadLetterListFilters,
  position: { createdAt: string; id: string } | null,
  limit: number,
): Promise<DeadLetterRow[]> => {
  const { status } = filters
  const conditions: (SQL | undefined)[] = [
    eq(sql`tenant_id`, tenantId),
    filters.operationId === null ? undefined : sql`operation_id = ${filters.operationId}::uuid`,
    filters.type === null ? undefined : eq(sql`type`, filters.type),
    filters.failureClass.length > 0 ? inArray(sql`failure_class`, [...filters.failureClass]) : undefined,
    filters.fingerprint === null ? undefined : eq(sql`fingerprint`, filters.fingerprint),
    status.length > 0 ? inArray(sql`status`, [...status]) : undefined,
    // implied by the status; said again because the partial index of open ones needs to hear it
    status.length === 1 && status[0] === 'open' ? sql`closed_as is null` : undefined,
    position === null ? undefined : sql`(created_at, id) > (${position.createdAt}::timestamptz, ${position.id}::uuid)`,
  ]
  return db.execute<DeadLetterRow>(sql`
    select ${columns} from dead_letter_standings where ${and(...conditions)}
    order by ${asc(sql`created_at`)}, ${asc(sql`id`)} limit ${limit}`)
}

export const findDeadLetterRow = async (
  { db }: Connection,
  tenantId: number,
  id: string,
): Promise<DeadLetterRow | null> => {
  const [row] = await db.execute<DeadLetterRow>(sql`
    select ${columns} from dead_letter_standings where tenant_id = ${tenantId} and id = ${id}::uuid`)
  return row ?? null
}

/** Closes one that is still open. Of two at once the row lock lets one through; false: it was closed, or has recovered. */
export const discardDeadLetter = async (
  { sql }: Connection,
  discard: Audited & { tenantId: number; id: string; by: string; reason: string },
): Promise<boolean> => {
  const rows = await sql`
    with letter as (
      update dead_letters d set
        closed_at = clock_timestamp(), closed_by = ${discard.by}, close_reason = ${discard.reason}, closed_as = 'discarded'
      where d.tenant_id = ${discard.tenantId} and d.id = ${discard.id}::uuid and d.closed_as is null
        and exists (select from dead_letter_standings s where s.tenant_id = d.tenant_id and s.id = d.id and s.status = 'open')
      returning d.tenant_id),
    audit as (
      insert into audit_entries
      select a.* from letter, audit_row(letter.tenant_id, ${auditJson(discard.audit)}::text::jsonb) a)
    select 1 from letter`
  return rows.length > 0
}
