import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { afterAll, beforeAll, expect } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { createHistory } from '../invariants/history.ts'
import { checkInvariants } from '../invariants/invariants.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  items,
  NO_WAKE_UPS,
  readShard,
  storeOperation,
  TENANT,
  tell,
} from '../support/races.ts'
import { faultTest } from './harness/fault.ts'

let testDatabase: TestDatabase
let rivals: [Database, Database]
let sql: postgres.Sql
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  const open = (name: string) => openDatabase({ url: testDatabase.url, size: 2, name })
  rivals = [open('one worker'), open('another worker')]
  sql = postgres(testDatabase.url, { max: 2, onnotice: () => {} })
})
afterAll(async () => {
  await Promise.all(rivals.map((database) => database.close()))
  await sql.end()
  await testDatabase.drop()
})

const takeOver = (database: Database): Promise<ClaimedShard[]> =>
  database.query((connection) => claimExpiredShards(connection, { workerId: randomUUID(), types: [GRANT], limit: 1 }))

const ITEMS = 3

faultTest(
  'F5',
  'two workers race for one expired lease: one claims it, under the next epoch, and the old one moves nothing any more',
  { short: 200, long: 1_000 },
  async ({ each, random, fail }) => {
    const [one, another] = rivals
    const keys = items(ITEMS)
    const operationId = await storeOperation(one, { items: keys })
    let holder = await claimOne(one)
    await each(async () => {
      await expireLease(one, holder)
      const racing = random.below(2) === 0 ? [one, another] : [another, one]
      const claimed = (await Promise.all(racing.map(takeOver))).flat()
      expect(claimed).toMatchObject([{ operationId, shard: 0, epoch: holder.epoch + 1, cursor: 0 }])
      expect(await claimWindow(one, holder, 0, ITEMS)).toBeNull()
      expect(await finishShard(another, holder)).toBeNull()
      expect(await readShard(one, holder)).toMatchObject({
        state: 'leased',
        lease_epoch: holder.epoch + 1,
        cursor: 0,
        intents: 0,
      })
      holder = claimed[0] as ClaimedShard
    })
    // nobody races any more: the last one does the work
    const history = createHistory()
    const id = formatId('op', operationId)
    await history.record('submit', { operationId: id, items: ITEMS }, async () => ({ status: 202, body: {} }))
    expect((await claimWindow(one, holder, 0, ITEMS))?.size).toBe(ITEMS)
    for (const [ord, { effectKey }] of keys.entries())
      await tell(one, holder, { ord, effectKey }, { effect: 'applied', item: 'applied' })
    expect(await finishShard(one, holder)).toMatchObject({ state: 'done' })
    expect(await settleOperation({ database: one, wakeUps: NO_WAKE_UPS }, TENANT, operationId)).toBe('succeeded')
    const violations = await checkInvariants({ history, sql, judges: [], phase: 'end' })
    if (violations.length > 0) fail(violations)
  },
)
