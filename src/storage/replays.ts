import { ints, texts } from './array-literal.ts'
import type { Connection, Sql, TransactionConnection } from './connection.ts'
import type { Database } from './database.ts'
import type { ReplayScope } from './preflights.ts'
import { lockOperation } from './stops.ts'

export interface RecordedPreflight {
  id: string
  operationId: string
  scope: ReplayScope
  factsHash: string
  expired: boolean
  /** The replay that it was used for. */
  usedBy: string | null
  /** The operation's version that the facts were read at. */
  version: number
}

export const readPreflight = async (
  { sql }: Connection,
  tenantId: number,
  preflightId: string,
): Promise<RecordedPreflight | null> => {
  const [row] = await sql<RecordedPreflight>`
    select id, operation_id as "operationId", scope, facts_hash as "factsHash", expires_at <= now() as expired,
      used_by as "usedBy", (facts ->> 'version')::float8 as version
    from replay_preflights where tenant_id = ${tenantId} and id = ${preflightId}::uuid`
  return row ?? null
}

export interface NewReplay {
  tenantId: number
  id: string
  preflightId: string
  /** The operation that is replayed, and its version (its shards' included) when the facts were judged. */
  of: string
  seenVersion: number
  scope: ReplayScope
  targets: number
  typeVersion: number
  codeVersion: string
  requestedBy: string
  reason: string
  approvalRequired: string | null
  /** Upper bounds of the shards' ranges, ascending; the first begins at 0. */
  shardEnds: readonly number[]
  /** Of the type as it is installed now. */
  steps: readonly string[]
  /** Null: items keep their effect keys. Otherwise these are made anew, of this and the item's key. */
  effectKeyPrefix: string | null
}

/** Source items that one statement copies: far from the limits of a statement, also where their inputs are large. */
const ORDS_PER_STATEMENT = 50_000

type Insertion = { kind: 'made' } | { kind: 'used'; by: string } | { kind: 'outdated' }

/** Ends the transaction without a trace. */
class Outdated extends Error {}

/**
 * Makes the replay of a preflight: one transaction. The preflight's row is locked first, so that of two requests with one
 * preflight the second finds the first one's replay; then the operation and its shards, so that no outcome of it changes
 * between the check and the copy. Their version must still be the judged one, and the copy find as many targets as judged.
 */
export const insertReplay = async (
  database: Database,
  replay: NewReplay,
  ordsPerStatement = ORDS_PER_STATEMENT,
): Promise<Insertion> => {
  try {
    return await database.transaction((connection) => insertLocked(connection, replay, ordsPerStatement))
  } catch (error) {
    if (error instanceof Outdated) return { kind: 'outdated' }
    throw error
  }
}

const insertLocked = async (
  { sql }: TransactionConnection,
  replay: NewReplay,
  ordsPerStatement: number,
): Promise<Insertion> => {
  const { tenantId } = replay
  const [preflight] = await sql<{ used_by: string | null; expired: boolean }>`
    select used_by, expires_at <= now() as expired from replay_preflights
    where tenant_id = ${tenantId} and id = ${replay.preflightId}::uuid for no key update`
  if (preflight?.used_by) return { kind: 'used', by: preflight.used_by }
  if (!preflight || preflight.expired) return { kind: 'outdated' }
  await lockOperation(sql, { tenantId, operationId: replay.of })
  const [now] = await sql<{ version: number; live: boolean; items: number }>`
    select (o.version + (select coalesce(sum(s.version), 0) from operation_shards s
        where s.tenant_id = o.tenant_id and s.operation_id = o.id))::float8 as version, o.items_total::int as items,
      exists (select from operations r
        where r.tenant_id = o.tenant_id and r.replay_of = o.id and r.completed_at is null) as live
    from operations o where o.tenant_id = ${tenantId} and o.id = ${replay.of}::uuid`
  if (now?.version !== replay.seenVersion || now.live) return { kind: 'outdated' }
  const status = replay.approvalRequired === null ? 'pending' : 'awaiting_approval'
  await sql`
    insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, reason,
      labels, priority, risk, stop_if, approval_required, replay_of, root_id, preflight_id, traceparent,
      callback_url)
    select tenant_id, ${replay.id}::uuid, type, ${replay.typeVersion}, ${replay.codeVersion}, ${status}, ${replay.targets},
      ${replay.requestedBy}, ${replay.reason}, labels, priority, risk, stop_if, ${replay.approvalRequired}, id, root_id,
      ${replay.preflightId}::uuid, traceparent, callback_url
    from operations where tenant_id = ${tenantId} and id = ${replay.of}::uuid`
  let copied = 0
  for (let from = 0; from < now.items; from += ordsPerStatement) {
    copied += await copyItems(sql, replay, { from, to: Math.min(from + ordsPerStatement, now.items), at: copied })
  }
  if (copied !== replay.targets) throw new Outdated()
  await sql`
    insert into operation_shards (tenant_id, operation_id, shard, type, type_version, priority, from_ord, to_ord, cursor,
      state, steps)
    select o.tenant_id, o.id, s.shard - 1, o.type, o.type_version, o.priority,
      coalesce(lag(s.to_ord) over (order by s.shard), 0), s.to_ord, coalesce(lag(s.to_ord) over (order by s.shard), 0),
      case o.status when 'pending' then 'ready' else 'done' end, ${texts(replay.steps)}::text[]
    from operations o, unnest(${ints(replay.shardEnds)}::int[]) with ordinality as s (to_ord, shard)
    where o.tenant_id = ${tenantId} and o.id = ${replay.id}::uuid`
  await sql`
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
    values (${tenantId}, ${replay.id}::uuid, 1, 'accepted', ${status}, ${replay.requestedBy}, ${replay.reason})`
  await sql`
    update replay_preflights set used_by = ${replay.id}::uuid
    where tenant_id = ${tenantId} and id = ${replay.preflightId}::uuid`
  await sql`
    with o as (
      update operations set version = version + 1
      where tenant_id = ${tenantId} and id = ${replay.of}::uuid returning tenant_id, id, version, status)
    insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
    select tenant_id, id, version, 'replayed', status, ${replay.requestedBy}, ${replay.reason} from o`
  return { kind: 'made' }
}

/**
 * Copies the targets among the items [from, to) in their order, set-wise, the first one to the place `at`. Input and effect
 * key stay as they are: the key is what keeps an effect that was applied from being sent again. Answers with their number.
 */
const copyItems = async (
  sql: Sql,
  { tenantId, id, of, scope, effectKeyPrefix }: NewReplay,
  { from, to, at }: { from: number; to: number; at: number },
): Promise<number> => {
  const keys = scope.itemKeys === null ? null : texts(scope.itemKeys)
  const [copied] = await sql<{ items: number }>`
    with item as (
      select distinct on (ord) ord, state, failure_class
      from (
        select ord, seq, state, failure_class from ledger_entries
        where tenant_id = ${tenantId} and operation_id = ${of}::uuid and ord >= ${from} and ord < ${to}
          and state is not null
        union all
        select ord, null, 'unprocessed', null from operation_items
        where tenant_id = ${tenantId} and operation_id = ${of}::uuid and ord >= ${from} and ord < ${to}) known
      order by ord, seq desc nulls last),
    copied as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select i.tenant_id, ${id}::uuid, ${at} + row_number() over (order by i.ord) - 1, i.item_key,
        coalesce(${effectKeyPrefix}::text || i.item_key, i.effect_key), i.input, i.input_hash
      from item t join operation_items i
        on i.tenant_id = ${tenantId} and i.operation_id = ${of}::uuid and i.ord = t.ord and i.ord >= ${from} and i.ord < ${to}
      where t.state = any(${texts(scope.states)}::text[])
        and (t.state <> 'failed' or t.failure_class = any(${texts(scope.failureClasses)}::text[]))
        and (${keys}::text[] is null or i.item_key = any(${keys}::text[]))
      returning 1)
    select count(*)::int as items from copied`
  return copied?.items ?? 0
}
