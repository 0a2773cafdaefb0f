/**
 * The one writer of outcomes, used by worker, late worker, recovery, lookup, callback and operator.
 *
 * A report says what became of one send of one effect. It is fenced by (effect key, send, operation), not by the epoch:
 * what a worker observed is kept after it lost its lease, and overwrites nothing. Ledger entries, retries, cases, dead
 * letters and counters derive from the rows that moved, in one statement after the shard's lock is held; a report that
 * moves nothing changes nothing. What a compensation undoes follows in the same commit (compensation.ts).
 *
 * A step that is applied and is not the item's last one gives the item no outcome: it puts it into `item_retries` at the next
 * step (invariant F of lease.ts). Which step an effect is stands in its row, the order of them in the shard's.
 *
 * The work locks its tables when it is parsed. Whoever keeps one of them for itself (a change of the schema, a new partition)
 * would be waited for with the shard in hand, and leases run out behind it, as heartbeats pass over a row that is held. So the
 * tables come first: no lock that the work does not take, 20 µs of a millisecond.
 *
 * It is an upsert because `UPDATE … FROM unnest` fell into a bad plan on large tables (1.7k instead of 5.1k items/s).
 */
import { EXHAUSTED_RUNS_MAX } from '../../domain/failure.ts'
import { ints, sparseInts, sparseTexts } from '../array-literal.ts'
import { auditJson } from '../audit.ts'
import type { Sql } from '../connection.ts'
import type { Database } from '../database.ts'
import { markCompensated, undoingsOf } from './compensation.ts'
import type { Evidence, Report } from './evidence.ts'
import type { ShardKey } from './lease.ts'

export interface Converged {
  /** Ords of the reports that moved something. */
  moved: Set<number>
  /** Whether the reporting worker still held the lease. */
  mine: boolean
  stopRequested: 'pause' | 'cancel' | null
  /** Whether the shard has nothing left to run: then the operation may be settled. */
  done: boolean
}

export const converge = async (database: Database, shard: ShardKey, evidence: Evidence): Promise<Converged> => {
  const converged = await write(database, shard, evidence, null)
  if (!converged) throw new Error(`there is no shard ${shard.shard} of operation ${shard.operationId}`)
  return converged
}

/**
 * The same for an outcome that only the holder of the lease may write, and only while nobody asked it to stop; `also` are
 * statements of the same commit, after the outcome. Null: the fence did not hold, and the effects did not move.
 */
export const convergeFenced = (
  database: Database,
  shard: ShardKey,
  evidence: Evidence,
  also: (sql: Sql) => Promise<unknown>,
): Promise<Converged | null> => write(database, shard, evidence, also)

const write = async (
  database: Database,
  shard: ShardKey,
  evidence: Evidence,
  also: ((sql: Sql) => Promise<unknown>) | null,
): Promise<Converged | null> => {
  const { reports, source } = evidence
  const column = (pick: (report: Report) => string | null): string => sparseTexts(reports.map(pick))
  const undoings = undoingsOf(reports.filter(({ effect }) => effect === 'applied'))
  const [row] = await database.lockThenWork((sql) => ({
    lock: Promise.all([
      sql`lock table only effects, ledger_entries, item_retries, reconciliation_cases, dead_letters in row exclusive mode`,
      sql`
        select 1 from operation_shards
        where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}
        for no key update`,
    ]),
    work: sql<{ moved: string; mine: boolean; stop_requested: 'pause' | 'cancel' | null; state: string }>`
      with u as materialized (
        select ord, effect_key, send, effect, item,
          -- decided here, once: ledger, effect, counters and dead letter take their class from it
          case when class = 'transient' and fingerprint is not null and (
            select count(distinct d.operation_id) from dead_letters d
            where d.tenant_id = ${shard.tenantId} and d.effect_key = r.effect_key and d.fingerprint = r.fingerprint
              and d.operation_id <> ${shard.operationId}::uuid) >= ${EXHAUSTED_RUNS_MAX - 1}::int
            then 'bug_suspected' else class end as class,
          reason_code, message, effect_ref, evidence_ref, retry_ms, retry_reason, fingerprint
        from unnest(
          ${ints(reports.map((report) => report.ord))}::int[], ${column((report) => report.effectKey)}::text[],
          ${ints(reports.map((report) => report.send))}::int[], ${column((report) => report.effect)}::text[],
          ${column((report) => report.item)}::text[], ${column((report) => report.failureClass)}::text[],
          ${column((report) => report.reasonCode)}::text[], ${column((report) => report.message)}::text[],
          ${column((report) => report.effectRef)}::text[], ${column((report) => report.evidenceRef)}::text[],
          ${sparseInts(reports.map((report) => report.retry?.afterMs ?? null))}::int[],
          ${column((report) => report.retry?.reason ?? null)}::text[], ${column((report) => report.fingerprint)}::text[])
          as r (ord, effect_key, send, effect, item, class, reason_code, message, effect_ref, evidence_ref, retry_ms,
            retry_reason, fingerprint)),
      me as materialized (
        select tenant_id, operation_id, shard, type, steps, purged, stop_requested,
          state = 'leased' and lease_epoch = ${evidence.epoch} as mine
        from operation_shards
        where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}
          and (${also === null} or (state = 'leased' and lease_epoch = ${evidence.epoch} and stop_requested is null))),
      moved as (
        insert into effects as e (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch,
          item_key, input_hash, effect_ref, item_state, item_class, send_by)
        select me.tenant_id, u.effect_key, u.effect, u.send, me.operation_id, me.shard, u.ord, 1, 0, '', '', u.effect_ref,
          u.item, u.class, clock_timestamp()
        from me, u
        -- of a row that is not there (see item_key below) nobody here knows the step, or the item once it is purged
        where (cardinality(me.steps) = 0 and not me.purged)
          or exists (select from effects k where k.tenant_id = me.tenant_id and k.effect_key = u.effect_key)
        order by u.effect_key
        on conflict (tenant_id, effect_key) do update set
          was = e.state, state = excluded.state, item_was = e.item_state, class_was = e.item_class,
          item_state = case when excluded.item_state is not null then excluded.item_state
            when e.state = 'uncertain' and excluded.state = 'absent' then 'failed' else e.item_state end,
          item_class = case when excluded.item_state is not null then excluded.item_class
            when e.state = 'uncertain' and excluded.state = 'absent' then 'transient' else e.item_class end,
          effect_ref = coalesce(excluded.effect_ref, e.effect_ref),
          send_by = case when ${source} = 'worker' then clock_timestamp() else e.send_by end,
          updated_at = clock_timestamp()
        where e.send = excluded.send and e.operation_id = excluded.operation_id and e.ord = excluded.ord
          and ((e.state in ('intent', 'uncertain') and e.state <> excluded.state)
            or (e.state = 'absent' and excluded.state = 'applied'))
        returning e.tenant_id, e.operation_id, e.ord, e.step, e.effect_key, e.send, e.attempt, e.item_key, e.input_hash, e.was,
          e.state, e.item_was, e.class_was, e.item_state, e.item_class,
          case when e.step <> '' and e.state = 'applied' then step_after((select steps from me), e.step) end as next_step),
      m as materialized (
        select v.tenant_id, v.operation_id, v.ord, v.step, v.next_step, v.effect_key, v.send, v.attempt, v.was, v.state,
          -- a row that was not there: a worker has outlived a restore, and saw what the lost time had sent (restores.ts)
          case when v.item_key <> '' then v.item_key else (select i.item_key from operation_items i, me
            where i.tenant_id = me.tenant_id and i.operation_id = me.operation_id and i.ord = v.ord) end as item_key,
          case when v.item_key <> '' then v.input_hash else (select i.input_hash from operation_items i, me
            where i.tenant_id = me.tenant_id and i.operation_id = me.operation_id and i.ord = v.ord) end as input_hash,
          v.item_was, v.class_was, u.effect_ref, u.evidence_ref, u.fingerprint,
          case when v.next_step is not null and u.item = 'skipped' then concat_ws(' ', 'skipped:', u.reason_code)
            else u.message end as message,
          case when v.next_step is null then v.item_state when v.item_was = 'uncertain' then 'failed' else v.item_was end
            as item_now,
          case when v.next_step is null then v.item_class when v.item_was = 'uncertain' then 'transient' else v.class_was end
            as class_now,
          case when v.next_step is null then u.retry_ms when s.goes_on then 0 end as retry_ms,
          case when v.next_step is null then u.retry_reason else 'next_step' end as retry_reason,
          case when v.next_step is not null then case when v.item_was = 'uncertain' or not s.goes_on then 'failed' end
            when s.took_back then 'failed' else u.item end as item,
          case when v.next_step is not null or s.took_back then 'transient' else u.class end as class,
          case when v.next_step is not null
              then case when v.item_was = 'uncertain' or not s.goes_on then 'NEXT_STEP_DUE' else 'STEP_APPLIED' end
            when s.took_back then 'NOT_SENT' else u.reason_code end as reason_code
        from moved v join u using (ord), lateral (
          select
            -- an unsent item that was already called uncertain by a takeover needs an entry that takes this back
            u.item is null and v.was = 'uncertain' and v.state = 'absent' as took_back,
            -- what had failed for good is not set going by late evidence
            case when v.next_step is null then null when v.was <> 'absent' then true else exists (
              select from item_retries r
              where r.tenant_id = ${shard.tenantId} and r.operation_id = ${shard.operationId}::uuid and r.ord = v.ord)
              end as goes_on) s),
      entry as (
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, failure_class, reason_code,
          message, effect_key, send, input_hash, effect_ref, evidence_ref, source, actor, worker_id, code_version)
        select me.tenant_id, me.operation_id, m.ord, m.item_key, m.step, m.attempt, m.item,
          case m.item when 'uncertain' then 'ambiguous_effect' when 'failed' then m.class end,
          m.reason_code, m.message, m.effect_key, m.send, m.input_hash, m.effect_ref, m.evidence_ref,
          case when ${source} = 'worker' and not me.mine then 'late_worker' else ${source} end,
          ${evidence.actor}, ${evidence.workerId}::uuid, ${evidence.codeVersion}
        from m, me where m.item is not null or m.next_step is not null),
      gone as (
        -- by the key of each: of the operation alone, the planner would read all that waits in it, once an item
        delete from item_retries r using m
        where r.tenant_id = m.tenant_id and r.operation_id = m.operation_id and r.ord = m.ord and m.retry_ms is null
        returning 1),
      again as (
        insert into item_retries as r (tenant_id, operation_id, ord, shard, step, effect_key, attempt, run_at, reason,
          prior_state, prior_class)
        select me.tenant_id, me.operation_id, m.ord, me.shard, coalesce(m.next_step, m.step),
          case when m.next_step is null then m.effect_key else step_key(m.effect_key, m.step, m.next_step) end,
          case when m.next_step is not null then 1 when m.item is null or m.retry_reason = 'unsent' then m.attempt
            else m.attempt + 1 end,
          now() + m.retry_ms * interval '1 ms', m.retry_reason, m.item_now, m.class_now
        from m, me where m.retry_ms is not null
        on conflict (tenant_id, operation_id, ord) do update set
          step = excluded.step, effect_key = excluded.effect_key, attempt = excluded.attempt, run_at = excluded.run_at,
          reason = excluded.reason, prior_state = excluded.prior_state, prior_class = excluded.prior_class
        returning (r.xmax = 0) as fresh),
      opened as (
        insert into reconciliation_cases as c (tenant_id, operation_id, shard, ord, type, item_key, step, effect_key, send,
          cause, next_lookup_at)
        select me.tenant_id, me.operation_id, me.shard, m.ord, me.type, m.item_key, m.step, m.effect_key, m.send,
          case ${source} when 'recovery' then 'worker_lost' else 'send_outcome_unknown' end,
          clock_timestamp() + ${evidence.lookupAfterMs}::int * interval '1 ms'
        from m, me where m.state = 'uncertain'
        -- an item has one open case: one that held nothing back becomes the one that does, or the doubt would never close
        on conflict (tenant_id, operation_id, ord) where closed_at is null do update set
          cause = excluded.cause, step = excluded.step, effect_key = excluded.effect_key, send = excluded.send,
          next_lookup_at = excluded.next_lookup_at, note = concat_ws(': ', c.cause, c.note)
        where c.cause in ('duplicate_suspected', 'contradiction')),
      closed as (
        update reconciliation_cases c set
          closed_at = clock_timestamp(), next_lookup_at = null,
          resolution = case m.state when 'applied' then 'applied' else 'not_applied' end,
          resolved_by = coalesce(${evidence.actor}, 'system:' || ${source}), resolution_source = ${source},
          evidence_ref = m.evidence_ref, effect_ref = m.effect_ref,
          last_lookup = case ${source} when 'lookup' then m.state else c.last_lookup end
        from me, m
        where c.tenant_id = me.tenant_id and c.operation_id = me.operation_id and c.ord = m.ord and c.closed_at is null
          and c.cause in ('send_outcome_unknown', 'worker_lost') and m.state in ('applied', 'absent')),
      dead as (
        insert into dead_letters (tenant_id, operation_id, ord, type, item_key, step, effect_key, failure_class, reason_code,
          message, attempts, fingerprint)
        select me.tenant_id, me.operation_id, m.ord, me.type, m.item_key, m.step, m.effect_key, m.class, m.reason_code,
          m.message, m.attempt, m.fingerprint
        from m, me where m.fingerprint is not null
        on conflict (tenant_id, operation_id, ord) do nothing),
      e as (select * from m where item is not null),
      n as (
        select count(*) as moved, count(*) filter (where was = 'intent') as landed,
          (select count(*) filter (where fresh) from again) - (select count(*) from gone) as waiting,
          (select min(retry_ms) from m) as next_ms
        from m),
      c as (
        select
          count(*) filter (where item = 'applied') - count(*) filter (where item_was = 'applied') as applied,
          count(*) filter (where item = 'skipped') - count(*) filter (where item_was = 'skipped') as skipped,
          count(*) filter (where item = 'failed') - count(*) filter (where item_was = 'failed') as failed,
          count(*) filter (where item = 'uncertain') - count(*) filter (where item_was = 'uncertain') as uncertain,
          count(*) filter (where item = 'failed' and class = 'transient')
            - count(*) filter (where item_was = 'failed' and class_was = 'transient') as transient,
          count(*) filter (where item = 'failed' and class = 'validation_rejected')
            - count(*) filter (where item_was = 'failed' and class_was = 'validation_rejected') as validation_rejected,
          count(*) filter (where item = 'failed' and class = 'conflict')
            - count(*) filter (where item_was = 'failed' and class_was = 'conflict') as conflict,
          count(*) filter (where item = 'failed' and class = 'policy_denied')
            - count(*) filter (where item_was = 'failed' and class_was = 'policy_denied') as policy_denied,
          count(*) filter (where item = 'failed' and class = 'bug_suspected')
            - count(*) filter (where item_was = 'failed' and class_was = 'bug_suspected') as bug_suspected,
          count(*) filter (where item = 'applied') as newly_applied
        from e),
      counted as (
        update operation_shards s set
          version = s.version + 1, in_flight = s.in_flight - n.landed, waiting = s.waiting + n.waiting,
          applied = s.applied + c.applied, skipped = s.skipped + c.skipped, failed = s.failed + c.failed,
          uncertain = s.uncertain + c.uncertain, failed_transient = s.failed_transient + c.transient,
          failed_validation_rejected = s.failed_validation_rejected + c.validation_rejected,
          failed_conflict = s.failed_conflict + c.conflict,
          failed_policy_denied = s.failed_policy_denied + c.policy_denied,
          failed_bug_suspected = s.failed_bug_suspected + c.bug_suspected,
          applied_after_cancel = s.applied_after_cancel
            + case s.stop_requested when 'cancel' then c.newly_applied else 0 end,
          claims = case when ${source} = 'worker' and me.mine then 0 else s.claims end,
          last_progress_at = clock_timestamp(),
          state = case when s.state = 'done' and n.waiting > 0 and s.stop_requested is null then 'ready' else s.state end,
          run_at = case when s.state <> 'leased' and n.next_ms is not null
            then least(case s.state when 'ready' then s.run_at end, now() + n.next_ms * interval '1 ms') else s.run_at end
        from n, c, me
        where s.tenant_id = me.tenant_id and s.operation_id = me.operation_id and s.shard = me.shard and n.moved > 0
        returning s.state)
      select (select coalesce(string_agg(ord::text, ','), '') from m) as moved, me.mine, me.stop_requested,
        coalesce((select state from counted), '') as state
      from me`,
    also: Promise.all([
      undoings.length > 0 ? markCompensated(sql, shard, undoings, evidence) : undefined,
      evidence.audit ? auditMoved(sql, shard, evidence) : undefined,
      also === null ? undefined : also(sql),
    ]),
  }))
  if (!row) return null
  return {
    moved: new Set(row.moved === '' ? [] : row.moved.split(',').map(Number)),
    mine: row.mine,
    stopRequested: row.stop_requested,
    done: row.state === 'done',
  }
}

/** Of a person's evidence, which speaks of one effect: told only if it moved, which its row knows of its transaction. */
const auditMoved = (sql: Sql, { tenantId }: ShardKey, { audit, reports }: Evidence): Promise<unknown> =>
  sql`
    insert into audit_entries
    select a.* from effects e, audit_row(e.tenant_id, ${auditJson(audit)}::text::jsonb) a
    where e.tenant_id = ${tenantId} and e.effect_key = ${reports[0]?.effectKey ?? null} and e.xmin = pg_current_xact_id()::xid`
