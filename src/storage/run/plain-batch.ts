/**
 * The batch of a transactional type that nothing stands in the way of, which is nearly every one: a window that runs for the
 * first time, keys that nobody has used, items that are all applied without a name for what was done. It writes what
 * transactional.ts writes, in less time: no row is looked at for a conflict, and none is joined with an outcome.
 *
 * That the keys are new is assumed, and held by their primary key: of a known one `KeyKnown` is thrown, the transaction is
 * rolled back with nothing done, and the batch is repeated by way of transactional.ts. Keys are taken in the same order there
 * and here, and one that another transaction is taking right now is waited for: neither can deadlock with the other.
 *
 * The window of a statement is a row (`w`), not parameters: a plan for parameters would be made anew for every window, as it
 * looks cheaper than one for all of them.
 */
import type { Sql } from '../connection.ts'
import { faultCode } from '../database-faults.ts'
import type { Lease } from './lease.ts'

export interface Range {
  from: number
  to: number
}

/** An effect key of the window is known already, or is there twice. */
export class KeyKnown extends Error {
  override readonly name = 'KeyKnown'
}

const UNIQUE_VIOLATION = '23505'
const NONE: ReadonlySet<number> = new Set()

/**
 * Takes the effect keys of a window, all of which are new. Answers with the ords that did not get theirs, as
 * `takeBatchEffects` does: none. Throws `KeyKnown`: then the transaction is lost.
 */
export const takeNewEffects = async (sql: Sql, lease: Lease, { from, to }: Range): Promise<ReadonlySet<number>> => {
  try {
    await sql`
      with w as materialized (
        select ${lease.tenantId}::int as tenant_id, ${lease.operationId}::uuid as operation_id, ${from}::int as from_ord,
          ${to}::int as to_ord)
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, item_state, send_by)
      select i.tenant_id, i.effect_key, 'applied', 1, i.operation_id, ${lease.shard}::int, i.ord, 1, ${lease.epoch}::bigint,
        '', '', 'applied', now()
      from w, operation_items i
      where i.tenant_id = w.tenant_id and i.operation_id = w.operation_id and i.ord >= w.from_ord and i.ord < w.to_ord
      order by i.effect_key`
    return NONE
  } catch (error) {
    // whatever the index is called; and where it is another one, that is seen when the batch is repeated
    throw faultCode(error) === UNIQUE_VIOLATION ? new KeyKnown('an effect key is known', { cause: error }) : error
  }
}

/** Writes that all items of a window are applied, and moves on. Answers false when the fence did not hold. */
export const commitPlainBatch = async (
  sql: Sql,
  lease: Lease,
  { from, to }: Range,
  codeVersion: string,
): Promise<boolean> => {
  const rows = await sql`
    with w as materialized (
      select ${lease.tenantId}::int as tenant_id, ${lease.operationId}::uuid as operation_id, ${from}::int as from_ord,
        ${to}::int as to_ord),
    entry as (
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source,
        worker_id, code_version)
      select i.tenant_id, i.operation_id, i.ord, i.item_key, 1, 'applied', i.effect_key, i.input_hash, 'worker',
        ${lease.workerId}::uuid, ${codeVersion}
      from w, operation_items i
      where i.tenant_id = w.tenant_id and i.operation_id = w.operation_id and i.ord >= w.from_ord and i.ord < w.to_ord
      order by i.ord
      returning 1)
    update operation_shards s set
      cursor = ${to}, version = s.version + 1, claims = 0, suspect_ord = null, suspect_crashes = 0,
      last_progress_at = clock_timestamp(), applied = s.applied + (select count(*) from entry)
    where s.tenant_id = ${lease.tenantId} and s.operation_id = ${lease.operationId}::uuid and s.shard = ${lease.shard}
      and s.state = 'leased' and s.lease_epoch = ${lease.epoch} and s.stop_requested is null and s.cursor = ${from}
    returning 1`
  return rows.length > 0
}
