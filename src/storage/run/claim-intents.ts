import type { Connection } from '../connection.ts'
import type { Lease } from './lease.ts'

/**
 * Claims the window [from, to): an intent for each effect key nobody holds, a row in `item_retries` for the others, and
 * the cursor moves, all in one commit. This is the instant at which a cancel is decided (invariant D): every predicate is
 * a column of the locked shard row. Where items have steps, it is the first one that is claimed. Keys and hashes are taken from
 * `operation_items`, where they are already.
 *
 * Answers with the ords whose intent is ours, or null when the fence did not hold (lease lost, stop requested, or another
 * cursor): then nothing changed.
 */
export const claimIntents = async (
  { sql }: Connection,
  lease: Lease,
  window: { from: number; to: number; sendByMs: number },
): Promise<Set<number> | null> => {
  const rows = await sql<{ won: string }>`
    with fence as materialized (
      select tenant_id, operation_id, shard, coalesce(steps[1], '') as step, cursor as from_ord, ${window.to}::int as to_ord
      from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
        and state = 'leased' and lease_epoch = ${lease.epoch} and stop_requested is null and cursor = ${window.from}
      for no key update),
    u as materialized (
      select i.ord, step_effect_key(i.effect_key, f.step) as effect_key, i.item_key, i.input_hash
      from fence f, operation_items i
      -- bounds of a row: a plan for parameters would be made anew for every window
      where i.tenant_id = f.tenant_id and i.operation_id = f.operation_id and i.ord >= f.from_ord and i.ord < f.to_ord),
    won as (
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, step, attempt, lease_epoch, item_key,
        input_hash, send_by)
      select f.tenant_id, u.effect_key, 'intent', 1, f.operation_id, f.shard, u.ord, f.step, 1, ${lease.epoch}, u.item_key,
        u.input_hash, now() + ${window.sendByMs} * interval '1 ms'
      from fence f, u order by u.effect_key
      on conflict (tenant_id, effect_key) do nothing
      returning ord),
    lost as (
      insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, step, reason)
      select f.tenant_id, f.operation_id, u.ord, f.shard, u.effect_key, 1, f.step, 'key_known' from fence f, u
      where u.ord not in (select ord from won)
      returning ord)
    update operation_shards s set
      cursor = ${window.to}, version = s.version + 1,
      in_flight = s.in_flight + (select count(*) from won), waiting = s.waiting + (select count(*) from lost)
    from fence f
    where s.tenant_id = f.tenant_id and s.operation_id = f.operation_id and s.shard = f.shard
    returning (select coalesce(string_agg(ord::text, ','), '') from won) as won`
  const [row] = rows
  if (!row) return null
  return new Set(row.won === '' ? [] : row.won.split(',').map(Number))
}
