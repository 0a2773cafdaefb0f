import type { Checkpoint } from '../domain/checkpoint.ts'
import type { OperationStatus } from '../domain/operation.ts'
import type { Connection } from './connection.ts'

export interface CheckpointRow {
  shard: number
  fromOrd: number
  toOrd: number
  cursor: number
  state: string
  epoch: number
  owner: string | null
  leaseExpiresAt: string | null
  lastProgressAt: string | null
  typeVersion: number
  schemaVersion: number
  codeVersion: string | null
}

export const listCheckpointRows = (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
  afterShard: number | null,
  limit: number,
): Promise<CheckpointRow[]> =>
  sql<CheckpointRow>`
    select shard, from_ord as "fromOrd", to_ord as "toOrd", cursor, state, lease_epoch::float8 as epoch,
      lease_owner as owner, lease_expires_at as "leaseExpiresAt", last_progress_at as "lastProgressAt",
      type_version as "typeVersion", schema_version as "schemaVersion", code_version as "codeVersion"
    from operation_shards
    where tenant_id = ${tenantId} and operation_id = ${operationId} and shard > ${afterShard ?? -1}
    order by shard limit ${limit}`

export interface OpenCheckpoint extends Checkpoint {
  tenantId: number
  operationId: string
  status: OperationStatus
  /** Who can run it could have claimed a shard of it for so long, and nobody did. */
  isDue: boolean
}

/** Before every other one. */
export const FIRST_CHECKPOINT: Pick<OpenCheckpoint, 'tenantId' | 'operationId'> = {
  tenantId: 0,
  operationId: '00000000-0000-0000-0000-000000000000',
}

/** A page of operations that are not over, over all tenants, with what has written their checkpoints; due: for `dueForMs`. */
export const readOpenCheckpoints = (
  { sql }: Connection,
  after: Pick<OpenCheckpoint, 'tenantId' | 'operationId'>,
  limit: number,
  dueForMs: number,
): Promise<OpenCheckpoint[]> =>
  sql<OpenCheckpoint>`
    select o.tenant_id as "tenantId", o.id as "operationId", o.status, o.type, o.type_version as "typeVersion",
      coalesce(s.schema_version, 1) as "schemaVersion", coalesce(s.due, false) as "isDue"
    from (
      select tenant_id, id, status, type, type_version from operations
      where completed_at is null and (tenant_id, id) > (${after.tenantId}::int, ${after.operationId}::uuid)
      order by tenant_id, id limit ${limit}) o, lateral (
      select max(schema_version) as schema_version,
        bool_or(state = 'ready' and run_at <= t.since or state = 'leased' and lease_expires_at < t.since) as due
      from operation_shards, (select now() - ${dueForMs} * interval '1 ms' as since) t
      where tenant_id = o.tenant_id and operation_id = o.id and state <> 'done') s
    order by o.tenant_id, o.id`

/** The newest form of checkpoint that a worker knows which takes work of this tenant and has the type, as `name@version`; null: none. */
export type Runners = (tenantId: number, type: string) => number | null

/** Of workers that were seen within `seenWithinMs`. One that has just drained counts: it is being started again, as a rule. */
export const readRunners = async ({ sql }: Connection, seenWithinMs: number): Promise<Runners> => {
  const rows = await sql<{ tenantId: number | null; type: string; newest: number }>`
    select w.tenant_id as "tenantId", t.type, max(w.checkpoint_schema) as newest
    from workers w, lateral jsonb_array_elements_text(w.types) as t (type)
    where w.last_seen_at > now() - ${seenWithinMs} * interval '1 ms'
    group by w.tenant_id, t.type`
  const known = new Map(rows.map(({ tenantId, type, newest }) => [`${tenantId ?? ''} ${type}`, newest]))
  return (tenantId, type) => {
    const found = [known.get(` ${type}`), known.get(`${tenantId} ${type}`)].filter((newest) => newest !== undefined)
    return found.length === 0 ? null : Math.max(...found)
  }
}
