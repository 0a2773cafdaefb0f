/**
 * A batch of a transactional type is one transaction: the effect keys are taken, the handler works on the winners, and the
 * last statement writes ledger, retries and counters and moves the cursor under the fence. If the fence does not hold, the
 * whole transaction is rolled back, the handler's work with it: committed batches stay, exactly once.
 *
 * The fence comes last on purpose. Taken first it held the shard row for the length of a batch, and heartbeats and cancels
 * waited behind it until leases ran out. A lost lease costs one rolled-back batch instead.
 */
import { EXHAUSTED_RUNS_MAX, type FailureClass } from '../../domain/failure.ts'
import type { ItemState } from '../../domain/ledger.ts'
import { ints, sparseInts, sparseTexts, texts } from '../array-literal.ts'
import type { Sql } from '../connection.ts'
import type { WindowItem } from './claim-intents.ts'
import type { Lease } from './lease.ts'

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

export interface BatchItemKey extends WindowItem {
  attempt: number
}

/**
 * Takes the effect keys of a batch: new ones, and those that are absent or compensated. Answers with the ords that won;
 * a key that another transaction is taking right now is waited for.
 *
 * Key and input hash of the item are left empty: they are there for evidence that comes later, and a transactional effect is
 * decided by its commit.
 */
export const takeBatchEffects = async (
  sql: Sql,
  lease: Lease,
  items: readonly BatchItemKey[],
): Promise<Set<number>> => {
  const rows = await sql<{ won: string }>`
    with u as (
      select distinct on (effect_key) * from unnest(
        ${ints(items.map((item) => item.ord))}::int[], ${texts(items.map((item) => item.effectKey))}::text[],
        ${ints(items.map((item) => item.attempt))}::int[])
        as u (ord, effect_key, attempt)
      order by effect_key, ord),
    won as (
      insert into effects as e (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch,
        item_key, input_hash, item_state, send_by)
      select ${lease.tenantId}::int, effect_key, 'applied', 1, ${lease.operationId}::uuid, ${lease.shard}::int, ord, attempt,
        ${lease.epoch}::bigint, '', '', 'applied', now()
      from u order by effect_key
      on conflict (tenant_id, effect_key) do update set
        was = e.state, state = 'applied', send = e.send + 1, operation_id = excluded.operation_id, shard = excluded.shard,
        ord = excluded.ord, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch, item_key = excluded.item_key,
        input_hash = excluded.input_hash, item_state = 'applied', item_class = null, effect_ref = null,
        claimed_at = clock_timestamp(), send_by = excluded.send_by, updated_at = clock_timestamp()
      where e.state in ('absent', 'compensated')
      returning ord)
    select coalesce(string_agg(ord::text, ','), '') as won from won`
  const won = rows[0]?.won ?? ''
  return new Set(won === '' ? [] : won.split(',').map(Number))
}

/**
 * Writes the outcomes of a batch and moves on. `range` is the window below which the cursor moves, or null for a batch of
 * due retries (their rows are deleted). `lost` are items whose key is held by another: they wait in `item_retries`.
 * Answers false when the fence did not hold: the caller rolls back.
 */
export const commitBatch = async (
  sql: Sql,
  lease: Lease,
  batch: {
    range: { from: number; to: number } | null
    items: readonly BatchItemKey[]
    outcomes: readonly BatchOutcome[]
    lost: readonly BatchItemKey[]
    codeVersion: string
  },
): Promise<boolean> => {
  const { outcomes, lost, range } = batch
  const itemOf = new Map(batch.items.map((item) => [item.ord, item]))
  const attempts = ints(outcomes.map((outcome) => itemOf.get(outcome.ord)?.attempt ?? 1))
  const rows = await sql`
    with u as materialized (
      select ord, effect_key, item_key, input_hash, attempt, item,
        -- as in converge: decided once, for all that derives from it
        case when class = 'transient' and fingerprint is not null and (
          select count(distinct d.operation_id) from dead_letters d
          where d.tenant_id = ${lease.tenantId} and d.effect_key = r.effect_key and d.fingerprint = r.fingerprint
            and d.operation_id <> ${lease.operationId}::uuid) >= ${EXHAUSTED_RUNS_MAX - 1}::int
          then 'bug_suspected' else class end as class,
        reason_code, message, effect_ref, retry_ms, fingerprint
      from unnest(
        ${ints(outcomes.map((outcome) => outcome.ord))}::int[],
        ${texts(outcomes.map((outcome) => itemOf.get(outcome.ord)?.effectKey))}::text[],
        ${texts(outcomes.map((outcome) => itemOf.get(outcome.ord)?.key))}::text[],
        ${texts(outcomes.map((outcome) => itemOf.get(outcome.ord)?.inputHash))}::text[], ${attempts}::int[],
        ${texts(outcomes.map((outcome) => outcome.item))}::text[],
        ${sparseTexts(outcomes.map((outcome) => outcome.failureClass))}::text[],
        ${sparseTexts(outcomes.map((outcome) => outcome.reasonCode))}::text[],
        ${sparseTexts(outcomes.map((outcome) => outcome.message))}::text[],
        ${sparseTexts(outcomes.map((outcome) => outcome.effectRef))}::text[],
        ${sparseInts(outcomes.map((outcome) => outcome.retryMs))}::int[],
        ${sparseTexts(outcomes.map((outcome) => outcome.fingerprint))}::text[])
        as r (ord, effect_key, item_key, input_hash, attempt, item, class, reason_code, message, effect_ref, retry_ms,
          fingerprint)),
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
    named as (
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
      select ${lease.tenantId}::int, ${lease.operationId}::uuid, l.ord, ${lease.shard}::int, l.effect_key, 1, now(),
        'key_known', null, null
      from unnest(${ints(lost.map((item) => item.ord))}::int[], ${texts(lost.map((item) => item.effectKey))}::text[])
        as l (ord, effect_key)
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
