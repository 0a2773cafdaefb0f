import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { renewLeases } from '../../src/storage/run/heartbeat.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { claimOne, claimWindow, items, storeOperation, tell, untilWaiting, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'converge locks' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

/** As a change of the schema does, or the janitor for a moment when it makes a partition. */
const holdTable = async (table: string): Promise<{ release(): Promise<void> }> => {
  const sql = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
  await sql.unsafe(`begin; lock table ${table} in access exclusive mode`)
  return {
    async release() {
      await sql.unsafe('commit')
      await sql.end()
    },
  }
}

test.each(['effects', 'ledger_entries', 'item_retries', 'reconciliation_cases', 'dead_letters'])(
  'outcomes that wait for the table %s do not hold their shard meanwhile: its lease is renewed',
  async (table) => {
    await storeOperation(database, { items: items(1, () => 'k0') })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    const holder = await holdTable(table)
    const told = tell(database, lease, { ord: 0, effectKey: 'k0' }, { effect: 'applied', item: 'applied' })
    await untilWaiting(database, 1)
    const renewed = await database.query((connection) => renewLeases(connection, lease.workerId, [lease]))
    await holder.release()
    expect((await told).moved).toEqual(new Set([0]))
    expect(renewed).toMatchObject([{ operationId: lease.operationId, epoch: lease.epoch }])
  },
)
