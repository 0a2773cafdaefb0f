import type { Audited } from '../domain/audit.ts'
import { CHECKPOINT_SCHEMA } from '../domain/checkpoint.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface WorkerPresence extends Audited {
  id: string
  host: string
  pid: number
  codeVersion: string
  /** `name@version` of each type it can run, and is given work of. */
  types: readonly string[]
  beatMs: number
  /** Whose worker it is; absent: it serves all of them. */
  tenantId?: number
}

/** A worker's id is new for each process: a process that comes back under the same host and pid owns nothing of the old one. */
export const registerWorker = async ({ sql }: Connection, worker: WorkerPresence): Promise<void> => {
  await sql`
    with w as (
      insert into workers (id, host, pid, code_version, types, beat_ms, tenant_id, checkpoint_schema)
      values (${worker.id}::uuid, ${worker.host}, ${worker.pid}, ${worker.codeVersion},
        ${JSON.stringify(worker.types)}::text::jsonb, ${worker.beatMs}, ${worker.tenantId ?? null}::int,
        ${CHECKPOINT_SCHEMA})
      -- a service that was upgraded since may hand out other types of its
      on conflict (id) do update set last_seen_at = clock_timestamp(), state = 'active', types = excluded.types,
        checkpoint_schema = excluded.checkpoint_schema
      returning tenant_id)
    insert into audit_entries select a.* from w, audit_row(w.tenant_id, ${auditJson(worker.audit)}::text::jsonb) a`
}

export const beatWorker = async (
  { sql }: Connection,
  worker: WorkerPresence,
  state: 'active' | 'draining' | 'gone',
): Promise<void> => {
  const rows = await sql`
    update workers set last_seen_at = clock_timestamp(), state = ${state} where id = ${worker.id}::uuid returning 1`
  // retention may have removed the row of a process that slept for days
  if (rows.length === 0) await registerWorker({ sql } as Connection, worker)
}

/** A worker that takes its work over HTTP was heard of. A row that retention has removed comes back with its next claim. */
export const noteRemoteWorker = async (
  { sql }: Connection,
  { id, tenantId, state }: { id: string; tenantId: number; state: 'active' | 'draining' | 'gone' | null },
): Promise<void> => {
  await sql`
    update workers set last_seen_at = clock_timestamp(), state = coalesce(${state}::text, state)
    where id = ${id}::uuid and tenant_id = ${tenantId}`
}

/** Types that the operator has switched off. */
export const readPausedTypes = async ({ sql }: Connection): Promise<Set<string>> => {
  const rows = await sql<{ name: string }>`select name from operation_types where paused_at is not null`
  return new Set(rows.map((row) => row.name))
}
