import { is, Table } from 'drizzle-orm'
import { getTableConfig, type PgTable } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { AFTER_WHEN } from '../../src/domain/after.ts'
import { BULK_ACTIONS, BULK_STATUSES, BULK_TARGET_STATES } from '../../src/domain/bulk-action.ts'
import { CALLBACK_OUTCOMES } from '../../src/domain/callback.ts'
import { EFFECT_STATES } from '../../src/domain/effect.ts'
import { FAILURE_CLASSES } from '../../src/domain/failure.ts'
import { EVIDENCE_SOURCES, ITEM_STATES } from '../../src/domain/ledger.ts'
import { FINAL_STATUSES, OPERATION_STATUSES } from '../../src/domain/operation.ts'
import { CASE_CAUSES } from '../../src/domain/reconciliation.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { ensureLedgerPartitions } from '../../src/storage/housekeeping.ts'
import * as schema from '../../src/storage/schema.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { claimOne, claimWindow, items, storeOperation, tell } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'schema' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

/** `column type` or `column type not null`, in the order of the alphabet. */
const columnsInDatabase = async (table: string): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ name: string; type: string; required: boolean }>`
      select attname as name, format_type(atttypid, atttypmod) as type, attnotnull as required from pg_attribute
      where attrelid = ${table}::regclass and attnum > 0 and not attisdropped`,
  )
  return rows.map(({ name, type, required }) => `${name} ${type}${required ? ' not null' : ''}`).sort()
}

const tables = Object.values(schema)
  .filter((value) => is(value, Table))
  .map((table) => getTableConfig(table as PgTable))

describe('schema.ts and the migrations', () => {
  test('name the same tables', async () => {
    const rows = await database.query(
      ({ sql }) => sql<{ name: string }>`
        select relname as name from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition order by relname`,
    )
    expect(tables.map(({ name }) => name).sort()).toEqual(rows.map(({ name }) => name).sort())
  })

  test.each(tables)('$name has the same columns, types and nullability', async ({ name, columns }) => {
    const declared = columns.map(
      (column) => `${column.name} ${column.getSQLType()}${column.notNull ? ' not null' : ''}`,
    )
    expect(declared.sort()).toEqual(await columnsInDatabase(name))
  })

  test.each(tables)('$name has the same primary key', async (table) => {
    const [row] = await database.query(
      ({ sql }) => sql<{ columns: string }>`
        select string_agg(a.attname, ',' order by k.n) as columns
        from pg_constraint c, unnest(c.conkey) with ordinality as k (attnum, n), pg_attribute a
        where c.conrelid = ${table.name}::regclass and c.contype = 'p' and a.attrelid = c.conrelid and a.attnum = k.attnum`,
    )
    const single = table.columns.filter((column) => column.primary)
    const declared = table.primaryKeys[0]?.columns ?? single
    expect(declared.map((column) => column.name).join(',')).toBe(row?.columns)
  })
})

test.each([
  ['operations_status', OPERATION_STATUSES],
  ['operations_final', FINAL_STATUSES],
  ['operations_after_when', AFTER_WHEN],
  ['operation_dependencies_ended_as', FINAL_STATUSES],
  ['bulk_actions_action', BULK_ACTIONS],
  ['bulk_actions_status', BULK_STATUSES],
  ['bulk_action_targets_state', BULK_TARGET_STATES],
  ['operations_risk', ['low', 'medium', 'high']],
  ['operation_shards_state', ['ready', 'leased', 'done']],
  ['operation_shards_stop', ['pause', 'cancel']],
  ['effects_state', EFFECT_STATES],
  ['effects_item_state', ITEM_STATES],
  ['ledger_entries_state', ITEM_STATES],
  ['ledger_entries_class', FAILURE_CLASSES],
  ['ledger_entries_source', EVIDENCE_SOURCES],
  ['reconciliation_cases_cause', CASE_CAUSES],
  ['reconciliation_cases_resolution', ['applied', 'not_applied']],
  ['callback_inbox_state', ['applied', 'absent']],
  ['callback_inbox_outcome', CALLBACK_OUTCOMES],
] as const)('the CHECK %s repeats the union of the domain', async (name, union) => {
  const [row] = await database.query(
    ({ sql }) => sql<{ definition: string }>`
      select pg_get_constraintdef(oid) as definition from pg_constraint where conname = ${name} limit 1`,
  )
  const literals = [...(row?.definition ?? '').matchAll(/'([^']+)'::text/g)].map(([, literal]) => literal)
  expect(literals.sort()).toEqual([...union].sort())
})

describe('the ledger', () => {
  const entry = async () => {
    await storeOperation(database, { items: items(1, () => crypto.randomUUID()) })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    const [effect] = await database.query(
      ({ sql }) => sql<{ effect_key: string }>`
        select effect_key from effects where operation_id = ${lease.operationId}::uuid`,
    )
    await tell(database, lease, { ord: 0, effectKey: effect?.effect_key ?? '' }, { effect: 'applied', item: 'applied' })
    const [row] = await database.query(
      ({ sql }) => sql<{ partition: string }>`
        select tableoid::regclass::text as partition from ledger_entries where operation_id = ${lease.operationId}::uuid`,
    )
    return { operationId: lease.operationId, partition: row?.partition ?? '' }
  }
  const run = (text: string, retention = false) =>
    database.transaction(async ({ script }) => {
      if (retention) await script("set local opledger.retention = 'on'")
      await script(text)
    })
  const count = async (operationId: string) =>
    (await database.query(({ sql }) => sql`select 1 from ledger_entries where operation_id = ${operationId}::uuid`))
      .length

  test('writes an entry into the month of its operation', async () => {
    const { partition } = await entry()
    const month = new Date().toISOString().slice(0, 7).replace('-', '')
    expect(partition).toBe(`ledger_entries_${month}`)
  })

  test.each([
    ['update', (table: string) => `update ${table} set message = 'changed'`],
    ['delete', (table: string) => `delete from ${table}`],
    ['truncate', (table: string) => `truncate ${table}`],
  ])('refuses %s, on the table and on a partition', async (_, statement) => {
    const { operationId, partition } = await entry()
    for (const table of ['ledger_entries', partition, 'ledger_entries_default']) {
      await expect(run(statement(table))).rejects.toThrow(/the ledger is append-only/)
    }
    // also where no row would be touched
    await expect(run(`${statement('ledger_entries')} where false`.replace('truncate', 'delete from'))).rejects.toThrow()
    expect(await count(operationId)).toBe(1)
  })

  test('lets retention do so, for its own transaction only', async () => {
    const { operationId, partition } = await entry()
    await run(`update ${partition} set message = 'changed'`, true)
    await run(`delete from ledger_entries where operation_id = '${operationId}'`, true)
    expect(await count(operationId)).toBe(0)
    await expect(run('delete from ledger_entries')).rejects.toThrow(/the ledger is append-only/)
    await run(`truncate ${partition}`, true)
  })

  test('has partitions for the months to come, with the same protection', async () => {
    await database.query(ensureLedgerPartitions)
    const [far] = await database.query(
      ({ sql }) => sql<{ made: number }>`select ensure_ledger_partitions(now(), 12) as made`,
    )
    expect(far?.made).toBeGreaterThan(0)
    const unprotected = await database.query(
      ({ sql }) => sql`
        select inhrelid::regclass from pg_inherits
        where inhparent = 'ledger_entries'::regclass and not exists (
          select from pg_trigger t where t.tgrelid = inhrelid and t.tgname = 'ledger_append_only')`,
    )
    expect(unprotected).toEqual([])
  })

  test('refuses an entry that fails without a class, or succeeds with one', async () => {
    const insert = (state: string, failureClass: string | null) =>
      database.query(
        ({ sql }) => sql`
          insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key,
            input_hash, source, code_version)
          values (1, gen_random_uuid(), 0, 'k', 1, ${state}, ${failureClass}, 'e', 'h', 'worker', 'c')`,
      )
    for (const [state, failureClass] of [
      ['failed', null],
      ['uncertain', null],
      ['applied', 'transient'],
      ['skipped', 'conflict'],
      ['done', null],
    ] as const) {
      await expect(insert(state, failureClass), `${state} ${failureClass}`).rejects.toMatchObject({ code: '23514' })
    }
  })
})
