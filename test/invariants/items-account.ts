/**
 * Operations, shards, items, ledger and registry against each other, from one snapshot: all of it holds at every instant, so
 * it may be asked in the middle of anything. An item with steps is looked at where it stands: the step that it waits for, has
 * in flight, or has its outcome of.
 *
 * Set-based and bounded by the operations asked for; what was purged is left alone.
 */
import type postgres from 'postgres'
import type { Violation } from './violation.ts'

const FOUND_MAX = 50

/** `ids`: UUIDs. */
export const checkItems = async (sql: postgres.Sql, ids: readonly string[]): Promise<Violation[]> => {
  const rows = await sql<Violation[]>`
    with o as materialized (select * from operations where id = any(${ids as string[]}::uuid[])),
    s as materialized (
      select s.* from o join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id),
    entry as materialized (
      select l.tenant_id, l.operation_id, l.ord, l.seq, l.state, l.failure_class, l.step, l.effect_key, l.source, l.worker_id,
        l.reason_code,
        lag(l.state) over (partition by l.operation_id, l.ord, l.state is null order by l.seq) as before,
        l.state is not null
          and l.seq = max(l.seq) over (partition by l.operation_id, l.ord, l.state is null) as stands
      from o join ledger_entries l on l.tenant_id = o.tenant_id and l.operation_id = o.id),
    undone as materialized (select distinct effect_key from entry where reason_code = 'COMPENSATED'),
    holding as materialized (
      select c.operation_id, c.ord, count(*) as n
      from o join reconciliation_cases c on c.tenant_id = o.tenant_id and c.operation_id = o.id
      where c.closed_at is null and c.cause in ('send_outcome_unknown', 'worker_lost', 'in_doubt_elsewhere')
      group by c.operation_id, c.ord),
    intent as materialized (
      select e.tenant_id, e.operation_id, e.ord, min(e.step) as step, count(*) as n
      from s join effects e on e.tenant_id = s.tenant_id and e.operation_id = s.operation_id and e.shard = s.shard
      where e.state = 'intent' group by e.tenant_id, e.operation_id, e.ord),
    item as materialized (
      select i.operation_id, i.ord, i.effect_key, s.shard, s.steps, at.step, i.ord < s.cursor as below, l.state,
        l.failure_class, r.ord is not null as retry, r.prior_state, r.prior_class, e.state as effect,
        e.operation_id = i.operation_id and e.ord = i.ord as own, e.item_state, coalesce(n.n, 0) as intents,
        coalesce(h.n, 0) as holding,
        exists (select from undone u where u.effect_key = e.effect_key) as undone
      from s
        join o on o.id = s.operation_id and o.items_purged_at is null
        join operation_items i on i.tenant_id = s.tenant_id and i.operation_id = s.operation_id and i.ord >= s.from_ord
          and i.ord < s.to_ord
        left join entry l on l.operation_id = i.operation_id and l.ord = i.ord and l.stands
        left join item_retries r on r.tenant_id = i.tenant_id and r.operation_id = i.operation_id and r.ord = i.ord
        left join intent n on n.operation_id = i.operation_id and n.ord = i.ord
        left join holding h on h.operation_id = i.operation_id and h.ord = i.ord
        cross join lateral (select coalesce(r.step, n.step, l.step, s.steps[1], '') as step) at
        left join effects e on e.tenant_id = i.tenant_id and e.effect_key = step_effect_key(i.effect_key, at.step)),
    summed as (
      select operation_id, shard, count(*) as items, count(*) filter (where state = 'applied') as applied,
        count(*) filter (where state = 'skipped') as skipped, count(*) filter (where state = 'failed') as failed,
        count(*) filter (where state = 'uncertain') as uncertain,
        count(*) filter (where failure_class = 'transient') as transient,
        count(*) filter (where failure_class = 'validation_rejected') as rejected,
        count(*) filter (where failure_class = 'conflict') as conflict,
        count(*) filter (where failure_class = 'policy_denied') as denied,
        count(*) filter (where failure_class = 'bug_suspected') as bug,
        sum(intents)::bigint as in_flight, count(*) filter (where retry) as waiting
      from item group by operation_id, shard)
    -- I2
    select 'I2' as invariant, format('%s/%s', s.operation_id, s.shard) as subject, format('its counters %s are not its rows %s',
      row(s.applied, s.skipped, s.failed, s.uncertain, s.failed_transient, s.failed_validation_rejected, s.failed_conflict,
        s.failed_policy_denied, s.failed_bug_suspected, s.in_flight, s.waiting),
      row(t.applied, t.skipped, t.failed, t.uncertain, t.transient, t.rejected, t.conflict, t.denied, t.bug, t.in_flight,
        t.waiting)) as says
    from s join summed t using (operation_id, shard)
    where row(s.applied, s.skipped, s.failed, s.uncertain, s.failed_transient, s.failed_validation_rejected, s.failed_conflict,
        s.failed_policy_denied, s.failed_bug_suspected, s.in_flight::bigint, s.waiting::bigint)
      is distinct from row(t.applied, t.skipped, t.failed, t.uncertain, t.transient, t.rejected, t.conflict, t.denied, t.bug,
        t.in_flight, t.waiting)
    union all
    select 'I2', format('%s/%s', operation_id, ord), format('is %s after it was %s', state, before) from entry
    where state is not null and before in ('applied', 'skipped')
    -- I7: each item in one place, each range in one shard, each doubt in one case
    union all
    select 'I7', format('%s/%s', operation_id, ord), format('is in no place or in two: %s', to_jsonb(item) - 'effect_key')
    from item
    where (below and state is null and not retry and intents = 0) or intents > 1 or (retry and intents > 0)
      or (not below and (state is not null or retry or intents > 0))
    union all
    select 'I7', o.id::text, format('has %s items of %s, in shards for %s', coalesce(t.items, 0), o.items_total, n.width)
    from o
      join (select operation_id, sum(to_ord - from_ord) as width from s group by operation_id) n on n.operation_id = o.id
      left join (select operation_id, sum(items) as items from summed group by operation_id) t on t.operation_id = o.id
    where n.width <> o.items_total
      or (t.items is distinct from o.items_total and o.items_purged_at is null)
    union all
    select 'I7', format('%s/%s', a.operation_id, a.shard), format('overlaps the range of shard %s', b.shard)
    from s a join s b on b.operation_id = a.operation_id and b.shard > a.shard and b.from_ord < a.to_ord
      and a.from_ord < b.to_ord
    union all
    select 'I7', format('%s/%s', operation_id, ord), format('is %s, and %s cases hold it', coalesce(state, 'unprocessed'),
      holding)
    from item where holding <> case state when 'uncertain' then 1 else 0 end
    -- I3, as far as the tables alone can tell
    union all
    select 'I3', format('%s/%s', operation_id, ord), format('the registry and the ledger disagree: %s', to_jsonb(item)) from item
    where not undone and (
      (state in ('applied', 'skipped') and effect is distinct from 'applied')
      or (own and effect = 'applied' and state is distinct from 'applied' and state is distinct from 'skipped'
        and step_after(steps, step) is null)
      or (own and effect = 'uncertain' and state is distinct from 'uncertain')
      or (own and effect = 'intent' and item_state is distinct from state)
      or (retry and prior_state is distinct from state)
      or (retry and state = 'failed' and prior_class is distinct from failure_class)
      or (state in ('applied', 'skipped') and step_after(steps, step) is not null))
    union all
    select 'I3', format('%s/%s', i.operation_id, i.ord), format('stands at %s, and the step %s before it is %s', i.step, b.step,
      coalesce(e.state, 'unknown'))
    from item i join o on o.id = i.operation_id
      cross join lateral unnest(i.steps[:array_position(i.steps, i.step) - 1]) as b (step)
      left join effects e on e.tenant_id = o.tenant_id and e.effect_key = step_effect_key(i.effect_key, b.step)
    where i.below and not i.undone and e.state is distinct from 'applied'
    union all
    select 'I3', effect_key, format('is applied by %s items', count(*)) from item
    where state = 'applied' and not undone group by effect_key having count(*) > 1
    -- I4: what rows tell of epochs without a look before
    union all
    select 'I4', e.effect_key, format('was claimed under epoch %s, and its shard is at %s', e.lease_epoch, s.lease_epoch)
    from item i join s on s.operation_id = i.operation_id and s.shard = i.shard
      join effects e on e.tenant_id = s.tenant_id and e.effect_key = step_effect_key(i.effect_key, i.step)
        and e.operation_id = i.operation_id
    where e.lease_epoch > s.lease_epoch
    union all
    select 'I4', format('%s/%s', operation_id, shard), format('is %s with the owner %s', state, coalesce(lease_owner::text, 'none'))
    from s where (state = 'leased') <> (lease_owner is not null)
    union all
    select 'I4', format('%s/%s', operation_id, ord), format('an entry of a %s that nobody signed', source) from entry
    where source in ('worker', 'late_worker') and worker_id is null
    -- I6
    union all
    select 'I6', e.effect_key, format('was claimed %s after the cancel of %s', e.claimed_at - o.cancel_requested_at, o.id)
    from item i join o on o.id = i.operation_id
      join effects e on e.tenant_id = o.tenant_id and e.effect_key = step_effect_key(i.effect_key, i.step)
        and e.operation_id = o.id
    where e.claimed_at > o.cancel_requested_at
    -- what is final has ended
    union all
    select 'I7', o.id::text, format('is %s, and shard %s is %s', o.status, s.shard, to_jsonb(s)) from o
      join s on s.tenant_id = o.tenant_id and s.operation_id = o.id
    where o.completed_at is not null and (s.in_flight > 0 or s.uncertain > 0 or s.state <> 'done'
      or (s.waiting > 0 and o.cancel_requested_at is null) or (s.cursor < s.to_ord and o.status <> 'cancelled'))
    limit ${FOUND_MAX}`
  return [...rows]
}
