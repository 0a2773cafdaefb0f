import { compensationKey } from '../domain/compensation.ts'
import type { OperationStatus } from '../domain/operation.ts'
import { texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'
import { type DerivedOperation, type Insertion, insertDerived, ORDS_PER_STATEMENT } from './derived-operations.ts'
import { type CompensationScope, HASH_CHUNK, UNKNOWN_KEYS_MAX } from './preflights.ts'

/**
 * Its targets are items whose outcome is `applied`, and whose effect still is, by this very operation: what was skipped is
 * somebody else's, and what is compensated is done. The effect is the one that the outcome's entry names, which is the last
 * step's where an item has steps; earlier ones may have been applied by an operation before, which this one replays.
 */
export interface CompensationFacts {
  status: OperationStatus
  type: string
  typeVersion: number
  codeVersion: string
  /** The operation's and all its shards'. What compensations have undone stands in `targetsHash` instead. */
  version: number
  stopIf: string[]
  /** Items whose outcome is `applied`. */
  applied: number
  uncertain: number
  targets: number
  /** Names the set of targets and their sends, whatever its size. */
  targetsHash: string
  /** Of the scope's keys, those that no item has; at most UNKNOWN_KEYS_MAX of them. */
  unknownKeys: string[]
  itemsPurged: boolean
  /** Then the counts and targets above are not to be had any more. */
  ledgerPurged: boolean
  /** Replays and compensations of this operation that are not final. */
  liveReplays: string[]
  liveCompensations: string[]
  /** What it compensates itself. */
  compensates: string | null
  /** Null: nothing was ever checkpointed. */
  lastCheckpointAgeSeconds: number | null
}

/** What a compensation in this scope would meet, from one snapshot. Null: no such operation. */
export const readCompensationFacts = async (
  { sql }: Connection,
  key: { tenantId: number; operationId: string },
  scope: CompensationScope,
): Promise<CompensationFacts | null> => {
  const keys = scope.itemKeys === null ? null : texts(scope.itemKeys)
  const [row] = await sql<CompensationFacts>`
    with o as materialized (
      select * from operations where tenant_id = ${key.tenantId} and id = ${key.operationId}::uuid),
    shard as (
      select coalesce(sum(version), 0) as version, max(last_progress_at) as last_progress_at
      from operation_shards where tenant_id = ${key.tenantId} and operation_id = ${key.operationId}::uuid),
    item as materialized (
      select distinct on (ord) ord, item_key, state, effect_key from ledger_entries
      where tenant_id = ${key.tenantId} and operation_id = ${key.operationId}::uuid and state is not null
      order by ord, seq desc),
    n as (
      select count(*) filter (where state = 'applied') as applied, count(*) filter (where state = 'uncertain') as uncertain
      from item),
    target as materialized (
      select t.ord, e.send
      from item t join effects e on e.tenant_id = ${key.tenantId} and e.effect_key = t.effect_key
      where t.state = 'applied' and e.state = 'applied' and e.operation_id = ${key.operationId}::uuid and e.ord = t.ord
        and (${keys}::text[] is null or t.item_key = any(${keys}::text[]))),
    chunk as (
      select ord / ${HASH_CHUNK}::int as part, md5(string_agg(ord || ':' || send, ',' order by ord)) as hash
      from target group by part)
    select o.status, o.type, o.type_version as "typeVersion", o.code_version as "codeVersion",
      (o.version + shard.version)::float8 as version, o.stop_if as "stopIf", n.applied::float8 as applied,
      n.uncertain::float8 as uncertain, (select count(*) from target)::float8 as targets,
      (select md5(coalesce(string_agg(hash, '' order by part), '')) from chunk) as "targetsHash",
      (select coalesce(jsonb_agg(u.k), '[]') from (
        select k from unnest(${keys}::text[]) as k
        where not exists (
          select from operation_items i
          where i.tenant_id = o.tenant_id and i.operation_id = o.id and i.item_key = k and i.ord < o.items_total
          offset 0) -- one index probe a key
        limit ${UNKNOWN_KEYS_MAX}) u) as "unknownKeys",
      o.items_purged_at is not null as "itemsPurged", o.ledger_purged_at is not null as "ledgerPurged",
      (select coalesce(jsonb_agg(r.id order by r.id), '[]') from operations r
        where r.tenant_id = o.tenant_id and r.replay_of = o.id and r.completed_at is null) as "liveReplays",
      (select coalesce(jsonb_agg(c.id order by c.id), '[]') from operations c
        where c.tenant_id = o.tenant_id and c.compensates = o.id and c.completed_at is null) as "liveCompensations",
      o.compensates,
      floor(extract(epoch from clock_timestamp() - shard.last_progress_at))::float8 as "lastCheckpointAgeSeconds"
    from o, shard, n`
  return row ?? null
}

export interface NewCompensation extends DerivedOperation {
  scope: CompensationScope
}

/** Makes the compensation of a preflight; how, and why so, says derived-operations.ts. */
export const insertCompensation = (
  database: Database,
  compensation: NewCompensation,
  ordsPerStatement = ORDS_PER_STATEMENT,
): Promise<Insertion> =>
  insertDerived(
    database,
    compensation,
    { kind: 'compensation', order: 'descending', copy: (sql, range) => copyItems(sql, compensation, range) },
    ordsPerStatement,
  )

/** What stands before the send and before the effect key in the key of a compensation, as the domain writes it. */
const [KEY_START = '', KEY_MIDDLE = ''] = compensationKey({ effectKey: '', step: '', send: 0 }).split('0')

/**
 * Copies the targets among the items [from, to), the last one first, to the place `at` and on. Input and item key stay; the
 * effect key is that of the undoing of this send, of the item as a whole.
 */
const copyItems = async (
  sql: Sql,
  { tenantId, id, of, scope }: NewCompensation,
  { from, to, at }: { from: number; to: number; at: number },
): Promise<number> => {
  const keys = scope.itemKeys === null ? null : texts(scope.itemKeys)
  const [copied] = await sql<{ items: number }>`
    with item as (
      select distinct on (ord) ord, state, effect_key from ledger_entries
      where tenant_id = ${tenantId} and operation_id = ${of}::uuid and ord >= ${from} and ord < ${to} and state is not null
      order by ord, seq desc),
    copied as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select i.tenant_id, ${id}::uuid, ${at} + row_number() over (order by i.ord desc) - 1, i.item_key,
        ${KEY_START}::text || step_effect_key(e.send::text, e.step) || ${KEY_MIDDLE}::text || i.effect_key, i.input, i.input_hash
      from item t
        join operation_items i
          on i.tenant_id = ${tenantId} and i.operation_id = ${of}::uuid and i.ord = t.ord and i.ord >= ${from} and i.ord < ${to}
        join effects e on e.tenant_id = ${tenantId} and e.effect_key = t.effect_key
      where t.state = 'applied' and e.state = 'applied' and e.operation_id = ${of}::uuid and e.ord = i.ord
        and (${keys}::text[] is null or i.item_key = any(${keys}::text[]))
      returning 1)
    select count(*)::int as items from copied`
  return copied?.items ?? 0
}
