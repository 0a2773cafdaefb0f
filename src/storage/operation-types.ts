import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface TypePauseRow {
  name: string
  pausedAt: string | null
  pausedBy: string | null
  pausedReason: string | null
}

/** The kill switches that are on. */
export const listPausedTypes = ({ sql }: Connection): Promise<TypePauseRow[]> =>
  sql<TypePauseRow>`
    select name, paused_at as "pausedAt", paused_by as "pausedBy", paused_reason as "pausedReason"
    from operation_types where paused_at is not null`

export interface TypeStop extends Audited {
  /** Whose audit tells of it; the switch is everybody's. */
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
      insert into operation_types as t (name, version, code_version, paused_at, paused_by, paused_reason)
      values (${stop.name}, ${stop.version}, ${stop.codeVersion}, clock_timestamp(), ${stop.by}, ${stop.reason})
      on conflict (name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
        paused_reason = excluded.paused_reason
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
      update operation_types set paused_at = null, paused_by = null, paused_reason = null
      where name = ${go.name} and paused_at is not null
      returning 1)
    insert into audit_entries
    select a.* from going, audit_row(${go.tenantId}::int, ${auditJson(go.audit)}::text::jsonb) a`
}
