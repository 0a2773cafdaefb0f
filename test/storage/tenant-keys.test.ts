/**
 * `tenant_id` leads every key, so that the schema can be distributed by it and no key of one tenant meets that of another; what
 * departs from it is named in tenant-exceptions.ts. And statements that are composed keep to one tenant, as all others do
 * (test/unit/tenant-statements.test.ts).
 */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  findBulkAction,
  findBulkActionByKey,
  listBulkActionRows,
  listBulkTargetRows,
} from '../../src/storage/bulk-actions.ts'
import type { Connection } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { findDeadLetterRow, listDeadLetterRows } from '../../src/storage/dead-letters.ts'
import { listIncidentRows } from '../../src/storage/incidents.ts'
import { listItemRows } from '../../src/storage/items.ts'
import { listOperationIds } from '../../src/storage/operations.ts'
import { findCaseRow, listCaseRows } from '../../src/storage/reconciliation.ts'
import { findDeliveryRow, listDeliveryRows } from '../../src/storage/webhook-deliveries.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { TENANT } from '../support/races.ts'
import { readsOf } from '../support/statement-reads.ts'
import {
  INDEXES_WITHOUT_TENANT,
  KEYS_WITHOUT_TENANT,
  SERVICE_TABLES,
  TENANT_TABLES,
} from '../support/tenant-exceptions.ts'
import { unheldTables } from '../support/tenant-predicates.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 1, name: 'tenant keys' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

const namesIn = (exceptions: ReadonlyMap<string, readonly string[]>): string[] => [...exceptions.values()].flat().sort()
const names = (rows: { name: string }[]): string[] => rows.map(({ name }) => name).sort()

test('every table has the column, and none of its rows is without it', async () => {
  const rows = await database.query(
    ({ sql }) => sql<{ name: string }>`
      select relname as name from pg_class c
      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition and not exists (
        select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id' and a.attnotnull)`,
  )
  expect(names(rows)).toEqual(namesIn(SERVICE_TABLES))
})

/** Indexes of tenants' tables whose first column is not the tenant. */
const indexesWithoutTenant = (unique: boolean): Promise<{ name: string }[]> =>
  database.query(
    ({ sql }) => sql<{ name: string }>`
      select i.relname as name from pg_index x
        join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
        left join pg_attribute a on a.attrelid = t.oid and a.attnum = x.indkey[0]
      where t.relnamespace = 'public'::regnamespace and not t.relispartition and x.indisunique = ${unique}
        and a.attname is distinct from 'tenant_id' and t.relname not in (select * from unnest(${`{${namesIn(SERVICE_TABLES).join(',')}}`}::text[]))`,
  )

test('it leads every primary key and every unique index', async () => {
  expect(names(await indexesWithoutTenant(true))).toEqual(namesIn(KEYS_WITHOUT_TENANT))
})

test('it leads every other index, but for those that serve the whole service', async () => {
  expect(names(await indexesWithoutTenant(false))).toEqual(namesIn(INDEXES_WITHOUT_TENANT))
})

test('a foreign key never leads out of its tenant', async () => {
  const keys = await database.query(
    ({ sql }) => sql<{ name: string }>`
      select c.conname as name from pg_constraint c
        join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
        join pg_attribute f on f.attrelid = c.confrelid and f.attnum = c.confkey[1]
      where c.contype = 'f' and c.connamespace = 'public'::regnamespace
        and (a.attname <> 'tenant_id' or f.attname not in ('tenant_id', 'id'))`,
  )
  expect(keys).toEqual([])
})

const id = randomUUID()
const AT = { createdAt: '2026-01-01 00:00:00+00', id }
const OPERATIONS = {
  ...{ status: ['running'], type: 'grant', requestedBy: 'tester', labels: { a: 'b' } },
  ...{
    createdAfter: '2026-01-01T00:00:00Z',
    createdBefore: '2026-02-01T00:00:00Z',
    replayOf: id,
    itemKey: 'i',
    effectKey: 'e',
  },
}
const CASES = { operationId: id, type: 'grant', status: ['open'], itemKey: 'i' }
const LETTERS = { operationId: id, type: 'grant', failureClass: ['transient'], fingerprint: 'fp', status: ['open'] }

test.each<[string, (connection: Connection) => Promise<unknown>]>([
  ['operations', (c) => listOperationIds(c, TENANT, OPERATIONS, AT, 10)],
  ['items', (c) => listItemRows(c, TENANT, id, { state: ['failed'], failureClass: ['transient'], key: 'i' }, 1, 10)],
  ['cases', (c) => listCaseRows(c, TENANT, CASES, null, 10)],
  ['a case', (c) => findCaseRow(c, TENANT, id)],
  ['dead letters', (c) => listDeadLetterRows(c, TENANT, LETTERS, null, 10)],
  ['a dead letter', (c) => findDeadLetterRow(c, TENANT, id)],
  [
    'open incidents',
    (c) => listIncidentRows(c, TENANT, { type: 'grant', fingerprint: 'fp', status: ['open'] }, null, 10),
  ],
  [
    'resolved incidents',
    (c) => listIncidentRows(c, TENANT, { type: null, fingerprint: null, status: ['resolved'] }, null, 10),
  ],
  ['deliveries', (c) => listDeliveryRows(c, TENANT, id, 1, 10)],
  ['a delivery', (c) => findDeliveryRow(c, TENANT, id)],
  ['bulk actions', (c) => listBulkActionRows(c, TENANT, { action: ['replay'], status: ['running'] }, AT, 10)],
  ['a bulk action', (c) => findBulkAction(c, TENANT, id)],
  ['a bulk action by its key', (c) => findBulkActionByKey(c, TENANT, 'key')],
  ['targets of a bulk action', (c) => listBulkTargetRows(c, TENANT, id, ['done'], 1, 10)],
])('%s are read of one tenant', async (_, read) => {
  const statements = await readsOf(database, ({ connection }) => read(connection))
  expect(statements).not.toEqual([])
  for (const { text } of statements) expect(unheldTables(text, TENANT_TABLES), text).toEqual([])
})
