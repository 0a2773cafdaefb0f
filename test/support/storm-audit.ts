import type { Database } from '../../src/storage/database.ts'

/**
 * The invariants of storage/run/lease.ts and of the effect registry, over all operations of the database, from one snapshot.
 * An item with steps is looked at where it stands: the step that it waits for, has in flight, or has its outcome of. All of
 * them hold at every instant, so a storm may look at any time; those of `final` hold where an operation is final.
 */
export const findViolations = async (database: Database): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ violation: string }>`
      with item as materialized (
        select i.operation_id, i.ord, i.effect_key, s.shard, s.steps, at.step, i.ord < s.cursor as below, l.state, l.failure_class,
          r.ord is not null as retry, r.prior_state, r.prior_class, r.reason,
          e.state as effect, e.operation_id = i.operation_id and e.ord = i.ord as own, e.item_state, e.claimed_at,
          (select count(*) from reconciliation_cases c where c.tenant_id = i.tenant_id and c.operation_id = i.operation_id
            and c.ord = i.ord and c.closed_at is null
            and c.cause in ('send_outcome_unknown', 'worker_lost', 'in_doubt_elsewhere')) as holding
        from operation_items i
          join operation_shards s on s.tenant_id = i.tenant_id and s.operation_id = i.operation_id
            and i.ord >= s.from_ord and i.ord < s.to_ord
          left join lateral (
            select state, failure_class, step from ledger_entries l
            where l.tenant_id = i.tenant_id and l.operation_id = i.operation_id and l.ord = i.ord and l.state is not null
            order by seq desc limit 1) l on true
          left join item_retries r on r.tenant_id = i.tenant_id and r.operation_id = i.operation_id and r.ord = i.ord
          left join lateral (
            select step from effects n where n.tenant_id = i.tenant_id and n.operation_id = i.operation_id and n.ord = i.ord
              and n.state = 'intent' limit 1) n on true
          cross join lateral (select coalesce(r.step, n.step, l.step, s.steps[1], '') as step) at
          left join effects e on e.tenant_id = i.tenant_id
            and e.effect_key = case at.step when '' then i.effect_key else i.effect_key || '/' || at.step end),
      summed as (
        select operation_id, shard, count(*) as items, count(*) filter (where state = 'applied') as applied,
          count(*) filter (where state = 'skipped') as skipped, count(*) filter (where state = 'failed') as failed,
          count(*) filter (where state = 'uncertain') as uncertain,
          count(*) filter (where failure_class = 'transient') as transient,
          count(*) filter (where failure_class = 'validation_rejected') as rejected,
          count(*) filter (where failure_class = 'conflict') as conflict,
          count(*) filter (where failure_class = 'policy_denied') as denied,
          count(*) filter (where failure_class = 'bug_suspected') as bug,
          count(*) filter (where effect = 'intent' and own) as in_flight, count(*) filter (where retry) as waiting
        from item group by operation_id, shard),
      final as (select * from operations where completed_at is not null)
      select format('counters of %s/%s: %s is not %s', s.operation_id, s.shard,
        row(s.applied, s.skipped, s.failed, s.uncertain, s.failed_transient, s.failed_validation_rejected, s.failed_conflict,
          s.failed_policy_denied, s.failed_bug_suspected, s.in_flight, s.waiting),
        row(t.applied, t.skipped, t.failed, t.uncertain, t.transient, t.rejected, t.conflict, t.denied, t.bug, t.in_flight,
          t.waiting)) as violation
      from operation_shards s join summed t using (operation_id, shard)
      where row(s.applied, s.skipped, s.failed, s.uncertain, s.failed_transient, s.failed_validation_rejected,
          s.failed_conflict, s.failed_policy_denied, s.failed_bug_suspected, s.in_flight::bigint, s.waiting::bigint,
          (s.to_ord - s.from_ord)::bigint)
        is distinct from row(t.applied, t.skipped, t.failed, t.uncertain, t.transient, t.rejected, t.conflict, t.denied, t.bug,
          t.in_flight, t.waiting, t.items)
      union all
      select format('item %s/%s is in no or in two places: %s', operation_id, ord, item) from item
      where (below and state is null and not retry and (effect = 'intent' and own) is not true)
        or (retry and effect = 'intent' and own)
        or (not below and (state is not null or retry or (effect = 'intent' and own)))
      union all
      select format('item %s/%s: the registry and the ledger disagree: %s', operation_id, ord, item) from item
      where (state in ('applied', 'skipped') and effect is distinct from 'applied')
        or (own and effect = 'applied' and state not in ('applied', 'skipped') and step_after(steps, step) is null)
        or (own and effect = 'uncertain' and state <> 'uncertain')
        or (own and effect = 'intent' and item_state is distinct from state)
        or (retry and prior_state is distinct from state)
        or (retry and state = 'failed' and prior_class is distinct from failure_class)
      union all
      select format('item %s/%s has %s cases that hold it back: %s', operation_id, ord, holding, item) from item
      where holding <> case state when 'uncertain' then 1 else 0 end
      union all
      select format('item %s/%s stands at %s, and the step %s before it is %s', i.operation_id, i.ord, i.step, b.step, e.state)
      from item i cross join lateral unnest(i.steps[:array_position(i.steps, i.step) - 1]) as b (step)
        left join effects e on e.effect_key = i.effect_key || '/' || b.step
      where i.below and e.state is distinct from 'applied'
      union all
      select format('item %s/%s is %s before its last step: %s', operation_id, ord, state, step) from item
      where state in ('applied', 'skipped') and step_after(steps, step) is not null
      union all
      select format('item %s/%s has %s intents', operation_id, ord, count(*)) from effects
      where state = 'intent' group by operation_id, ord having count(*) > 1
      union all
      select format('item %s/%s of a cancelled operation is between two steps, and nothing says so', i.operation_id, i.ord)
      from item i join final o on o.id = i.operation_id
      where i.retry and i.state is null and i.step <> i.steps[1]
      union all
      select format('effect %s/%s is applied by %s items', effect_key, step, count(*)) from item
      where state = 'applied' group by effect_key, step having count(*) > 1
      union all
      select format('the event %s was ledgered %s times', evidence_ref, count(*)) from ledger_entries
      where source = 'callback' group by tenant_id, evidence_ref having count(*) > 1
      union all
      select format('effect %s of %s was claimed after the cancel', i.effect_key, o.id)
      from effects i join operations o on o.id = i.operation_id where i.claimed_at > o.cancel_requested_at
      union all
      select format('operation %s at version %s has %s events, %s of them final', o.id, o.version, n.events, n.final)
      from operations o, lateral (
        select count(*) as events, count(*) filter (where kind = 'settled') as final
        from operation_events e where e.tenant_id = o.tenant_id and e.operation_id = o.id) n
      where n.events <> o.version or n.final <> case when o.completed_at is null then 0 else 1 end
      union all
      select format('operation %s is %s with shards %s', o.id, o.status, jsonb_agg(s.*))
      from final o join operation_shards s on s.operation_id = o.id
      where s.in_flight > 0 or s.uncertain > 0 or s.state <> 'done' or (s.waiting > 0 and o.cancel_requested_at is null)
        or (s.cursor < s.to_ord and o.status <> 'cancelled')
      group by o.id, o.status
      limit 20`,
  )
  return rows.map((row) => row.violation)
}
