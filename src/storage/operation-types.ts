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

export interface TypeStop {
  name: string
  version: number
  codeVersion: string
  by: string
  reason: string | null
}

/** Again is the same: the first receipt stays. The row is made if no worker has announced the type yet. */
export const pauseType = async ({ sql }: Connection, stop: TypeStop): Promise<void> => {
  await sql`
    insert into operation_types as t (name, version, code_version, paused_at, paused_by, paused_reason)
    values (${stop.name}, ${stop.version}, ${stop.codeVersion}, clock_timestamp(), ${stop.by}, ${stop.reason})
    on conflict (name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
      paused_reason = excluded.paused_reason
    where t.paused_at is null`
}

export const resumeType = async ({ sql }: Connection, name: string): Promise<void> => {
  await sql`
    update operation_types set paused_at = null, paused_by = null, paused_reason = null
    where name = ${name} and paused_at is not null`
}
