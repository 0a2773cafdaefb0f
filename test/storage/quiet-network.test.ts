/** F6: a network that went quiet, or a server that is frozen: no error comes, and no answer either. */
import { sql as fragment } from 'drizzle-orm'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { openTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts'

let testDatabase: TestDatabase
let proxy: TcpProxy
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
})
beforeEach(async () => {
  proxy = await openTcpProxy(testDatabase.url)
  database = openDatabase({ url: proxy.url, size: 1, name: 'quiet', statementMs: 1_000, silenceMs: 200 })
  await database.query(({ sql }) => sql`select 1`)
})
afterEach(async () => {
  await database.close()
  await proxy.close()
})
afterAll(() => testDatabase.drop())

const WORK: [name: string, work: () => Promise<unknown>][] = [
  ['a statement', () => database.query(({ sql }) => sql`select 1`)],
  ['a composed read', () => database.query(({ db }) => db.execute(fragment`select 1`))],
  ['a transaction', () => database.transaction(({ sql }) => sql`select 1`)],
  ['a pipeline', () => database.lockThenWork((sql) => ({ lock: sql`select 1`, work: sql`select 2` }))],
]
test.each(WORK)('%s that is never answered ends as a lost connection, and the next one works', async (_name, work) => {
  proxy.pause()
  await expect(work()).rejects.toMatchObject({ code: 'database-unavailable' })
  proxy.resume()
  await work()
})

test('what is answered in time is not touched, however long the whole takes', async () => {
  const steps = await database.transaction(async ({ sql }) => {
    for (let step = 0; step < 4; step++) await sql`select pg_sleep(0.5)`
    return 'all'
  })
  expect(steps).toBe('all')
})
