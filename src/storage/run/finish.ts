import type { Database } from '../database.ts'
import type { Lease } from './lease.ts'

/**
 * Gives a shard back: `done` when it is stopped, or its items are used up and none waits; else `ready`, due at once or
 * with its first retry. Refused (null) when the lease was lost or effects are still in flight: those must be explained first.
 * The worker is alive to say so, which clears the count of crashes.
 *
 * `lastWaits`: the last item of the shard is taken in hand when none of the others waits (the publish of an artifact).
 */
export const finishShard = async (
  database: Database,
  lease: Lease,
  { lastWaits }: { lastWaits: boolean } = { lastWaits: false },
): Promise<{ state: 'ready' | 'done'; dueInMs: number } | null> => {
  const [row] = await database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      for no key update`,
    work: sql<{ state: 'ready' | 'done'; due_in_ms: number }>`
      update operation_shards s set
        state = case when s.stop_requested is not null or (s.cursor >= s.to_ord and s.waiting = 0) then 'done' else 'ready' end,
        lease_owner = null, lease_expires_at = null, claims = 0, suspect_ord = null, suspect_crashes = 0,
        stop_seen_at = case when s.stop_requested is null then null else coalesce(s.stop_seen_at, clock_timestamp()) end,
        run_at = case when s.cursor < s.to_ord - (${lastWaits} and s.waiting > 0)::int then now() else coalesce((
          select min(r.run_at) from item_retries r
          where r.tenant_id = s.tenant_id and r.operation_id = s.operation_id and r.shard = s.shard), now()) end,
        version = s.version + 1
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
        and lease_epoch = ${lease.epoch} and state = 'leased' and in_flight = 0
      returning s.state, greatest(0, extract(epoch from s.run_at - now()) * 1000)::float8 as due_in_ms`,
  }))
  return row ? { state: row.state, dueInMs: row.due_in_ms } : null
}
