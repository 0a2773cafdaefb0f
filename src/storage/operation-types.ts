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

export interface TypeStop {
  name: string
  version: number
  codeVersion: string
  tenantId: number
  by: string
  reason: string | null
}

/** Again is the same: the first receipt stays. The row is made if no worker has announced the type yet. */
export const pauseType = async ({ sql }: Connection, stop: TypeStop): Promise<void> => {
  await sql`
    insert into operation_types as t (name, version, code_version, paused_at, paused_tenant_id, paused_by, paused_reason)
    values (${stop.name}, ${stop.version}, ${stop.codeVersion}, clock_timestamp(), ${stop.tenantId}, ${stop.by}, ${stop.reason})
    on conflict (name) do update set paused_at = excluded.paused_at, paused_tenant_id = excluded.paused_tenant_id,
      paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
    where t.paused_at is null`
}

export const resumeType = async ({ sql }: Connection, name: string): Promise<void> => {
  await sql`
    update operation_types set paused_at = null, paused_tenant_id = null, paused_by = null, paused_reason = null
    where name = ${name} and paused_at is not null`
}
