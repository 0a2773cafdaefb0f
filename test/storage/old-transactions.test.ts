/** What an old transaction of somebody else does to claims, and where it shows. */
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { measure } from '../../src/services/measure.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType, plantedTypes } from '../support/planted-operation.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'old transactions' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

const oldest = async (): Promise<number | undefined> => {
  const gauges = await measure({ database, types: plantedTypes(plantedType('grant')) })
  return gauges.find(({ name }) => name === 'oldest_transaction_seconds')?.values[0]?.value
}

test('a held snapshot and an open write show as the oldest transaction; an idle session does not (case 99)', async () => {
  const session = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
  const held = async (begin: string, statement: string): Promise<number | undefined> => {
    await session.unsafe(begin)
    await session.unsafe(statement)
    await session.unsafe('select pg_sleep(0.05)')
    const seconds = await oldest()
    await session.unsafe('rollback')
    return seconds
  }
  try {
    await session.unsafe('select 1')
    expect(await oldest()).toBe(0)
    // it holds a snapshot, and no row
    expect(await held('begin isolation level repeatable read', 'select 1 from operations')).toBeGreaterThan(0.05)
    // it holds a row, and no snapshot
    expect(await held('begin', "insert into tenants (id, name) values (77, 'open')")).toBeGreaterThan(0.05)
    expect(await oldest()).toBe(0)
  } finally {
    await session.end()
  }
})

test('no session of ours may stay idle in a transaction: the server ends it (case 99)', async () => {
  const [row] = await database.query(
    ({ sql }) => sql<{ ms: number }>`
      select setting::int as ms from pg_settings where name = 'idle_in_transaction_session_timeout'`,
  )
  expect(row?.ms).toBeGreaterThan(0)
  expect(row?.ms).toBeLessThan(30_000)
})
