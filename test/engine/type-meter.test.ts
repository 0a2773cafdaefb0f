import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { openTypeMeter } from '../../src/engine/type-meter.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readTypeWindows } from '../../src/storage/type-minutes.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'test' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => database.query(({ sql }) => sql`delete from type_minutes`))

const recentWindows = () => database.query((connection) => readTypeWindows(connection, 5))

const openLogged = (of: Database) => {
  const lines: string[] = []
  const log = pino({ base: null, timestamp: false }, { write: (line) => lines.push(JSON.parse(line).msg) })
  return { lines, meter: openTypeMeter({ database: of, workerId: randomUUID(), log }) }
}

test('what was counted is written once, at the latest at the stop', async () => {
  const { meter, lines } = openLogged(database)
  meter.record({ type: 'grant', durationMs: 4, downstreamError: false })
  meter.record({ type: 'grant', durationMs: 4, downstreamError: true })
  meter.items('grant', 2, 1)
  meter.retries('grant', 1)
  meter.items('import', 0, 0)
  meter.retries('import', 0)
  await vi.waitFor(async () => expect((await recentWindows()).get('grant')?.calls).toBe(2), { timeout: 20_000 })
  meter.record({ type: 'grant', durationMs: 4, downstreamError: false })
  await meter.stop()
  await meter.stop()
  const windows = await recentWindows()
  expect(windows.get('grant')).toEqual({ calls: 3, errors: 1, items: 2, rejected: 1, retries: 1, p95Ms: 4.9 })
  expect(windows.has('import')).toBe(false)
  expect(lines).toEqual([])
})

test('a database that is away loses no figure and is logged once', async () => {
  let refusals = 0
  const flaky: Database = {
    ...database,
    query: (work) => {
      if (++refusals > 2) return database.query(work)
      return Promise.reject(new Error('away'))
    },
  }
  const { meter, lines } = openLogged(flaky)
  meter.record({ type: 'grant', durationMs: 4, downstreamError: false })
  await vi.waitFor(() => expect(refusals).toBe(1), { timeout: 20_000 })
  meter.record({ type: 'grant', durationMs: 100, downstreamError: true })
  meter.items('import', 5, 0)
  await vi.waitFor(() => expect(refusals).toBe(2), { timeout: 20_000 })
  meter.items('import', 5, 5)
  await meter.stop()
  const windows = await recentWindows()
  expect(windows.get('grant')).toMatchObject({ calls: 2, errors: 1 })
  expect(windows.get('import')).toMatchObject({ items: 10, rejected: 5 })
  expect(lines).toEqual([
    'the figures of the types could not be written; they are kept',
    'the figures of the types are written again',
  ])
})
