/**
 * Forgetting chains by age (domain/retention.ts says which and why). Two parts, each of them claims what it works on:
 *
 *   mark    lock the chain, read its facts, judge, write the time and an event      one short transaction a chain
 *   delete  rows of one marked operation, a batch of them (purge-rows.ts)          one transaction a batch
 *
 * Why the mark is safe beside everything else: it locks the operations of the chain by id and then their shards (L1), and
 * passes over the chain where somebody has one of them in hand, so it waits for nobody. What makes a chain longer (a replay,
 * a compensation) locks the operation that it is made of, and evidence locks its shard: either it committed before, and the facts
 * (read in a statement after the locks, L4) show it, or it comes after, and finds the mark: a moved version, `purged`.
 * Of a chain whose items are gone no further operation can be made, so nothing can claim a key that is bound to it.
 *
 * Why readers never take a part for the whole: the mark is committed before the first row is deleted, and a reader looks at
 * the mark after it has read its rows (services/kept.ts).
 *
 * A crash between two batches leaves `purge_open`, which makes any worker go on; a batch that is repeated finds fewer rows.
 * All rows are found by the key of their operation, so the size of the tables does not matter. Months of the ledger stay as
 * empty partitions: to drop one takes a lock that stops every writer.
 *
 * What evidence finds later: an effect that is kept (its key is not bound) still moves, with an entry and a counter, as
 * its state is what protects from a repeat; one that was forgotten is unknown, and nothing is written.
 * An effect that was given back unsent, at a cancel, is named by no entry; its row, a few an operation, stays.
 */
import type { ChainFacts, PurgeStage } from '../domain/retention.ts'
import { texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'

export interface ChainKey {
  tenantId: number
  /** The root. */
  operationId: string
}

export interface ChainPlace extends ChainKey {
  endedAt: string
}

/** Roots of a type that ended more than `olderThanDays` ago, behind `after`, oldest first. */
export const readAgedChains = async (
  { sql }: Connection,
  asked: { stage: PurgeStage; type: string; olderThanDays: number; after: ChainPlace | null; limit: number },
): Promise<ChainPlace[]> => {
  const { after } = asked
  // the condition of each index, said as it stands there
  return asked.stage === 'items'
    ? sql<ChainPlace>`
        select tenant_id as "tenantId", id as "operationId", completed_at as "endedAt" from operations
        where type = ${asked.type} and id = root_id and completed_at is not null and items_purged_at is null
          and completed_at <= now() - ${asked.olderThanDays}::int * interval '1 day'
          and (completed_at, tenant_id, id) > (${after?.endedAt ?? '-infinity'}::timestamptz, ${after?.tenantId ?? 0}::int,
            ${after?.operationId ?? '00000000-0000-0000-0000-000000000000'}::uuid)
        order by completed_at, tenant_id, id limit ${asked.limit}`
    : sql<ChainPlace>`
        select tenant_id as "tenantId", id as "operationId", completed_at as "endedAt" from operations
        where type = ${asked.type} and id = root_id and items_purged_at is not null and ledger_purged_at is null
          and completed_at <= now() - ${asked.olderThanDays}::int * interval '1 day'
          and (completed_at, tenant_id, id) > (${after?.endedAt ?? '-infinity'}::timestamptz, ${after?.tenantId ?? 0}::int,
            ${after?.operationId ?? '00000000-0000-0000-0000-000000000000'}::uuid)
        order by completed_at, tenant_id, id limit ${asked.limit}`
}

/**
 * Marks a chain as purged, if `judge` lets it go. Answers with the ids of its operations; null: it is kept, was marked by
 * another janitor, or somebody has a part of it in hand.
 */
export const markChain = (
  database: Database,
  chain: ChainKey,
  stage: PurgeStage,
  judge: (facts: ChainFacts) => { goes: boolean; reason: string },
): Promise<string[] | null> =>
  database.transaction(async ({ sql }) => {
    const locked = await lockChain(sql, chain)
    if (locked === null) return null
    const { operations, shards, isNext, ...facts } = await readChainFacts(sql, chain, stage)
    if (operations !== locked.operations || shards !== locked.shards || !isNext) return null
    const { goes, reason } = judge(facts)
    return goes ? writeMark(sql, chain, stage, reason) : null
  })

/** Null: another session has a row of it. */
const lockChain = async (sql: Sql, chain: ChainKey): Promise<{ operations: number; shards: number } | null> => {
  const ids = await sql<{ id: string }>`
    select id from operations
    where tenant_id = ${chain.tenantId} and root_id = ${chain.operationId}::uuid order by id for no key update skip locked`
  if (ids.length === 0) return null
  const [shards] = await sql<{ n: number }>`
    with locked as materialized (
      select 1 from operation_shards
      where tenant_id = ${chain.tenantId} and operation_id = any(${texts(ids.map(({ id }) => id))}::uuid[])
      order by operation_id, shard for no key update skip locked)
    select count(*)::int as n from locked`
  return { operations: ids.length, shards: shards?.n ?? 0 }
}

interface LockedChainFacts extends ChainFacts {
  operations: number
  shards: number
  /** The stage is the next one: a janitor whose list is old finds here that another one was faster. */
  isNext: boolean
}

const readChainFacts = async (sql: Sql, chain: ChainKey, stage: PurgeStage): Promise<LockedChainFacts> => {
  const [row] = await sql<LockedChainFacts>`
    select count(*)::int as operations, coalesce(sum(s.n), 0)::int as shards,
      bool_and(case when ${stage === 'items'} then o.items_purged_at is null
        else o.items_purged_at is not null and o.ledger_purged_at is null end) as "isNext",
      (count(*) filter (where o.completed_at is null))::int as open,
      coalesce(extract(epoch from clock_timestamp() - greatest(max(o.completed_at), max(s.last_progress_at),
        max(closed.at))) * 1000, 0)::float8 as "sinceChangeMs",
      coalesce(sum(s.unexplained), 0)::float8 as unexplained,
      bool_or(exists (
        select from reconciliation_cases c
        where c.tenant_id = o.tenant_id and c.operation_id = o.id and c.closed_at is null)) as "openCases",
      bool_or(exists (
        select from dead_letters d
        where d.tenant_id = o.tenant_id and d.operation_id = o.id and d.closed_as is null and not exists (
          select from effects e
          where e.tenant_id = d.tenant_id and e.effect_key = d.effect_key and e.state in ('applied', 'compensated')
          offset 0))) as "activeDeadLetters", -- one index probe a letter
      bool_or(exists (
        select from callback_inbox i
        where i.tenant_id = o.tenant_id and i.operation_id = o.id and i.processed_at is null)) as "callbacksPending",
      bool_or(exists (
        select from bulk_action_targets t join bulk_actions b on b.tenant_id = t.tenant_id and b.id = t.bulk_id
        where t.tenant_id = o.tenant_id and t.operation_id = o.id and t.state = 'pending'
          and (b.status <> 'dry_run' or b.expires_at > now()))) as "bulkPending",
      bool_or(o.purge_open) as purging
    from operations o, lateral (
      select count(*) as n, max(s.last_progress_at) as last_progress_at, sum(s.uncertain + s.in_flight) as unexplained
      from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id) s,
      lateral (
        -- by a person, who may want to show why
        select greatest(
          (select max(c.closed_at) from reconciliation_cases c where c.tenant_id = o.tenant_id and c.operation_id = o.id),
          (select max(d.closed_at) from dead_letters d where d.tenant_id = o.tenant_id and d.operation_id = o.id)) as at) closed
    where o.tenant_id = ${chain.tenantId} and o.root_id = ${chain.operationId}::uuid`
  if (!row) throw new Error('an aggregate has one row')
  return row
}

const EVENTS = { items: 'items_purged', ledger: 'ledger_purged' } as const satisfies Record<PurgeStage, string>

const writeMark = async (sql: Sql, chain: ChainKey, stage: PurgeStage, reason: string): Promise<string[]> => {
  const isItems = stage === 'items'
  const rows = await sql<{ id: string }>`
    with o as (
      update operations set
        items_purged_at = case when ${isItems} then clock_timestamp() else items_purged_at end,
        ledger_purged_at = case when not ${isItems} then clock_timestamp() end,
        purge_open = true, version = version + 1
      where tenant_id = ${chain.tenantId} and root_id = ${chain.operationId}::uuid
      returning tenant_id, id, version, status),
    shard as (
      update operation_shards s set purged = true from o
      where s.tenant_id = o.tenant_id and s.operation_id = o.id and not s.purged),
    event as (
      insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
      select tenant_id, id, version, ${EVENTS[stage]}, status, 'system:retention', ${reason} from o)
    select id from o order by id`
  return rows.map(({ id }) => id)
}
