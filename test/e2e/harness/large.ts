import { formatId } from '../../../src/domain/ids.ts'
import { openDatabase } from '../../../src/storage/database.ts'

/** What a service has after some months: many operations of one item each, and one of a million in the middle of its run. */
export const OPERATIONS = 100_000
export const ITEMS = 1_000_000
/** Of the large one; the rest is applied. */
export const FAILED = 500
export const UNCERTAIN = 40
export const OUTCOMES = 600_000

const PLANT_MS = 300_000

/** Answers with the id of the large operation. */
export const plantLarge = async (url: string, type: { name: string; version: number }): Promise<string> => {
  const database = openDatabase({ url, size: 1, name: 'planter', statementMs: PLANT_MS })
  try {
    const id = await database.transaction(async ({ sql, script }) => {
      await script(`
        create temp table ids on commit drop as
          select g, (left(uuid_v7_floor(now() - (${OPERATIONS} - g) * interval '1 s')::text, 14) || '7000-8000-'
            || lpad(to_hex(g), 12, '0'))::uuid as id
          from generate_series(1, ${OPERATIONS + 1}) g;
        create temp table big on commit drop as select id from ids where g = ${OPERATIONS + 1};
        create temp table old on commit drop as select * from ids where g <= ${OPERATIONS};
        insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, risk, root_id,
            labels, created_at, started_at, completed_at)
          select 1, id, '${type.name}', ${type.version}, 'c1', case g % 100 when 0 then 'failed' else 'succeeded' end, 1,
            'tester', 'low', id, '{}'::jsonb, now() - (${OPERATIONS} - g) * interval '1 s', now(), now() from old
          union all
          select 1, id, '${type.name}', ${type.version}, 'c1', 'running', ${ITEMS}, 'tester', 'low', id, '{}', now(), now(), null
          from big;
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
          select 1, id, 1, 'accepted', 'pending', 'tester' from ids;
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state, applied,
            failed, failed_transient)
          select 1, id, 0, '${type.name}', ${type.version}, 0, 1, 1, 'done', sign(g % 100), 1 - sign(g % 100),
            1 - sign(g % 100) from old;
        -- nobody goes on with it: it waits until long after the test
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state, run_at,
            applied, failed, failed_transient, uncertain)
          select 1, id, 0, '${type.name}', ${type.version}, 0, ${ITEMS}, ${OUTCOMES}, 'ready', now() + interval '1 day',
            ${OUTCOMES - FAILED - UNCERTAIN}, ${FAILED}, ${FAILED}, ${UNCERTAIN} from big;
        insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
          select 1, id, 0, 'order-' || g, 'old:' || g, '{}'::jsonb, 'h' from old
          union all
          select 1, id, o, 'user-' || o, 'big:' || o, '{}', 'h' from big, generate_series(0, ${ITEMS - 1}) o;
        create temp table outcome on commit drop as
          select id, o as ord, case when o < ${OUTCOMES - FAILED - UNCERTAIN} then 'applied' when o < ${OUTCOMES - UNCERTAIN}
            then 'failed' else 'uncertain' end as state
          from big, generate_series(0, ${OUTCOMES - 1}) o;
        insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key, input_hash,
            item_state, send_by)
          select 1, 'big:' || ord, case state when 'failed' then 'absent' else state end, 1, id, 0, ord, 1, 1, 'user-' || ord, 'h',
            state, now() from outcome;
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, send, input_hash,
            source, code_version)
          select 1, id, 0, 'order-' || g, 1, case g % 100 when 0 then 'failed' else 'applied' end,
            case g % 100 when 0 then 'transient' end, 'old:' || g, 1, 'h', 'worker', 'c1' from old
          union all
          select 1, id, ord, 'user-' || ord, 1, state,
            case state when 'failed' then 'transient' when 'uncertain' then 'ambiguous_effect' end, 'big:' || ord, 1, 'h', 'worker',
            'c1' from outcome;
        insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause)
          select 1, id, 0, ord, '${type.name}', 'user-' || ord, 'big:' || ord, 1, 'send_outcome_unknown' from outcome
          where state = 'uncertain'`)
      const [row] = await sql<{ id: string }>`select id from operations where items_total = ${ITEMS}`
      if (!row) throw new Error('nothing was planted')
      return row.id
    })
    await database.query(({ script }) => script('vacuum analyze'))
    return formatId('op', id)
  } finally {
    await database.close()
  }
}
