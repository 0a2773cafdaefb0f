import { ints, texts } from '../array-literal.ts'
import type { Connection } from '../connection.ts'
import type { Lease } from './lease.ts'

export interface RenewedLease {
  operationId: string
  shard: number
  epoch: number
  stopRequested: 'pause' | 'cancel' | null
}

interface LeaseRow {
  operation_id: string
  shard: number
  lease_epoch: string
  stop_requested: 'pause' | 'cancel' | null
}

const parse = (row: LeaseRow): RenewedLease => ({
  operationId: row.operation_id,
  shard: row.shard,
  epoch: Number(row.lease_epoch),
  stopRequested: row.stop_requested,
})

const arrays = (leases: readonly Lease[]): { tenants: string; operations: string; shards: string; epochs: string } => ({
  tenants: ints(leases.map((lease) => lease.tenantId)),
  operations: texts(leases.map((lease) => lease.operationId)),
  shards: ints(leases.map((lease) => lease.shard)),
  epochs: ints(leases.map((lease) => lease.epoch)),
})

/**
 * Renews the leases that are still ours, each for its own length. A row that is locked by somebody is passed over, so that
 * a heartbeat never waits: what is missing from the answer has to be re-read, not taken for lost (L3).
 */
export const renewLeases = async (
  { sql }: Connection,
  workerId: string,
  leases: readonly Lease[],
): Promise<RenewedLease[]> => {
  const { tenants, operations, shards, epochs } = arrays(leases)
  const rows = await sql<LeaseRow>`
    with mine as materialized (
      select s.tenant_id, s.operation_id, s.shard
      from unnest(${tenants}::int[], ${operations}::uuid[], ${shards}::int[], ${epochs}::bigint[]) as u (t, o, s, e)
        join operation_shards s on s.tenant_id = u.t and s.operation_id = u.o and s.shard = u.s
      where s.state = 'leased' and s.lease_owner = ${workerId}::uuid and s.lease_epoch = u.e
      for no key update of s skip locked)
    update operation_shards s set lease_expires_at = now() + s.lease_ms * interval '1 ms'
    from mine m where s.tenant_id = m.tenant_id and s.operation_id = m.operation_id and s.shard = m.shard
    returning s.operation_id, s.shard, s.lease_epoch, s.stop_requested`
  return rows.map(parse)
}

/** Whether each lease still stands, and whether a stop was asked for; reads only, takes no lock. */
export const readLeases = async ({ sql }: Connection, leases: readonly Lease[]): Promise<RenewedLease[]> => {
  const { tenants, operations, shards, epochs } = arrays(leases)
  const rows = await sql<LeaseRow>`
    select s.operation_id, s.shard, s.lease_epoch, s.stop_requested
    from unnest(${tenants}::int[], ${operations}::uuid[], ${shards}::int[], ${epochs}::bigint[]) as u (t, o, s, e)
      join operation_shards s on s.tenant_id = u.t and s.operation_id = u.o and s.shard = u.s
    where s.state = 'leased' and s.lease_epoch = u.e`
  return rows.map(parse)
}

/**
 * Says that the holder has seen the stop. Called only after the holder has closed its gate in memory, so that no request
 * is sent after this instant: `cancel.acknowledged_at` is the latest of them. The stop that was seen is named: one that came
 * since is not acknowledged with it.
 */
export const acknowledgeStops = async (
  { sql }: Connection,
  stops: readonly (Lease & { stop: 'pause' | 'cancel' })[],
): Promise<void> => {
  const { tenants, operations, shards, epochs } = arrays(stops)
  await sql`
    with mine as materialized (
      select s.tenant_id, s.operation_id, s.shard
      from unnest(${tenants}::int[], ${operations}::uuid[], ${shards}::int[], ${epochs}::bigint[],
        ${texts(stops.map(({ stop }) => stop))}::text[]) as u (t, o, s, e, stop)
        join operation_shards s on s.tenant_id = u.t and s.operation_id = u.o and s.shard = u.s
      where s.state = 'leased' and s.lease_epoch = u.e and s.stop_requested = u.stop and s.stop_seen_at is null
      order by s.tenant_id, s.operation_id, s.shard
      for no key update of s)
    update operation_shards s set stop_seen_at = clock_timestamp(), version = s.version + 1
    from mine m where s.tenant_id = m.tenant_id and s.operation_id = m.operation_id and s.shard = m.shard`
}
