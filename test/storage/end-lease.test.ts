import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { endLease } from '../../src/storage/run/end-lease.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { chargeSuspect, readOrphanedIntents, unchargeSuspect } from '../../src/storage/run/window.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  holdShard,
  items,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'

const WINDOW = 4
const TYPE = { ...GRANT, windowMax: WINDOW }

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'end lease' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const claim = async (): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(20, (ord) => `k${ord}`) })
  return claimOne(database, TYPE)
}
const takeOver = async (): Promise<ClaimedShard | undefined> => {
  const claimed = await database.query((connection) =>
    claimExpiredShards(connection, { workerId: randomUUID(), types: [TYPE], limit: 1 }),
  )
  return claimed[0]
}
const crash = async (lease: ClaimedShard): Promise<ClaimedShard> => {
  await expireLease(database, lease)
  return taken(await takeOver())
}
const taken = (lease: ClaimedShard | undefined): ClaimedShard => {
  if (!lease) throw new Error('there is nothing to take over')
  return lease
}
const end = (lease: ClaimedShard, change: Partial<Parameters<typeof endLease>[2]> = {}): Promise<boolean> =>
  database.query((connection) =>
    endLease(connection, lease, { dueInMs: 0, claims: lease.claimsBefore, charge: null, ...change }),
  )
/** The run of its holder ended in a fault. */
const fault = async (lease: ClaimedShard): Promise<ClaimedShard> => {
  expect(await end(lease)).toBe(true)
  return taken(await takeOver())
}
const applied = async (lease: ClaimedShard, ord: number): Promise<void> => {
  await claimWindow(database, lease, ord, ord + 1)
  await tell(database, lease, { ord, effectKey: `k${ord}` }, { effect: 'applied', item: 'applied' })
}
const row = async () => {
  const [found] = await database.query(
    ({ sql }) => sql<{ left_ms: number; suspect: string | null }>`
      select (extract(epoch from lease_expires_at - now()) * 1000)::float8 as left_ms,
        suspect_ord || ': ' || suspect_crashes as suspect from operation_shards`,
  )
  return found
}
const charges = ({ claims, isolateUntil }: ClaimedShard) => ({ claims, isolateUntil })

describe('a lease that its holder ends', () => {
  test('is taken over under the next epoch, and nobody has died: not once, not after many', async () => {
    let lease = await claim()
    for (let n = 0; n < 5; n++) {
      const next = await fault(lease)
      expect(next.epoch).toBe(lease.epoch + 1)
      expect(charges(next)).toEqual({ claims: 1, isolateUntil: null })
      lease = next
    }
  })

  test('keeps the count of the crashes before it, and the suspects that they left', async () => {
    const crashed = await crash(await claim())
    expect(charges(crashed)).toEqual({ claims: 2, isolateUntil: WINDOW })
    const after = await fault(await fault(crashed))
    expect(charges(after)).toEqual({ claims: 2, isolateUntil: WINDOW })
    expect(charges(await crash(after))).toEqual({ claims: 3, isolateUntil: WINDOW })
  })

  test('among suspects, after progress: goes on alone, and makes nobody else a suspect', async () => {
    const crashed = await crash(await claim())
    await applied(crashed, 0)
    const after = await fault(await fault(crashed))
    expect(charges(after)).toEqual({ claims: 2, isolateUntil: WINDOW })
    expect(charges(await fault(after))).toEqual({ claims: 2, isolateUntil: WINDOW })
  })

  test('takes no progress back', async () => {
    const crashed = await crash(await crash(await claim()))
    await applied(crashed, 0)
    expect(crashed.claimsBefore).toBe(2)
    await end(crashed)
    const [found] = await database.query(({ sql }) => sql<{ claims: number }>`select claims from operation_shards`)
    expect(found?.claims).toBe(0)
  })

  test('is due after its rest, but never later than it would have run out', async () => {
    const lease = await claim()
    await end(lease, { dueInMs: 20_000 })
    expect((await row())?.left_ms).toBeGreaterThan(10_000)
    expect((await row())?.left_ms).toBeLessThan(20_000)
    expect(await takeOver()).toBeUndefined()
    await end(lease, { dueInMs: 5_000 })
    expect((await row())?.left_ms).toBeLessThan(5_000)
    await end(lease, { dueInMs: 60_000 })
    expect((await row())?.left_ms).toBeLessThan(5_000)
  })

  test('leaves what is in flight and a stop to the next holder', async () => {
    const lease = await claim()
    await claimWindow(database, lease, 0, 3)
    await requestCancel(database, { tenantId: TENANT, operationId: lease.operationId, actor: 'tester', reason: null })
    await end(lease)
    // nobody can end it before its intents are explained
    const next = taken(await takeOver())
    expect(next.stopRequested).toBe('cancel')
    expect(await finishShard(database, next)).toBeNull()
    const orphans = await database.query((connection) => readOrphanedIntents(connection, next, 10))
    expect(orphans.map(({ ord }) => ord)).toEqual([0, 1, 2])
    for (const { ord, effectKey } of orphans)
      await tell(database, next, { ord, effectKey }, { effect: 'uncertain', item: 'uncertain' }, 'recovery')
    expect(await finishShard(database, next)).toEqual({ state: 'done', dueInMs: expect.any(Number) })
  })

  test('may be renewed by a beat that was on its way: it is due later, and stays uncharged', async () => {
    const lease = await claim()
    await end(lease)
    expect(await database.query((connection) => renewLeases(connection, lease.workerId, [lease]))).toHaveLength(1)
    expect(await takeOver()).toBeUndefined()
    expect(charges(await crash(lease))).toEqual({ claims: 1, isolateUntil: null })
  })

  test('waits for nobody who holds the row, as heartbeats share its connections', async () => {
    const lease = await claim()
    const holder = await holdShard(testDatabase.url, lease)
    // who waited for the lock would be told 57014
    const patient = openDatabase({ url: testDatabase.url, size: 1, name: 'x', statementMs: 1_000, lockMs: 60_000 })
    const ended = patient.query((connection) => endLease(connection, lease, { dueInMs: 0, claims: 0, charge: null }))
    await expect(ended).rejects.toMatchObject({ code: 'database-unavailable', cause: { code: '55P03' } })
    await patient.close()
    await holder.commit()
    expect(await end(lease)).toBe(true)
  })
})

describe('the charge of a suspect', () => {
  const chargeOf = (lease: ClaimedShard, ord: number) =>
    database.query((connection) => chargeSuspect(connection, lease, ord))

  test.each([
    ['known', 1, false],
    ['known, and it was taken back already', 1, true],
    ['unknown', null, false],
  ])('goes back with the lease (the count before it is %s), and earlier deaths stay', async (_, before, told) => {
    const lease = await claim()
    await chargeOf(lease, 0)
    const next = await crash(lease)
    expect(await chargeOf(next, 0)).toBe(2)
    const charge = { ord: 0, before }
    if (told) await database.query((connection) => unchargeSuspect(connection, next, charge))
    await end(next, { charge })
    expect((await row())?.suspect).toBe('0: 1')
  })

  test('of another item is not touched', async () => {
    const lease = await claim()
    await chargeOf(lease, 3)
    await database.query((connection) => unchargeSuspect(connection, lease, { ord: 2, before: 0 }))
    await end(lease, { charge: { ord: 2, before: 0 } })
    await end(lease, { charge: null })
    expect((await row())?.suspect).toBe('3: 1')
  })
})
