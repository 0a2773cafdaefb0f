/** A service that has worked for long: many operations that ended, a few that wait, and one large one in the middle of its run. */
import { randomUUID } from 'node:crypto'
import type { Database } from '../../src/storage/database.ts'
import type { ChunkTexts } from '../../src/storage/item-chunk.ts'
import { TENANT } from './races.ts'

/** Of one item each; one in a hundred still waits for a worker. */
const OPERATIONS = 40_000
/** Items of each of the four shards of the large operation. */
export const QUARTER = 10_000
/** Under which its first shard is leased. */
export const EPOCH = 2
/** Behind these in its first shard: 200 items that wait for a retry, then 100 in flight, then the cursor. */
export const RETRIES_FROM = QUARTER / 2 - 300

/** A chunk of an upload. */
export const CHUNK_TEXTS: ChunkTexts = (() => {
  const keys = Array.from({ length: 100 }, (_, n) => n)
  const array = (text: (n: number) => string): string => `{${keys.map((n) => `"${text(n)}"`).join(',')}}`
  const inputs = array(() => '{}')
  return {
    ...{ count: keys.length, keys: array((n) => `new${n}`), effectKeys: array((n) => `new:${n}`), inputs },
    inputHashes: array(() => 'h'),
  }
})()

interface OperationKey {
  tenantId: number
  operationId: string
}

export interface Planted {
  big: OperationKey
  draft: OperationKey
  /** One of those that wait. */
  pending: string
  /** Who leases the first shard of the large one. */
  worker: string
  /** When the middle one of all operations was created. */
  halfway: string
  /** Tables of which nothing may be read from end to end. */
  bigTables: ReadonlySet<string>
}

const BIG_ROWS = 10_000

export const plantHistory = async (database: Database): Promise<Planted> => {
  const worker = randomUUID()
  await database.transaction(async ({ script }) => {
    await script(`
      create temp table ids on commit drop as
        select g, overlay(uuid_v7_floor(now())::text placing lpad(to_hex(g), 12, '0') from 25)::uuid as id
        from generate_series(1, ${OPERATIONS + 2}) g;
      create temp table big on commit drop as select id from ids where g = ${OPERATIONS + 1};
      create temp table old on commit drop as select * from ids where g <= ${OPERATIONS};
      insert into operations (tenant_id, id, version, type, type_version, code_version, status, items_total, requested_by, risk, root_id,
          idempotency_key, labels, created_at, started_at, completed_at)
        select 1, id, 3, 'grant', 1, 'c1', case g % 100 when 0 then 'pending' else 'succeeded' end, 1, 'tester', 'low', id,
          'key:' || g, case g % 1000 when 7 then '{"batch": "b1"}' else '{}' end::jsonb,
          now() - (${OPERATIONS} - g) * interval '1 s', case when g % 100 > 0 then now() end,
          case when g % 100 > 0 then now() end from old
        union all
        select 1, id, 3, 'grant', 1, 'c1', 'running', ${4 * QUARTER}, 'tester', 'low', id, null, '{}', now(), now(), null from big
        union all
        select 1, id, 3, 'grant', 1, 'c1', 'draft', 0, 'tester', 'low', id, null, '{}', now(), null, null from ids
        where g = ${OPERATIONS + 2};
      insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
        select 1, id, version, 'accepted', 'pending', 'tester' from ids, generate_series(1, 3) version;
      insert into operation_uploads (tenant_id, operation_id, id, state, from_ord, added, upload_key, request_hash, requested_by,
          completed_at)
        select 1, id, id, 'done', 0, 1, 'u' || g, 'h', 'tester', now() from old;
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state, applied)
        select 1, id, 0, 'grant', 1, 0, 1, sign(g % 100), case g % 100 when 0 then 'ready' else 'done' end, sign(g % 100)
        from old;
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state,
          lease_owner, lease_expires_at, lease_epoch, lease_ms, in_flight, waiting, applied, failed, failed_transient, uncertain)
        select 1, id, 0, 'grant', 1, 0, ${QUARTER}, ${QUARTER / 2}, 'leased', '${worker}'::uuid, now() + interval '1 h',
          ${EPOCH}, 30000, 100, 200, ${RETRIES_FROM}, 200, 200, 0 from big
        union all
        select 1, id, 1, 'grant', 1, ${QUARTER}, ${2 * QUARTER}, ${QUARTER}, 'ready', null, null, 0, null, 0, 0, 0, 0, 0, 0
        from big
        union all
        select 1, id, 2, 'grant', 1, ${2 * QUARTER}, ${3 * QUARTER}, ${3 * QUARTER}, 'done', null, null, 1, null, 0, 0,
          ${QUARTER - 300}, 0, 0, 300 from big
        union all
        select 1, id, 3, 'grant', 1, ${3 * QUARTER}, ${4 * QUARTER}, ${4 * QUARTER}, 'done', null, null, 1, null, 0, 0,
          ${QUARTER - 100}, 100, 100, 0 from big;
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
        select 1, id, 0, 'i0', 'old:' || g, '{}'::jsonb, 'h' from old
        union all
        select 1, id, o, 'i' || o, 'big:' || o, '{}', 'h' from big, generate_series(0, ${4 * QUARTER - 1}) o;
      create temp table outcome on commit drop as
        select id, o as ord, o / ${QUARTER} as shard,
          case when o between ${RETRIES_FROM} and ${RETRIES_FROM + 199} then 'waiting' when o < ${QUARTER / 2}
            and o >= ${RETRIES_FROM + 200} then 'intent' when o between ${2 * QUARTER} and ${2 * QUARTER + 299} then 'uncertain'
            when o >= ${4 * QUARTER - 100} then 'dead' else 'applied' end as what
        from big, generate_series(0, ${4 * QUARTER - 1}) o
        where o < ${QUARTER / 2} or o >= ${2 * QUARTER};
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, item_state, send_by)
        select 1, 'old:' || g, 'applied', 1, id, 0, 0, 1, 1, 'i0', 'h', 'applied', now() from old where g % 100 > 0
        union all
        select 1, 'big:' || ord, case what when 'waiting' then 'absent' when 'dead' then 'absent' else what end, 1, id, shard,
          ord, 1, case what when 'intent' then ${EPOCH} else 1 end, 'i' || ord, 'h',
          case what when 'intent' then null when 'waiting' then 'failed' when 'dead' then 'failed' else what end, now()
        from outcome;
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, send,
          input_hash, source, code_version)
        select 1, id, 0, 'i0', 1, 'applied', null, 'old:' || g, 1, 'h', 'worker', 'c1' from old where g % 100 > 0
        union all
        select 1, id, ord, 'i' || ord, 1, case what when 'waiting' then 'failed' when 'dead' then 'failed' else what end,
          case what when 'waiting' then 'transient' when 'dead' then 'transient' when 'uncertain' then 'ambiguous_effect' end,
          'big:' || ord, 1, 'h', 'worker', 'c1' from outcome where what <> 'intent';
      insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason, prior_state, prior_class)
        select 1, id, 0, 0, 'old:' || g, 2, 'failed', 'failed', 'transient' from old where g % 3 = 1
        union all
        select 1, id, ord, shard, 'big:' || ord, 2, 'failed', 'failed', 'transient' from outcome where what = 'waiting';
      insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause,
          next_lookup_at, closed_at, resolution)
        select 1, id, 0, 0, 'grant', 'i0', 'old:' || g, 1, 'send_outcome_unknown', null, now(), 'applied' from old
        where g % 2 = 1
        union all
        select 1, id, shard, ord, 'grant', 'i' || ord, 'big:' || ord, 1, 'send_outcome_unknown', now() + interval '1 h', null,
          null from outcome where what = 'uncertain';
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint,
          closed_at, closed_by, close_reason, closed_as)
        select 1, id, 0, 'grant', 'i0', 'old:' || g, 'transient', 3, 'fp' || g % 100, now(), 'tester', 'r', 'discarded'
        from old where g % 3 = 0
        union all
        select 1, id, ord, 'grant', 'i' || ord, 'big:' || ord, 'transient', 3, 'fp', null, null, null, null
        from outcome where what = 'dead';
      insert into replay_preflights (tenant_id, operation_id, scope, facts, facts_hash, requested_by, expires_at, used_by)
        select 1, id, '{}', '{}', 'h', 'tester', now() + interval '15 min', case g % 2 when 0 then id end from old;
      insert into callback_inbox (type, event_id, body_hash, state, effect_key, tenant_id, operation_id, shard, ord, item_key,
          send, outcome, processed_at)
        select 'grant', g, 'h', 'applied', 'old:' || g, 1, id, 0, 0, 'i0', 1, 'known', now() from old where g % 3 = 0`)
  })
  return database.query(async ({ sql, script }) => {
    await script('vacuum analyze')
    const tables = await sql<{ name: string }>`
      select regexp_replace(relname, '_[0-9]{6}$', '') as name from pg_class
      where relkind = 'r' and relnamespace = 'public'::regnamespace and reltuples >= ${BIG_ROWS}::float8`
    const [row] = await sql<{ big: string; draft: string; pending: string; halfway: string }>`
      select (select id from operations where status = 'running') as big,
        (select id from operations where status = 'draft') as draft,
        (select id from operations where status = 'pending' limit 1) as pending,
        (select percentile_disc(0.5) within group (order by created_at) from operations) as halfway`
    if (!row) throw new Error('nothing was planted')
    const named = (operationId: string): OperationKey => ({ tenantId: TENANT, operationId })
    const { pending, halfway } = row
    const bigTables = new Set(tables.map(({ name }) => name))
    return { big: named(row.big), draft: named(row.draft), pending, worker, halfway, bigTables }
  })
}
