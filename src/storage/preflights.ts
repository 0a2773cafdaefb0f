import type { Audited } from '../domain/audit.ts'
import type { ItemState } from '../domain/ledger.ts'
import type { OperationStatus } from '../domain/operation.ts'
import { texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

/**
 * Which items a replay takes: every given list restricts; null restricts nothing. Failure classes restrict failed items only.
 * Items that are done are taken by the replay of an artifact, and by no other.
 */
export interface ReplayScope {
  states: (ItemState | 'unprocessed')[]
  failureClasses: string[]
  itemKeys: string[] | null
}

/** Which applied items a compensation takes back; null: all of them. */
export interface CompensationScope {
  itemKeys: string[] | null
}

export interface ReplayFacts {
  status: OperationStatus
  type: string
  typeVersion: number
  codeVersion: string
  /** The operation's and all its shards': grows with every change of a fact below. */
  version: number
  stopIf: string[]
  failed: number
  confirmed: number
  uncertain: number
  validationRejected: number
  unprocessed: number
  deadLetters: number
  targets: number
  /** Targets whose last failure looks like a bug of ours. */
  bugTargets: number
  /** Names the set of targets, whatever its size. */
  targetsHash: string
  /** Of the scope's keys, those that no item has; at most UNKNOWN_KEYS_MAX of them. */
  unknownKeys: string[]
  itemsPurged: boolean
  /** Then the counts and targets above are not to be had any more. */
  ledgerPurged: boolean
  /** Replays of this operation that are not final. */
  liveReplays: string[]
  /** Compensations of this operation that are not final. */
  liveCompensations: string[]
  /** What it compensates itself; its replay does too. */
  compensates: string | null
  /** Null: nothing was ever checkpointed. */
  lastCheckpointAgeSeconds: number | null
}

export const UNKNOWN_KEYS_MAX = 100
/** Targets hashed at once, so that a million of them never stand in one text. */
export const HASH_CHUNK = 1_000

/**
 * What a replay in this scope would meet, from one snapshot: the latest entry with a state is an item's outcome, an item
 * without one is unprocessed. Null: no such operation.
 */
export const readReplayFacts = async (
  { sql }: Connection,
  key: { tenantId: number; operationId: string },
  scope: ReplayScope,
): Promise<ReplayFacts | null> => {
  const keys = scope.itemKeys === null ? null : texts(scope.itemKeys)
  const [row] = await sql<ReplayFacts>`
    with o as materialized (
      select * from operations where tenant_id = ${key.tenantId} and id = ${key.operationId}::uuid),
    shard as (
      select coalesce(sum(version), 0) as version, max(last_progress_at) as last_progress_at
      from operation_shards where tenant_id = ${key.tenantId} and operation_id = ${key.operationId}::uuid),
    -- a sort of the two together, not a join: no estimate can make it quadratic
    item as materialized (
      select distinct on (ord) ord, item_key, state, failure_class
      from (
        select ord, item_key, seq, state, failure_class from ledger_entries
        where tenant_id = ${key.tenantId} and operation_id = ${key.operationId}::uuid and state is not null
        union all
        select i.ord, i.item_key, null, 'unprocessed', null from operation_items i, o
        where i.tenant_id = ${key.tenantId} and i.operation_id = ${key.operationId}::uuid and i.ord < o.items_total) known
      order by ord, seq desc nulls last),
    n as (
      select count(*) filter (where state <> 'unprocessed') as settled, count(*) filter (where state = 'failed') as failed,
        count(*) filter (where state in ('applied', 'skipped')) as confirmed,
        count(*) filter (where state = 'uncertain') as uncertain,
        count(*) filter (where state = 'failed' and failure_class = 'validation_rejected') as validation_rejected
      from item),
    target as materialized (
      select ord, failure_class from item
      where state = any(${texts(scope.states)}::text[])
        and (state <> 'failed' or failure_class = any(${texts(scope.failureClasses)}::text[]))
        and (${keys}::text[] is null or item_key = any(${keys}::text[]))),
    chunk as (
      select ord / ${HASH_CHUNK}::int as part, md5(string_agg(ord::text, ',' order by ord)) as hash
      from target group by part)
    select o.status, o.type, o.type_version as "typeVersion", o.code_version as "codeVersion",
      (o.version + shard.version)::float8 as version, o.stop_if as "stopIf", n.failed::float8 as failed,
      n.confirmed::float8 as confirmed, n.uncertain::float8 as uncertain,
      n.validation_rejected::float8 as "validationRejected", (o.items_total - n.settled)::float8 as unprocessed,
      (select count(*)
        from dead_letters d, lateral (
          select l.state from ledger_entries l
          where l.tenant_id = d.tenant_id and l.operation_id = d.operation_id and l.ord = d.ord and l.state is not null
          order by l.seq desc limit 1) l
        where d.tenant_id = o.tenant_id and d.operation_id = o.id and l.state = 'failed')::float8 as "deadLetters",
      (select count(*) from target)::float8 as targets,
      (select count(*) from target where failure_class = 'bug_suspected')::float8 as "bugTargets",
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

export interface NewPreflight extends Audited {
  tenantId: number
  operationId: string
  kind: 'replay' | 'compensation'
  scope: ReplayScope | CompensationScope
  /** All that was answered. */
  facts: object
  factsHash: string
  requestedBy: string
  expiresInMinutes: number
}

export const insertPreflight = async (
  { sql }: Connection,
  preflight: NewPreflight,
): Promise<{ id: string; expiresAt: string }> => {
  const [row] = await sql<{ id: string; expiresAt: string }>`
    with p as (
      insert into replay_preflights (tenant_id, operation_id, kind, scope, facts, facts_hash, requested_by, expires_at)
      values (${preflight.tenantId}, ${preflight.operationId}::uuid, ${preflight.kind}, ${JSON.stringify(preflight.scope)}::text::jsonb,
        ${JSON.stringify(preflight.facts)}::text::jsonb, ${preflight.factsHash}, ${preflight.requestedBy},
        clock_timestamp() + ${preflight.expiresInMinutes}::int * interval '1 minute')
      returning tenant_id, id, expires_at),
    audit as (
      insert into audit_entries select a.* from p, audit_row(p.tenant_id, ${auditJson(preflight.audit)}::text::jsonb) a)
    select id, expires_at as "expiresAt" from p`
  if (!row) throw new Error('the preflight was not recorded')
  return row
}
