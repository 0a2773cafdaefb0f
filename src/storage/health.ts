/**
 * The facts behind the health report of one tenant. Each statement reads a bounded number of rows, newest or open ones
 * first, along an index: a report must answer while the service is in trouble. A count that reaches its limit is a floor.
 */
import { texts } from './array-literal.ts'
import type { Connection } from './connection.ts'

/** Shards looked at for what waits; the index gives the longest due of the highest priority first. */
const SHARDS_MAX = 50_000
/** Open operations, and the newest ones, that the figures of the last day are taken from. */
const OPERATIONS_MAX = 10_000
const DEAD_LETTERS_MAX = 100_000
const CASES_MAX = 100_000
/** Cancelled operations whose last claims are looked at, and how many items of each of their shards. */
const CANCELLED_MAX = 100
const CLAIMS_PER_SHARD_MAX = 200
const RETRIED_PER_OPERATION_MAX = 200
/** Items of settled operations whose ledger is counted. */
const AUDITED_ITEMS_MAX = 200_000

/** What a type has standing around in one tenant. */
export interface TypeStanding {
  type: string
  /** Since the oldest item that nobody works on was due; null: nothing waits. */
  oldestWaitingSeconds: number | null
  /** Open ones. */
  deadLetters: number
  casesOpenOver24h: number
  uncertain: number
  /** Items with an outcome, of operations that are open or ended in the last 24 h. */
  withOutcome: number
}

/** `types` are the installed ones; types that only rows know are added. */
export const readTypeStandings = async (
  { sql }: Connection,
  tenantId: number,
  types: readonly string[],
): Promise<TypeStanding[]> =>
  sql<TypeStanding>`
    with ready as (
      select type, run_at as since from operation_shards
      where tenant_id = ${tenantId} and state = 'ready' and run_at <= now()
      order by priority desc, run_at limit ${SHARDS_MAX}),
    -- nobody works on a shard whose lease ran out, whatever its state says
    abandoned as (
      select type, lease_expires_at as since from operation_shards
      where tenant_id = ${tenantId} and state = 'leased' and lease_expires_at <= now() limit ${SHARDS_MAX}),
    waiting as (
      select type, extract(epoch from now() - min(since))::float8 as seconds
      from (select * from ready union all select * from abandoned) w group by type),
    dead as (
      select type, count(*)::float8 as n
      from (
        select type from dead_letter_standings
        where tenant_id = ${tenantId} and closed_as is null and status = 'open' limit ${DEAD_LETTERS_MAX}) d
      group by type),
    overdue as (
      select type, count(*)::float8 as n
      from (
        select type from reconciliation_cases
        where tenant_id = ${tenantId} and closed_at is null and opened_at < now() - interval '24 hours'
        limit ${CASES_MAX}) c
      group by type),
    open as (
      select tenant_id, id from operations where tenant_id = ${tenantId} and completed_at is null
      order by id desc limit ${OPERATIONS_MAX}),
    ended as (
      select tenant_id, id from (
        select tenant_id, id, completed_at from operations where tenant_id = ${tenantId}
        order by created_at desc, id desc limit ${OPERATIONS_MAX}) newest
      where completed_at > now() - interval '24 hours'),
    outcome as (
      select s.type, sum(s.uncertain)::float8 as uncertain,
        sum(s.applied + s.skipped + s.failed + s.uncertain)::float8 as settled
      from (select * from open union all select * from ended) o
        join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
      group by s.type),
    name as (
      select type from unnest(${texts(types)}::text[]) as t (type) union select type from waiting union select type from dead
      union select type from overdue union select type from outcome)
    select n.type, w.seconds as "oldestWaitingSeconds", coalesce(d.n, 0) as "deadLetters",
      coalesce(c.n, 0) as "casesOpenOver24h", coalesce(o.uncertain, 0) as uncertain, coalesce(o.settled, 0) as "withOutcome"
    from name n left join waiting w using (type) left join dead d using (type) left join overdue c using (type)
      left join outcome o using (type)
    order by n.type`

/** How cancels of a type went in the last 24 h. */
export interface CancelStanding {
  /** From request to final status; a cancel that is still stopping counts with its age. */
  cancelToFinalP95Seconds: number | null
  effectsAfterCancel: number
}

/**
 * Per type with a cancel in the last 24 h. Effects claimed after the cancel are looked for where a claim that passed the
 * fence would show: just below the cursors, which only claims advance, and among the items that were ever tried again.
 */
export const readCancelStandings = async (
  { sql }: Connection,
  tenantId: number,
): Promise<Map<string, CancelStanding>> => {
  const rows = await sql<CancelStanding & { type: string }>`
    with newest as (
      (select id, type, cancel_requested_at, completed_at, status from operations
        where tenant_id = ${tenantId} and completed_at is null order by id desc limit ${OPERATIONS_MAX})
      union
      (select id, type, cancel_requested_at, completed_at, status from operations
        where tenant_id = ${tenantId} order by created_at desc, id desc limit ${OPERATIONS_MAX})),
    cancelled as materialized (
      select * from newest where cancel_requested_at > now() - interval '24 hours'),
    looked_at as materialized (
      select id, type, cancel_requested_at from cancelled order by cancel_requested_at desc limit ${CANCELLED_MAX}),
    -- LATERAL with LIMIT keeps these index probes, whatever the planner thinks of the tables
    touched as (
      select o.id, o.type, o.cancel_requested_at, i.ord, i.effect_key || coalesce('/' || k.step, '') as effect_key
      from looked_at o join operation_shards s on s.tenant_id = ${tenantId} and s.operation_id = o.id,
        lateral (
          select ord, effect_key from operation_items
          where tenant_id = ${tenantId} and operation_id = o.id and ord >= s.from_ord and ord < s.cursor
          order by ord desc limit ${CLAIMS_PER_SHARD_MAX}) i
        left join lateral unnest(s.steps) as k (step) on true
      union
      select o.id, o.type, o.cancel_requested_at, r.ord, r.effect_key
      from looked_at o, lateral (
        select ord, effect_key from ledger_entries
        where tenant_id = ${tenantId} and operation_id = o.id and state <> 'applied'
        order by ord desc limit ${RETRIED_PER_OPERATION_MAX}) r),
    late as (
      select t.type, count(*)::int as n
      from touched t, lateral (
        select operation_id, ord, claimed_at from effects
        where tenant_id = ${tenantId} and effect_key = t.effect_key limit 1) e
      where e.operation_id = t.id and e.ord = t.ord and e.claimed_at > t.cancel_requested_at
      group by t.type)
    select c.type, coalesce(max(l.n), 0) as "effectsAfterCancel",
      percentile_disc(0.95) within group (
        order by extract(epoch from coalesce(c.completed_at, now()) - c.cancel_requested_at)::float8)
        filter (where c.completed_at is not null or c.status = 'cancel_requested') as "cancelToFinalP95Seconds"
    from cancelled c left join late l using (type) group by c.type`
  return new Map(rows.map(({ type, ...standing }) => [type, standing]))
}

/**
 * Per type, where there are any: items of operations that ended in the last 24 h which no ledger entry explains although
 * they were claimed or counted, and which do not wait for a retry that a cancel gave up. Newest first, as many operations as
 * AUDITED_ITEMS_MAX items allow; a larger one is left to the audit of its counters.
 */
export const readLedgerRowsMissing = async ({ sql }: Connection, tenantId: number): Promise<Map<string, number>> => {
  const rows = await sql<{ type: string; missing: number }>`
    with newest as (
      select id, type, items_total, completed_at, created_at from operations
      where tenant_id = ${tenantId} order by created_at desc, id desc limit ${OPERATIONS_MAX}),
    audited as materialized (
      select id, type from (
        select id, type, sum(items_total) over (order by created_at desc, id desc) as items from newest
        where completed_at > now() - interval '24 hours' and items_total <= ${AUDITED_ITEMS_MAX}) o
      where items <= ${AUDITED_ITEMS_MAX}),
    account as (
      select o.type, greatest(s.claimed - l.explained - r.given_up, s.counted - l.explained, 0) as missing
      from audited o,
        lateral (
          select coalesce(sum(cursor - from_ord), 0) as claimed,
            coalesce(sum(applied + skipped + failed + uncertain), 0) as counted
          from operation_shards where tenant_id = ${tenantId} and operation_id = o.id) s,
        lateral (
          select count(distinct ord) as explained from ledger_entries
          where tenant_id = ${tenantId} and operation_id = o.id and state is not null) l,
        lateral (
          select count(*) as given_up from item_retries r
          where r.tenant_id = ${tenantId} and r.operation_id = o.id and not exists (
            select from ledger_entries e
            where e.tenant_id = r.tenant_id and e.operation_id = r.operation_id and e.ord = r.ord
              and e.state is not null)) r)
    select type, sum(missing)::float8 as missing from account where missing > 0 group by type`
  return new Map(rows.map((row) => [row.type, row.missing]))
}

export const readNow = async ({ sql }: Connection): Promise<string> => {
  const [row] = await sql<{ now: string }>`select clock_timestamp() as now`
  if (!row) throw new Error('the database did not tell the time')
  return row.now
}
