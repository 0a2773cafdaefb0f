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
      lease_owner as owner, lease_expires_at as "leaseExpiresAt", last_progress_at as "lastProgressAt"
    from operation_shards
    where tenant_id = ${tenantId} and operation_id = ${operationId} and shard > ${afterShard ?? -1}
    order by shard limit ${limit}`
