import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { addDuration } from '../../src/domain/latency.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import {
  addTypeMinutes,
  emptyDelta,
  readTypeWindows,
  readUsualP95,
  type TypeDelta,
} from '../../src/storage/type-minutes.ts'
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

const delta = (type: string, figures: Partial<TypeDelta>, callMs?: number): TypeDelta => {
  const empty = emptyDelta(type)
  return { ...empty, latency: callMs === undefined ? empty.latency : addDuration(empty.latency, callMs), ...figures }
}
const add = (workerId: string, deltas: TypeDelta[]): Promise<void> =>
  database.query((connection) => addTypeMinutes(connection, workerId, deltas))
const age = (interval: string): Promise<unknown> =>
  database.query(({ sql }) => sql`update type_minutes set minute = minute - ${interval}::text::interval`)

test('flushes of several workers add up, also within a minute', async () => {
  const [first, second] = [randomUUID(), randomUUID()]
  const flushed = delta('grant "role"', { calls: 1, errors: 1, items: 3, rejected: 2, retries: 1 }, 4)
  await add(first, [flushed, delta('import', { calls: 1 }, 100)])
  await add(first, [flushed])
  await add(second, [flushed])
  const windows = await database.query((connection) => readTypeWindows(connection, 5))
  expect(windows.get('grant "role"')).toEqual({ calls: 3, errors: 3, items: 9, rejected: 6, retries: 3, p95Ms: 4.9 })
  expect(windows.get('import')).toMatchObject({ calls: 1, errors: 0, p95Ms: 98.5 })
  expect(windows.size).toBe(2)
})

test('a row of fewer buckets is added to by position', async () => {
  const worker = randomUUID()
  await database.query(
    ({ sql }) => sql`
      insert into type_minutes (type, minute, worker_id, calls, latency)
      values ('old', date_trunc('minute', now()), ${worker}::uuid, 1, '{1}')`,
  )
  await add(worker, [delta('old', { calls: 1 }, 1)])
  const [row] = await database.query(({ sql }) => sql<{ latency: string }>`select latency::text from type_minutes`)
  expect(row?.latency).toMatch(/^\{2,0,0,/)
})

test('a window ends where it says, and a type without calls has no p95', async () => {
  await add(randomUUID(), [delta('old', { calls: 1 }, 10)])
  await age('6 minutes')
  await add(randomUUID(), [delta('quiet', { items: 2 })])
  const recent = await database.query((connection) => readTypeWindows(connection, 5))
  expect([...recent.keys()]).toEqual(['quiet'])
  expect(recent.get('quiet')?.p95Ms).toBeNull()
  const hour = await database.query((connection) => readTypeWindows(connection, 60))
  expect([...hour.keys()].sort()).toEqual(['old', 'quiet'])
})

test('the usual p95 is that of a week, without the last hour', async () => {
  const usual = () => database.query((connection) => readUsualP95(connection, ['grant', 'import', 'never']))
  await add(randomUUID(), [delta('grant', { calls: 1 }, 1_000)])
  expect(await usual()).toEqual(new Map())
  await age('8 days')
  expect(await usual()).toEqual(new Map())
  const few = Array.from({ length: 19 }, () => delta('grant', { calls: 1 }, 4))
  for (const one of few) await add(randomUUID(), [one, delta('import', { items: 1 })])
  await age('2 hours')
  // nineteen calls are not enough to learn from
  expect(await usual()).toEqual(new Map())
  await add(randomUUID(), [delta('grant', { calls: 1 }, 4)])
  await age('2 hours')
  await add(randomUUID(), [delta('grant', { calls: 1 }, 1_000)])
  expect((await usual()).get('grant')).toBeCloseTo(4.9)
  expect((await usual()).size).toBe(1)
})
