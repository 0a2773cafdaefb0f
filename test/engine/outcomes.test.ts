import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { HeldShard } from '../../src/engine/held-shard.ts'
import { returnUnclear, writePatiently } from '../../src/engine/outcomes.ts'
import { NO_OBJECT_STORE } from '../../src/objects/object-store.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType } from '../support/planted-operation.ts'
import { claimOne, claimWindow, items, readShard, storeOperation, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'outcomes' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const nothing = () => {}
const context = () => ({
  database,
  wakeUps: { send: nothing, on: () => nothing, close: async () => {} },
  meter: { record: nothing, items: nothing, retries: nothing, stop: async () => {} },
  objects: NO_OBJECT_STORE,
  log: pino({ level: 'silent' }),
})
const heldWith = async (count: number) => {
  await storeOperation(database, { items: items(count) })
  const lease = await claimOne(database)
  const won = await claimWindow(database, lease, 0, count)
  expect(won?.size).toBe(count)
  return new HeldShard(lease, plantedType(lease.type), performance.now())
}
const effects = async () => {
  const rows = await database.query(
    ({ sql }) => sql<{ ord: number; state: string }>`select ord, state from effects order by ord`,
  )
  return rows.map(({ ord, state }) => [ord, state])
}

it('what a claim without an answer left behind goes back; what was sent and not written stays an intent', async () => {
  const held = await heldWith(4)
  // 2 and 3 were asked for by the claim whose answer was lost; 0 and 1 were sent, and their outcomes could not be written
  await returnUnclear(context(), held, new Set([2, 3]))
  expect(await effects()).toEqual([
    [0, 'intent'],
    [1, 'intent'],
    [2, 'absent'],
    [3, 'absent'],
  ])
  expect(await readShard(database, held.lease)).toMatchObject({ in_flight: 2, intents: 2, waiting: 2, retries: 2 })
})

it('a report that the database refuses takes no other with it', async () => {
  const held = await heldWith(5)
  const keys = await database.query(
    ({ sql }) => sql<{ ord: number; effect_key: string }>`select ord, effect_key from effects order by ord`,
  )
  const reports = keys.map(({ ord, effect_key }) =>
    report(
      { ord, effectKey: effect_key, send: 1 },
      ord === 3
        ? { effect: 'absent', item: 'failed', failureClass: null } // a failure without a class cannot be stored
        : { effect: 'applied', item: 'applied' },
    ),
  )
  await writePatiently(context(), held, reports)
  expect(await effects()).toEqual([
    [0, 'applied'],
    [1, 'applied'],
    [2, 'applied'],
    [3, 'intent'],
    [4, 'applied'],
  ])
})
