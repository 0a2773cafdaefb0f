import type { Database } from '../database.ts'
import { lockOperation } from '../stops.ts'

/** Items explained in one transaction. */
const ITEMS_PER_STATEMENT = 10_000

/**
 * Says of each item that a cancel stopped between two steps what became of it (invariant H of lease.ts): `failed`, class
 * transient, with the steps that were applied. The item stays in `item_retries`, given up like a retry; the reason `stopped`
 * keeps it from being explained twice. An item that has an outcome at its step keeps it: that tells as much.
 */
export const explainStopped = async (
  database: Database,
  operation: { tenantId: number; operationId: string },
): Promise<void> => {
  for (let explained = ITEMS_PER_STATEMENT; explained === ITEMS_PER_STATEMENT; ) {
    explained = await explainSome(database, operation)
  }
}

const explainSome = (
  database: Database,
  { tenantId, operationId }: { tenantId: number; operationId: string },
): Promise<number> =>
  database.lockThenWork((sql) => ({
    lock: lockOperation(sql, { tenantId, operationId }),
    work: sql<{ explained: number }>`
      with stopped as materialized (
        select r.*, i.item_key, i.input_hash, o.code_version,
          array_to_string(s.steps[:array_position(s.steps, r.step) - 1], ', ') as applied
        from operations o
          join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id and s.stop_requested = 'cancel'
            and s.state = 'done'
          join item_retries r on r.tenant_id = s.tenant_id and r.operation_id = s.operation_id and r.shard = s.shard
          join operation_items i on i.tenant_id = r.tenant_id and i.operation_id = r.operation_id and i.ord = r.ord
        where o.tenant_id = ${tenantId} and o.id = ${operationId}::uuid and o.completed_at is null
          and r.step <> s.steps[1] and (r.prior_state is null or r.reason = 'next_step')
        order by r.ord limit ${ITEMS_PER_STATEMENT}),
      -- late evidence for a send that was given back counts from what the item is now
      held as materialized (
        select e.tenant_id, e.effect_key
        from effects e join stopped x on e.tenant_id = x.tenant_id and e.effect_key = x.effect_key
          and e.operation_id = x.operation_id and e.ord = x.ord
        where e.state = 'absent' order by e.effect_key for no key update of e),
      known as (
        update effects e set item_state = 'failed', item_class = 'transient' from held h
        where e.tenant_id = h.tenant_id and e.effect_key = h.effect_key),
      marked as (
        update item_retries r set reason = 'stopped', prior_state = 'failed', prior_class = 'transient' from stopped x
        where r.tenant_id = x.tenant_id and r.operation_id = x.operation_id and r.ord = x.ord),
      entry as (
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, failure_class, reason_code,
          message, effect_key, input_hash, source, actor, code_version)
        select tenant_id, operation_id, ord, item_key, step, attempt, 'failed', 'transient', 'STOPPED_BETWEEN_STEPS',
          format('applied: %s; cancelled before: %s', applied, step), effect_key, input_hash, 'recovery', 'system:settle',
          code_version
        from stopped),
      n as (
        select shard, count(*) filter (where prior_state is null) as fresh from stopped group by shard),
      counted as (
        update operation_shards s set
          version = s.version + 1, failed = s.failed + n.fresh, failed_transient = s.failed_transient + n.fresh
        from n where s.tenant_id = ${tenantId} and s.operation_id = ${operationId}::uuid and s.shard = n.shard)
      select count(*)::int as explained from stopped`.then(([row]) => row?.explained ?? 0),
  }))
