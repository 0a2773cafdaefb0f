import type { Audited } from '../domain/audit.ts'
import type { Json } from '../domain/operation-type.ts'
import { ints, texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import type { ShardKey } from './run/lease.ts'

/** An uncertain effect that is due to be asked about, with everything it takes to ask. */
export interface DueLookup extends ShardKey {
  caseId: string
  type: string
  ord: number
  itemKey: string
  /** '' for an item without steps. */
  step: string
  effectKey: string
  send: number
  attempt: number
  /** Lookups of this case, this one included. */
  lookups: number
  input: Json | undefined
  cancelled: boolean
  /** The effect takes another one back. */
  compensating: boolean
  /** Since the last instant at which the send could still begin, be it in a time that a restore has lost. */
  sinceSendByMs: number
  /** Since the operation started, or the time began that a restore has lost: no send of it is older. */
  sinceStartMs: number
}

interface LookupRow {
  tenant_id: number
  id: string
  operation_id: string
  shard: number
  ord: number
  type: string
  item_key: string
  step: string
  effect_key: string
  send: number
  attempt: number
  lookups: number
  input: Json | null
  cancelled: boolean
  compensating: boolean
  since_send_by_ms: number
  since_start_ms: number
}

const parse = (row: LookupRow): DueLookup => ({
  tenantId: row.tenant_id,
  caseId: row.id,
  operationId: row.operation_id,
  shard: row.shard,
  ord: row.ord,
  type: row.type,
  itemKey: row.item_key,
  step: row.step,
  effectKey: row.effect_key,
  send: row.send,
  attempt: row.attempt,
  lookups: row.lookups,
  input: row.input ?? undefined,
  cancelled: row.cancelled,
  compensating: row.compensating,
  sinceSendByMs: row.since_send_by_ms,
  sinceStartMs: row.since_start_ms,
})

/**
 * Takes cases whose lookup is due, oldest first; each is pushed out by `holdMs`, so that two reconcilers never ask at once and
 * a dead one only delays it. `only` names one case, asked now whatever its time. Cases of other causes are not looked up.
 */
export const takeDueLookups = async (
  { sql }: Connection,
  take: Audited & {
    types: readonly string[]
    limit: number
    holdMs: number
    only: { tenantId: number; caseId: string } | null
  },
): Promise<DueLookup[]> => {
  const rows = await sql<LookupRow>`
    with due as materialized (
      select tenant_id, id from reconciliation_cases
      where closed_at is null and type = any(${texts(take.types)}::text[])
        and cause in ('send_outcome_unknown', 'worker_lost')
        and case when ${take.only !== null} then tenant_id = ${take.only?.tenantId ?? 0} and id = ${take.only?.caseId ?? null}::uuid
          else next_lookup_at <= now() end
      order by next_lookup_at limit ${take.limit}
      for no key update skip locked),
    taken as (
      update reconciliation_cases c set
        lookups = c.lookups + 1, next_lookup_at = now() + ${take.holdMs} * interval '1 ms'
      from due where c.tenant_id = due.tenant_id and c.id = due.id
      returning c.*),
    audit as (
      insert into audit_entries select a.* from taken t, audit_row(t.tenant_id, ${auditJson(take.audit)}::text::jsonb) a)
    select c.tenant_id, c.id, c.operation_id, c.shard, c.ord, c.type, c.item_key, e.step, c.effect_key, e.send, e.attempt,
      c.lookups, i.input, o.cancel_requested_at is not null as cancelled, o.compensates is not null as compensating,
      (extract(epoch from clock_timestamp() - greatest(e.send_by, (select max(restored_at) from restores))) * 1000)::float8
        as since_send_by_ms,
      (extract(epoch from clock_timestamp() - sends_since(o.created_at, o.started_at)) * 1000)::float8 as since_start_ms
    from taken c
      join effects e on e.tenant_id = c.tenant_id and e.effect_key = c.effect_key and e.operation_id = c.operation_id
        and e.ord = c.ord and e.state = 'uncertain'
      join operations o on o.tenant_id = c.tenant_id and o.id = c.operation_id
      left join operation_items i on i.tenant_id = c.tenant_id and i.operation_id = c.operation_id and i.ord = c.ord`
  return rows.map(parse)
}

/** When to ask again, and what the last answer was. `null`: a person has to decide. */
export const scheduleLookup = async (
  { sql }: Connection,
  lookup: { tenantId: number; caseId: string; nextInMs: number | null; answer: string },
): Promise<void> => {
  await sql`
    update reconciliation_cases set
      next_lookup_at = now() + ${lookup.nextInMs}::float8 * interval '1 ms', last_lookup = ${lookup.answer}
    where tenant_id = ${lookup.tenantId} and id = ${lookup.caseId}::uuid and closed_at is null`
}

/**
 * Queues the repeat of a send whose outcome is unknown, where the provider deduplicates by effect key. The effect stays
 * `uncertain` until a worker claims it. False: a stop came first, or it is no longer uncertain.
 */
export const queueResend = (database: Database, lookup: DueLookup): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${lookup.tenantId} and operation_id = ${lookup.operationId}::uuid and shard = ${lookup.shard}
      for no key update`,
    work: sql`
      with added as (
        insert into item_retries (tenant_id, operation_id, ord, shard, step, effect_key, attempt, reason, prior_state)
        select e.tenant_id, e.operation_id, e.ord, e.shard, e.step, e.effect_key, e.attempt + 1, 'idempotent_resend', 'uncertain'
        from effects e join operation_shards s on s.tenant_id = e.tenant_id and s.operation_id = e.operation_id
          and s.shard = e.shard
        where e.tenant_id = ${lookup.tenantId} and e.effect_key = ${lookup.effectKey} and e.send = ${lookup.send}
          and e.operation_id = ${lookup.operationId}::uuid and e.ord = ${lookup.ord} and e.state = 'uncertain'
          and s.stop_requested is null
        on conflict do nothing
        returning tenant_id, operation_id, shard)
      update operation_shards s set
        waiting = s.waiting + 1, version = s.version + 1,
        state = case s.state when 'done' then 'ready' else s.state end,
        run_at = case s.state when 'leased' then s.run_at else now() end
      from added a where s.tenant_id = a.tenant_id and s.operation_id = a.operation_id and s.shard = a.shard
      returning 1`.then((rows) => rows.length > 0),
  }))

/** Items in doubt because of another item's effect, where that effect is explained by now. */
export const readExplainedDoubts = async (
  { sql }: Connection,
  limit: number,
): Promise<(ShardKey & { ords: number[] })[]> => {
  const rows = await sql<{ tenant_id: number; operation_id: string; shard: number; ords: number[] }>`
    with explained as (
      select c.tenant_id, c.operation_id, c.shard, c.ord
      from reconciliation_cases c
        left join effects e on e.tenant_id = c.tenant_id and e.effect_key = c.effect_key
      where c.closed_at is null and c.cause = 'in_doubt_elsewhere'
        and (e.state is null or e.state in ('applied', 'absent', 'compensated'))
      limit ${limit})
    select tenant_id, operation_id, shard, jsonb_agg(ord order by ord) as ords from explained
    group by tenant_id, operation_id, shard`
  return rows.map((row) => ({
    tenantId: row.tenant_id,
    operationId: row.operation_id,
    shard: row.shard,
    ords: row.ords,
  }))
}

/**
 * Closes the doubts of one shard from the effects that caused them: applied → `skipped`, or on to the next step; absent →
 * waits for a try of its own, uncharged (given up when the operation was cancelled). Answers with the number of items that were closed.
 * `audit` tells of somebody who said that the effects are `said`: it is written where all of them are.
 */
export const closeExplainedDoubts = (
  database: Database,
  shard: ShardKey & Audited & { ords: readonly number[]; said?: 'applied' | 'not_applied' },
): Promise<number> =>
  database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${shard.tenantId} and operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}
      for no key update`,
    work: sql<{ closed: number }>`
      with doubt as materialized (
        select c.tenant_id, c.operation_id, c.shard, c.ord, c.item_key, c.step, c.effect_key,
          coalesce(e.state, 'absent') as effect, e.effect_ref, e.send, l.attempt, l.input_hash, l.code_version,
          case when e.state = 'applied' and c.step <> '' then step_after(s.steps, c.step) end as next_step
        from reconciliation_cases c
          join operation_shards s on s.tenant_id = c.tenant_id and s.operation_id = c.operation_id and s.shard = c.shard
          left join effects e on e.tenant_id = c.tenant_id and e.effect_key = c.effect_key
          cross join lateral (
            select attempt, input_hash, code_version from ledger_entries l
            where l.tenant_id = c.tenant_id and l.operation_id = c.operation_id and l.ord = c.ord and l.state is not null
            order by l.seq desc limit 1) l
        where c.tenant_id = ${shard.tenantId} and c.operation_id = ${shard.operationId}::uuid and c.shard = ${shard.shard}
          and c.ord = any(${ints(shard.ords)}::int[]) and c.closed_at is null and c.cause = 'in_doubt_elsewhere'
          and coalesce(e.state, 'absent') in ('applied', 'absent', 'compensated')),
      closed as (
        update reconciliation_cases c set
          closed_at = clock_timestamp(), resolution = case d.effect when 'applied' then 'applied' else 'not_applied' end,
          resolved_by = 'system:reconciler', resolution_source = 'lookup', effect_ref = d.effect_ref,
          evidence_ref = 'effect:' || d.effect
        from doubt d
        where c.tenant_id = d.tenant_id and c.operation_id = d.operation_id and c.ord = d.ord and c.closed_at is null
          and c.cause = 'in_doubt_elsewhere'),
      entry as (
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, step, attempt, state, failure_class, reason_code,
          effect_key, send, input_hash, effect_ref, evidence_ref, source, actor, code_version)
        select tenant_id, operation_id, ord, item_key, step, attempt, case when skips then 'skipped' else 'failed' end,
          case when skips then null else 'transient' end,
          case when skips then 'EFFECT_ALREADY_APPLIED' when next_step is null then 'FREED_ELSEWHERE' else 'NEXT_STEP_DUE' end,
          effect_key, send, input_hash, effect_ref, 'effect:' || effect, 'lookup', 'system:reconciler', code_version
        from doubt, lateral (select effect = 'applied' and next_step is null as skips) s),
      again as (
        insert into item_retries (tenant_id, operation_id, ord, shard, step, effect_key, attempt, reason, prior_state,
          prior_class)
        select tenant_id, operation_id, ord, shard, coalesce(next_step, step),
          case when next_step is null then effect_key else step_key(effect_key, step, next_step) end,
          case when next_step is null then attempt else 1 end, case when next_step is null then 'freed' else 'next_step' end,
          'failed', 'transient'
        from doubt where effect <> 'applied' or next_step is not null
        on conflict do nothing
        returning 1),
      n as (
        select count(*) as closed, count(*) filter (where effect = 'applied' and next_step is null) as skipped,
          count(*) filter (where effect <> 'applied' or next_step is not null) as failed, (select count(*) from again) as waiting
        from doubt),
      audit as (
        insert into audit_entries
        select a.* from n, audit_row(${shard.tenantId}::int, ${auditJson(shard.audit)}::text::jsonb) a where n.closed > 0
          and not exists (select from doubt where (effect = 'applied') <> (${shard.said ?? null}::text = 'applied')))
      update operation_shards s set
        version = s.version + 1, uncertain = s.uncertain - n.closed, skipped = s.skipped + n.skipped,
        failed = s.failed + n.failed, failed_transient = s.failed_transient + n.failed, waiting = s.waiting + n.waiting,
        last_progress_at = clock_timestamp(),
        state = case when s.state = 'done' and n.waiting > 0 and s.stop_requested is null then 'ready' else s.state end,
        run_at = case when s.state = 'done' and n.waiting > 0 then now() else s.run_at end
      from n
      where s.tenant_id = ${shard.tenantId} and s.operation_id = ${shard.operationId}::uuid and s.shard = ${shard.shard}
        and n.closed > 0
      returning n.closed::int as closed`.then(([row]) => row?.closed ?? 0),
  }))
