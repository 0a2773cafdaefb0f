import { ints } from '../array-literal.ts'
import type { Database } from '../database.ts'
import type { Lease } from './lease.ts'

export interface ClaimedRetry {
  ord: number
  /** Where the item goes on, and the key of it. */
  step: string
  effectKey: string
  send: number
  attempt: number
  /** A repeat of a send whose outcome is unknown, allowed because the provider deduplicates by effect key. */
  resend: boolean
  /** It was sent after the last restore, or found absent, and the ledger says so (storage/restores.ts). */
  explained: boolean
}

/**
 * Claims the due retries `ords` whose effect key is free: never sent, absent, compensated, or (a declared idempotent
 * resend only) uncertain and ours. `send` grows, so that evidence for the earlier send can be told apart. Keys that are
 * applied, in flight or in doubt stay in `item_retries`: `explainKnownKeys` says what becomes of them.
 *
 * Lock, then work: a retry may be replaced or given up by evidence while this waits for the shard, and what was read before
 * the wait would then be claimed (an intent that no counter knows, and nobody sends).
 *
 * A resend that waited too long (a pause, no worker) for the provider's promise to hold is withdrawn: its item stays
 * `uncertain`, and its case is looked at again.
 *
 * Answers with what was won, or null when the fence did not hold.
 */
export const claimRetries = async (
  database: Database,
  lease: Lease,
  ords: readonly number[],
  /** `resendWithinMs`: how long after the operation's start the provider still recognises a repeated effect key. */
  { sendByMs, resendWithinMs }: { sendByMs: number; resendWithinMs: number },
): Promise<ClaimedRetry[] | null> => {
  const [row] = await database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      for no key update`,
    work: sql<{ won: ClaimedRetry[] }>`
      with fence as materialized (
        select tenant_id, operation_id, shard from operation_shards
        where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
          and state = 'leased' and lease_epoch = ${lease.epoch} and stop_requested is null),
      -- row by row, and what follows is joined from here: to the planner all operations are of average size, so where it may
      -- begin with the operation, it reads all of a large one
      asked as materialized (
        select r.* from fence f, unnest(${ints(ords)}::int[]) as u (ord)
          cross join lateral (
            select * from item_retries r
            where r.tenant_id = f.tenant_id and r.operation_id = f.operation_id and r.ord = u.ord offset 0) r
        where r.shard = f.shard),
      expired as (
        delete from item_retries r using asked a, operations o
        where a.reason = 'idempotent_resend' and o.tenant_id = a.tenant_id and o.id = a.operation_id
          and clock_timestamp() - sends_since(o.created_at, o.started_at) >= ${resendWithinMs} * interval '1 ms'
          and r.tenant_id = a.tenant_id and r.operation_id = a.operation_id and r.ord = a.ord
        returning r.tenant_id, r.operation_id, r.ord),
      asked_again as (
        update reconciliation_cases c set next_lookup_at = now(), last_lookup = 'resend expired' from expired x
        where c.tenant_id = x.tenant_id and c.operation_id = x.operation_id and c.ord = x.ord and c.closed_at is null),
      due as (
        select distinct on (r.effect_key) r.ord, r.effect_key, r.step, r.attempt, r.reason, r.prior_state, r.prior_class,
          i.item_key, i.input_hash,
          -- the first look is taken once: without a restore the second is never
          exists (select from restores) and coalesce((
            select true from effects p join ledger_entries l on l.tenant_id = p.tenant_id and l.operation_id = p.operation_id
              and l.ord = p.ord and l.effect_key = p.effect_key and l.send = p.send
            where p.tenant_id = r.tenant_id and p.effect_key = r.effect_key
              and l.observed_at > (select max(restored_at) from restores)
              and l.state <> 'uncertain' and l.reason_code is distinct from 'NOT_SENT'
            limit 1), false) as explained
        from asked r
          join operation_items i on i.tenant_id = r.tenant_id and i.operation_id = r.operation_id and i.ord = r.ord
        where r.run_at <= clock_timestamp()
          and r.ord not in (select ord from expired)
        order by r.effect_key, r.ord),
      won as (
        insert into effects as e (tenant_id, effect_key, state, send, operation_id, shard, ord, step, attempt, lease_epoch,
          item_key, input_hash, item_state, item_class, was, send_by)
        select f.tenant_id, d.effect_key, 'intent', 1, f.operation_id, f.shard, d.ord, d.step, d.attempt, ${lease.epoch},
          d.item_key, d.input_hash, d.prior_state, d.prior_class, case d.reason when 'idempotent_resend' then 'uncertain' end,
          now() + ${sendByMs} * interval '1 ms'
        from fence f, due d order by d.effect_key
        on conflict (tenant_id, effect_key) do update set
          was = e.state, state = 'intent', send = e.send + 1, operation_id = excluded.operation_id, shard = excluded.shard,
          ord = excluded.ord, step = excluded.step, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
          item_key = excluded.item_key, input_hash = excluded.input_hash, item_state = excluded.item_state,
          item_class = excluded.item_class, effect_ref = null, claimed_at = clock_timestamp(), send_by = excluded.send_by, updated_at = clock_timestamp()
        where e.state in ('absent', 'compensated')
          or (e.state = 'uncertain' and excluded.was = 'uncertain' and e.operation_id = excluded.operation_id
            and e.ord = excluded.ord)
        returning e.tenant_id, e.operation_id, e.ord, e.step, e.effect_key, e.send, e.attempt),
      gone as (
        delete from item_retries r using won w
        where r.tenant_id = w.tenant_id and r.operation_id = w.operation_id and r.ord = w.ord
        returning r.ord, r.reason = 'idempotent_resend' as resend)
      update operation_shards s set
        version = s.version + 1, in_flight = s.in_flight + (select count(*) from gone),
        waiting = s.waiting - (select count(*) from gone) - (select count(*) from expired)
      from fence f
      where s.tenant_id = f.tenant_id and s.operation_id = f.operation_id and s.shard = f.shard
      returning (select coalesce(jsonb_agg(jsonb_build_object('ord', w.ord, 'step', w.step, 'effectKey',
        w.effect_key, 'send', w.send, 'attempt', w.attempt, 'resend', g.resend, 'explained', d.explained)), '[]')
        from won w join gone g using (ord) join due d using (ord)) as won`,
  }))
  return row?.won ?? null
}

/** How long an item waits before it looks again at an effect key that another item has in flight. */
const KEY_IN_FLIGHT_WAIT_MS = 500

/**
 * What becomes of waiting items whose effect key is held by another (the registry's table in domain/effect.ts):
 * applied → `skipped` with the reference, or on to the next step where that is not the item's last one; uncertain →
 * `uncertain` with a case of its own, closed from the effect when that is explained; in flight → waits on, uncharged. An own effect that is
 * applied or uncertain by now has its entry: only the wait ends (that of a declared resend goes on).
 * Answers with the number of items that were explained, or put on to their next step.
 */
export const explainKnownKeys = (
  database: Database,
  lease: Lease,
  ords: readonly number[],
  codeVersion: string,
): Promise<number> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      for no key update`,
    work: sql<{ explained: number }>`
      with me as (
        select tenant_id, operation_id, shard, type, steps from operation_shards
        where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
          and state = 'leased' and lease_epoch = ${lease.epoch}),
      known as materialized (
        select r.*, i.item_key, i.input_hash, me.type, e.state as effect_state, e.effect_ref, e.send,
          e.operation_id = r.operation_id and e.ord = r.ord as own,
          case when e.state = 'applied' and r.step <> '' then step_after(me.steps, r.step) end as next_step
        from me cross join unnest(${ints(ords)}::int[]) as u (ord)
          cross join lateral (
            select * from item_retries r
            where r.tenant_id = me.tenant_id and r.operation_id = me.operation_id and r.ord = u.ord offset 0) r
          join effects e on e.tenant_id = r.tenant_id and e.effect_key = r.effect_key
          join operation_items i on i.tenant_id = r.tenant_id and i.operation_id = r.operation_id and i.ord = r.ord
        where r.shard = me.shard),
      gone as (
        delete from item_retries r using known k
        where r.tenant_id = k.tenant_id and r.operation_id = k.operation_id and r.ord = k.ord
          and ((k.effect_state = 'applied' and k.next_step is null)
            or (k.effect_state = 'uncertain' and (not k.own or k.reason <> 'idempotent_resend')))
        returning k.*),
      gone_on as (
        update item_retries r set
          step = k.next_step, effect_key = step_key(k.effect_key, k.step, k.next_step), attempt = 1, run_at = now(),
          reason = 'next_step'
        from known k
        where r.tenant_id = k.tenant_id and r.operation_id = k.operation_id and r.ord = k.ord and k.next_step is not null
        returning k.*),
      postponed as (
        update item_retries r set run_at = now() + ${KEY_IN_FLIGHT_WAIT_MS} * interval '1 ms' from known k
        where r.tenant_id = k.tenant_id and r.operation_id = k.operation_id and r.ord = k.ord and k.effect_state = 'intent'),
      entry as (
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, failure_class, reason_code,
          effect_key, send, input_hash, effect_ref, source, worker_id, code_version)
        select tenant_id, operation_id, ord, item_key, step, attempt,
          case effect_state when 'applied' then 'skipped' else 'uncertain' end,
          case effect_state when 'applied' then null else 'ambiguous_effect' end,
          case effect_state when 'applied' then 'EFFECT_ALREADY_APPLIED' else 'IN_DOUBT_ELSEWHERE' end,
          effect_key, send, input_hash, effect_ref, 'worker', ${lease.workerId}::uuid, ${codeVersion}
        from gone where not own
        union all
        select tenant_id, operation_id, ord, item_key, step, attempt, null, null, 'STEP_ALREADY_APPLIED', effect_key, send,
          input_hash, effect_ref, 'worker', ${lease.workerId}::uuid, ${codeVersion}
        from gone_on),
      opened as (
        insert into reconciliation_cases as c (tenant_id, operation_id, shard, ord, type, item_key, step, effect_key, send,
          cause)
        select tenant_id, operation_id, shard, ord, type, item_key, step, effect_key, send, 'in_doubt_elsewhere' from gone
        where effect_state = 'uncertain' and not own
        -- as in converge: the one open case of an item is the one that holds it back
        on conflict (tenant_id, operation_id, ord) where closed_at is null do update set
          cause = excluded.cause, step = excluded.step, effect_key = excluded.effect_key, send = excluded.send,
          note = concat_ws(': ', c.cause, c.note)
        where c.cause in ('duplicate_suspected', 'contradiction')),
      n as (
        select count(*) as gone, (select count(*) from gone_on) as gone_on,
          count(*) filter (where effect_state = 'applied' and not own) as skipped,
          count(*) filter (where effect_state = 'uncertain' and not own) as uncertain,
          count(*) filter (where not own and prior_state = 'uncertain') as was_uncertain,
          count(*) filter (where not own and prior_state = 'failed') as was_failed,
          count(*) filter (where not own and prior_state = 'failed' and prior_class = 'transient') as was_transient
        from gone)
      update operation_shards s set
        version = s.version + 1, waiting = s.waiting - n.gone, skipped = s.skipped + n.skipped,
        uncertain = s.uncertain + n.uncertain - n.was_uncertain, failed = s.failed - n.was_failed,
        failed_transient = s.failed_transient - n.was_transient, last_progress_at = clock_timestamp()
      from me, n
      where s.tenant_id = me.tenant_id and s.operation_id = me.operation_id and s.shard = me.shard and n.gone + n.gone_on > 0
      returning (n.gone + n.gone_on)::int as explained`.then(([row]) => row?.explained ?? 0),
  }))
