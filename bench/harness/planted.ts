/** Rows of a service that has worked for long: finished operations with effects and ledger, and queued ones. */
import type postgres from 'postgres'

/** Finished operations of one statement: its time and its memory are bounded. */
const AT_A_TIME = 50_000

/** Of three finished operations one has 4 items and two have 3, which makes 10 ledger rows of 3 operations. */
export const plantFinished = async (sql: postgres.Sql, count: number, say: (line: string) => void): Promise<void> => {
  for (let from = 0; from < count; from += AT_A_TIME) {
    await sql.unsafe(`
      with ids as materialized (
        select g, overlay(uuid_v7_floor(now())::text placing lpad(to_hex(g), 12, '0') from 25)::uuid as id,
          case g % 3 when 0 then 4 else 3 end as items
        from generate_series(${from + 1}, ${Math.min(count, from + AT_A_TIME)}) g),
      o as (
        insert into operations (tenant_id, id, type, type_version, code_version, status, version, items_total, requested_by,
          risk, root_id, request_hash, started_at, completed_at, result_summary)
        select 1, id, 'bench-update', 1, 'c1', 'succeeded', 3, items, 'tester', 'low', id, 'hash-of-${'x'.repeat(35)}', now(),
          now(), '{}' from ids),
      s as (
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state,
          lease_epoch, lease_ms, version, applied, last_progress_at)
        select 1, id, 0, 'bench-update', 1, 0, items, items, 'done', 1, 30000, 3, items, now() from ids),
      e as (
        insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, item_state, send_by)
        select 1, 'bench-update:' || id || ':t' || ord, 'applied', 1, id, 0, ord, 1, 1, '', '', 'applied', now()
        from ids, generate_series(0, items - 1) ord)
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source,
        worker_id, code_version)
      select 1, id, ord, 't' || ord, 1, 'applied', 'bench-update:' || id || ':t' || ord, 'hash-of-${'x'.repeat(35)}',
        'worker', id, 'c1'
      from ids, generate_series(0, items - 1) ord`)
    if ((from / AT_A_TIME) % 10 === 0)
      say(`planted ${from.toLocaleString('en-US')} of ${count.toLocaleString('en-US')}`)
  }
}

/** Operations of one item that wait for a worker. */
export const plantQueued = async (sql: postgres.Sql, count: number): Promise<void> => {
  await sql.unsafe(`
    with ids as materialized (
      select g, overlay(uuid_v7_floor(now())::text placing 'f' || lpad(to_hex(g), 11, '0') from 25)::uuid as id
      from generate_series(1, ${count}) g),
    o as (
      insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, risk,
        root_id, request_hash)
      select 1, id, 'bench-update', 1, 'c1', 'pending', 1, 'tester', 'low', id, 'hash-of-${'x'.repeat(35)}' from ids),
    i as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select 1, id, 0, 't0', 'bench-update:' || id || ':t0', '{"target": 1}', 'hash-of-${'x'.repeat(35)}' from ids)
    insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor)
    select 1, id, 0, 'bench-update', 1, 0, 1, 0 from ids`)
}
