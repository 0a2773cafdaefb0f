import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface TypePauseRow {
  name: string
  pausedAt: string | null
  pausedBy: string | null
  pausedReason: string | null
}

/** The kill switches that are on. Who has used one, and why, is told to their own tenant only. */
export const listPausedTypes = ({ sql }: Connection, tenantId: number): Promise<TypePauseRow[]> =>
  sql<TypePauseRow>`
    select name, paused_at as "pausedAt", case when paused_tenant_id = ${tenantId} then paused_by end as "pausedBy",
      case when paused_tenant_id = ${tenantId} then paused_reason end as "pausedReason"
    from operation_types where paused_at is not null`

export interface TypeStop extends Audited {
  /** Whose doing it is, and whose audit tells of it; the switch is everybody's. */
  tenantId: number
  name: string
  version: number
  codeVersion: string
  by: string
  reason: string | null
}

/** Again is the same: the first receipt stays. The row is made if no worker has announced the type yet. */
export const pauseType = async ({ sql }: Connection, stop: TypeStop): Promise<void> => {
  await sql`
    with stopped as (
      insert into operation_types as t (name, version, code_version, paused_at, paused_tenant_id, paused_by, paused_reason)
      values (${stop.name}, ${stop.version}, ${stop.codeVersion}, clock_timestamp(), ${stop.tenantId}, ${stop.by}, ${stop.reason})
      on conflict (name) do update set paused_at = excluded.paused_at, paused_tenant_id = excluded.paused_tenant_id,
        paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
      where t.paused_at is null
      returning 1)
    insert into audit_entries
    select a.* from stopped, audit_row(${stop.tenantId}::int, ${auditJson(stop.audit)}::text::jsonb) a`
}

export const resumeType = async (
  { sql }: Connection,
  go: Audited & { tenantId: number; name: string },
): Promise<void> => {
  await sql`
    with going as (
      update operation_types set paused_at = null, paused_tenant_id = null, paused_by = null, paused_reason = null
      where name = ${go.name} and paused_at is not null
      returning 1)
    insert into audit_entries
    select a.* from going, audit_row(${go.tenantId}::int, ${auditJson(go.audit)}::text::jsonb) a`
}
