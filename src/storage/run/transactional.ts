/**
 * A batch of a transactional type is one transaction: the effect keys are taken, the handler works on the winners, and the
 * last statement writes ledger, retries and counters and moves the cursor under the fence. If the fence does not hold, the
 * whole transaction is rolled back, the handler's work with it: committed batches stay, exactly once. Here is what any batch
 * needs; plain-batch.ts does the same for one that nothing stands in the way of.
 *
 * The fence comes last on purpose. Taken first it held the shard row for the length of a batch, and heartbeats and cancels
 * waited behind it until leases ran out. A lost lease costs one rolled-back batch instead.
 */
import { EXHAUSTED_RUNS_MAX, type FailureClass } from '../../domain/failure.ts'
import type { ItemState } from '../../domain/ledger.ts'
import { ints, sparseInts, sparseTexts, texts } from '../array-literal.ts'
import type { Sql } from '../connection.ts'
import type { Lease } from './lease.ts'
import { commitPlainBatch, type Range } from './plain-batch.ts'

/** What the handler made of one item of a batch. */
export interface BatchOutcome {
  ord: number
  item: Exclude<ItemState, 'uncertain'>
  failureClass: Exclude<FailureClass, 'ambiguous_effect'> | null
  reasonCode: string | null
  message: string | null
  effectRef: string | null
  retryMs: number | null
  fingerprint: string | null
}

/** An item of a batch, and which attempt at it this is. */
export interface BatchAttempt {
  ord: number
  attempt: number
}

/** What one transaction works on. */
export interface BatchOf<Item extends BatchAttempt> {
  /** In the order of their ords. */
  items: readonly Item[]
  /** The window below which the cursor moves, and whose items these are; null for a batch of due retries. */
  range: Range | null
}

export type Batch = BatchOf<BatchAttempt>

/** The window that a batch is as a whole, for the first time; null: its items are to be named one by one. */
const windowOf = ({ items, range }: Batch): Range | null => (items.every(({ attempt }) => attempt === 1) ? range : null)

/**
 * How a statement is told the items of a batch: a window by its bounds, any others by ord and attempt. Keys and hashes are
 * never sent: the database has them in `operation_items`. Why bounds become a row first (`w`): plain-batch.ts. The others are
 * looked up one by one (`offset 0`): joined, a plan for any operation may read all items of this one.
 */
const named = (batch: Batch): Range & { ords: string; attempts: string } => {
  const window = windowOf(batch)
  const single = window ? [] : batch.items
  return {
    ...(window ?? { from: 0, to: 0 }),
    ords: ints(single.map(({ ord }) => ord)),
    attempts: ints(single.map(({ attempt }) => attempt)),
  }
}

/**
 * Takes the effect keys of a batch: new ones, and those that are absent or compensated. Answers with the ords that did not
 * get theirs; a key that another transaction is taking right now is waited for.
 *
 * Key and input hash of the item are left empty: they are there for evidence that comes later, and a transactional effect is
 * decided by its commit.
 */
export const takeBatchEffects = async (sql: Sql, lease: Lease, batch: Batch): Promise<Set<number>> => {
  const { from, to, ords, attempts } = named(batch)
  const [row] = await sql<{ lost: string | null }>`
    with w as materialized (
      select ${lease.tenantId}::int as tenant_id, ${lease.operationId}::uuid as operation_id, ${from}::int as from_ord,
        ${to}::int as to_ord),
    item as (
      select i.ord, i.effect_key, 1 as attempt from w, operation_items i
      where i.tenant_id = w.tenant_id and i.operation_id = w.operation_id and i.ord >= w.from_ord and i.ord < w.to_ord
      union all
      select i.ord, i.effect_key, s.attempt
      from unnest(${ords}::int[], ${attempts}::int[]) as s (ord, attempt), lateral (
        select ord, effect_key from operation_items
        where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and ord = s.ord offset 0) i),
    won as (
      insert into effects as e (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch,
        item_key, input_hash, item_state, send_by)
      select ${lease.tenantId}::int, effect_key, 'applied', 1, ${lease.operationId}::uuid, ${lease.shard}::int, ord, attempt,
        ${lease.epoch}::bigint, '', '', 'applied', now()
      from (select distinct on (effect_key) ord, effect_key, attempt from item order by effect_key, ord) as first
      on conflict (tenant_id, effect_key) do update set
        was = e.state, state = 'applied', send = e.send + 1, operation_id = excluded.operation_id, shard = excluded.shard,
        ord = excluded.ord, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch, item_key = excluded.item_key,
        input_hash = excluded.input_hash, item_state = 'applied', item_class = null, effect_ref = null,
        claimed_at = clock_timestamp(), send_by = excluded.send_by, updated_at = clock_timestamp()
      where e.state in ('absent', 'compensated')
      returning ord)
    -- as a rule all are won: what is lost is looked for only where their numbers differ
    select case when (select count(*) from won) < ${batch.items.length}::int then (
      select string_agg(ord::text, ',') from item where ord not in (select ord from won)) end as lost`
  return new Set(row?.lost?.split(',').map(Number))
}

/** What an item has that nothing is told of. */
const isPlain = ({ item, reasonCode, message, effectRef }: BatchOutcome): boolean =>
  item === 'applied' && reasonCode === null && message === null && effectRef === null

/**
 * Writes the outcomes of a batch and moves on; the rows of due retries are deleted. `lost` are ords whose key is held by
 * another: they wait in `item_retries`. Answers false when the fence did not hold: the caller rolls back.
 */
export const commitBatch = async (
  sql: Sql,
  lease: Lease,
  batch: Batch & {
    /** Of each item that is not lost. */
    outcomes: readonly BatchOutcome[]
    lost: ReadonlySet<number>
    codeVersion: string
  },
): Promise<boolean> => {
  const { outcomes, lost, range } = batch
  if (outcomes.length + lost.size !== batch.items.length) throw new Error('an item of the batch has no outcome')
  const told = outcomes.filter((outcome) => !isPlain(outcome))
  const window = windowOf(batch)
  if (window && told.length === 0 && lost.size === 0) return commitPlainBatch(sql, lease, window, batch.codeVersion)
  const { from, to, ords, attempts } = named(batch)
  const rows = await sql`
    with w as materialized (
      select ${lease.tenantId}::int as tenant_id, ${lease.operationId}::uuid as operation_id, ${from}::int as from_ord,
        ${to}::int as to_ord),
    item as materialized (
      select i.ord, i.effect_key, i.item_key, i.input_hash, 1 as attempt from w, operation_items i
      where i.tenant_id = w.tenant_id and i.operation_id = w.operation_id and i.ord >= w.from_ord and i.ord < w.to_ord
      union all
      select i.ord, i.effect_key, i.item_key, i.input_hash, s.attempt
      from unnest(${ords}::int[], ${attempts}::int[]) as s (ord, attempt), lateral (
        select ord, effect_key, item_key, input_hash from operation_items
        where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and ord = s.ord offset 0) i),
    lost as materialized (
      select i.ord, i.effect_key from item i join unnest(${ints([...lost])}::int[]) as l (ord) using (ord)),
    u as materialized (
      select i.*, coalesce(r.item, 'applied') as item,
        -- as in converge: decided once, for all that derives from it
        case when class = 'transient' and fingerprint is not null and (
          select count(distinct d.operation_id) from dead_letters d
          where d.tenant_id = ${lease.tenantId} and d.effect_key = i.effect_key and d.fingerprint = r.fingerprint
            and d.operation_id <> ${lease.operationId}::uuid) >= ${EXHAUSTED_RUNS_MAX - 1}::int
          then 'bug_suspected' else class end as class,
        reason_code, message, effect_ref, retry_ms, fingerprint
      from item i left join unnest(
        ${ints(told.map((outcome) => outcome.ord))}::int[],
        ${texts(told.map((outcome) => outcome.item))}::text[],
        ${sparseTexts(told.map((outcome) => outcome.failureClass))}::text[],
        ${sparseTexts(told.map((outcome) => outcome.reasonCode))}::text[],
        ${sparseTexts(told.map((outcome) => outcome.message))}::text[],
        ${sparseTexts(told.map((outcome) => outcome.effectRef))}::text[],
        ${sparseInts(told.map((outcome) => outcome.retryMs))}::int[],
        ${sparseTexts(told.map((outcome) => outcome.fingerprint))}::text[])
        as r (ord, item, class, reason_code, message, effect_ref, retry_ms, fingerprint) using (ord)
      where ord not in (select ord from lost)),
    waited as (
      delete from item_retries r using u
      where ${range === null} and r.tenant_id = ${lease.tenantId} and r.operation_id = ${lease.operationId}::uuid
        and r.ord = u.ord and u.retry_ms is null
      returning r.ord, r.prior_state, r.prior_class),
    entry as (
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, reason_code,
        message, effect_key, input_hash, effect_ref, source, worker_id, code_version)
      select ${lease.tenantId}::int, ${lease.operationId}::uuid, ord, item_key, attempt, item, class, reason_code, message,
        effect_key, input_hash, effect_ref, 'worker', ${lease.workerId}::uuid, ${batch.codeVersion}
      from u order by ord),
    withdrawn as (
      update effects e set state = 'absent', was = 'applied', item_state = 'failed', item_class = u.class
      from u where e.tenant_id = ${lease.tenantId} and e.effect_key = u.effect_key and u.item = 'failed'),
    described as (
      update effects e set effect_ref = u.effect_ref, item_state = u.item
      from u where e.tenant_id = ${lease.tenantId} and e.effect_key = u.effect_key and u.item <> 'failed'
        and (u.effect_ref is not null or u.item <> 'applied')),
    again as (
      insert into item_retries as r (tenant_id, operation_id, ord, shard, effect_key, attempt, run_at, reason, prior_state,
        prior_class)
      select ${lease.tenantId}::int, ${lease.operationId}::uuid, ord, ${lease.shard}::int, effect_key, attempt + 1,
        now() + retry_ms * interval '1 ms', 'failed', 'failed', class
      from u where retry_ms is not null
      union all
      select ${lease.tenantId}::int, ${lease.operationId}::uuid, ord, ${lease.shard}::int, effect_key, 1, now(),
        'key_known', null, null
      from lost
      where ${range !== null}
      on conflict (tenant_id, operation_id, ord) do update set
        attempt = excluded.attempt, run_at = excluded.run_at, reason = excluded.reason,
        prior_state = excluded.prior_state, prior_class = excluded.prior_class
      returning (r.xmax = 0) as fresh),
    dead as (
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, reason_code,
        message, attempts, fingerprint)
      select s.tenant_id, s.operation_id, u.ord, s.type, u.item_key, u.effect_key, u.class, u.reason_code, u.message,
        u.attempt, u.fingerprint
      from u, operation_shards s
      where u.fingerprint is not null and s.tenant_id = ${lease.tenantId} and s.operation_id = ${lease.operationId}::uuid
        and s.shard = ${lease.shard}
      on conflict (tenant_id, operation_id, ord) do nothing),
    n as (
      select count(*) filter (where item = 'applied') as applied, count(*) filter (where item = 'skipped') as skipped,
        count(*) filter (where item = 'failed') as failed,
        count(*) filter (where class = 'transient') as transient,
        count(*) filter (where class = 'validation_rejected') as validation_rejected,
        count(*) filter (where class = 'conflict') as conflict,
        count(*) filter (where class = 'policy_denied') as policy_denied,
        count(*) filter (where class = 'bug_suspected') as bug_suspected
      from u),
    p as (
      select count(*) filter (where r.prior_state = 'failed') as failed,
        count(*) filter (where r.prior_state = 'failed' and r.prior_class = 'transient') as transient,
        count(*) filter (where r.prior_state = 'uncertain') as uncertain
      from item_retries r join u using (ord)
      where ${range === null} and r.tenant_id = ${lease.tenantId} and r.operation_id = ${lease.operationId}::uuid)
    update operation_shards s set
      cursor = coalesce(${range?.to ?? null}::int, s.cursor), version = s.version + 1, claims = 0,
      suspect_ord = null, suspect_crashes = 0, last_progress_at = clock_timestamp(),
      waiting = s.waiting + (select count(*) filter (where fresh) from again) - (select count(*) from waited),
      applied = s.applied + n.applied, skipped = s.skipped + n.skipped, failed = s.failed + n.failed - p.failed,
      uncertain = s.uncertain - p.uncertain, failed_transient = s.failed_transient + n.transient - p.transient,
      failed_validation_rejected = s.failed_validation_rejected + n.validation_rejected,
      failed_conflict = s.failed_conflict + n.conflict, failed_policy_denied = s.failed_policy_denied + n.policy_denied,
      failed_bug_suspected = s.failed_bug_suspected + n.bug_suspected
    from n, p
    where s.tenant_id = ${lease.tenantId} and s.operation_id = ${lease.operationId}::uuid and s.shard = ${lease.shard}
      and s.state = 'leased' and s.lease_epoch = ${lease.epoch} and s.stop_requested is null
      and s.cursor = coalesce(${range?.from ?? null}::int, s.cursor)
    returning 1`
  return rows.length > 0
}
