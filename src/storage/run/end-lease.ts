import type { Connection } from '../connection.ts'
import type { Lease } from './lease.ts'

/** A suspect's run that was counted and is over without a death; `before`: the count without it, null where that is unknown. */
export interface SuspectCharge {
  ord: number
  before: number | null
}

/**
 * Lets a lease end early, by its holder, who lives and runs nothing under it any more. The shard stays `leased`: so the next
 * holder comes by a takeover, which explains what is in flight and looks at a stop, as after a crash. It is due after `dueInMs`,
 * or earlier where the lease runs out. `claims` is the count of deaths from now on, unless progress has brought it lower.
 *
 * The counts that this takes back are named by their value, so repeating it is safe; why all of this is stands in lease.ts.
 * Of rows that somebody holds right now it says 55P03 at once, as it shares the connections of the heartbeats. False: the lease
 * is over already, and with it everything that this would have said.
 */
export const endLease = async (
  { sql }: Connection,
  lease: Lease,
  end: { dueInMs: number; claims: number; charge: SuspectCharge | null },
): Promise<boolean> => {
  const rows = await sql`
    with mine as materialized (
      select tenant_id, operation_id, shard from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
        and state = 'leased' and lease_epoch = ${lease.epoch}
      for no key update nowait)
    update operation_shards s set
      lease_expires_at = least(s.lease_expires_at, now() + ${end.dueInMs} * interval '1 ms'),
      claims = least(s.claims, ${end.claims}::int),
      suspect_crashes = case when s.suspect_ord = ${end.charge?.ord ?? null}::int
        then coalesce(${end.charge?.before ?? null}::int, greatest(0, s.suspect_crashes - 1)) else s.suspect_crashes end
    from mine m where s.tenant_id = m.tenant_id and s.operation_id = m.operation_id and s.shard = m.shard
    returning 1`
  return rows.length > 0
}
