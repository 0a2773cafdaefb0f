import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { endLease } from '../../src/storage/run/end-lease.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { acknowledgeStops, readLeases, renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { ClaimedShard, Lease } from '../../src/storage/run/lease.ts'
import { advanceEpoch, readHolding } from '../../src/storage/run/remote.ts'
import { type Batch, type BatchOutcome, commitBatch, takeBatchEffects } from '../../src/storage/run/transactional.ts'
import { chargeSuspect, readOrphanedIntents, readOwnIntents, readPosition } from '../../src/storage/run/window.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  items,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'lease fencing' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

/** Ten items: one waits for a retry, one for a key that is held by another operation, the rest are above the cursor. */
const shardWithWork = async (): Promise<ClaimedShard> => {
  await storeOperation(database, { items: [{ key: 'a', effectKey: 'elsewhere' }] })
  const other = await claimOne(database)
  await claimWindow(database, other, 0, 1)
  await tell(database, other, { ord: 0, effectKey: 'elsewhere' }, { effect: 'applied', item: 'applied' })
  await finishShard(database, other)
  await storeOperation(database, { items: items(10, (ord) => (ord === 1 ? 'elsewhere' : `k${ord}`)) })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 2)
  await tell(
    database,
    lease,
    { ord: 0, effectKey: 'k0' },
    { effect: 'absent', item: 'failed', failureClass: 'transient', retry: { afterMs: 0, reason: 'failed' } },
  )
  return lease
}

const takeOver = async (lease: Lease): Promise<ClaimedShard> => {
  await expireLease(database, lease)
  const [taken] = await database.query((connection) =>
    claimExpiredShards(connection, { workerId: randomUUID(), types: [GRANT], limit: 1 }),
  )
  if (!taken) throw new Error('the lease did not run out')
  return taken
}

const commit = (lease: Lease, batch: Batch, told: Partial<BatchOutcome>) =>
  database.transaction(async ({ sql }) => {
    expect(await takeBatchEffects(sql, lease, batch)).toEqual(new Set())
    const outcome: Omit<BatchOutcome, 'ord'> = {
      item: 'applied',
      failureClass: null,
      reasonCode: null,
      message: null,
      effectRef: null,
      retryMs: null,
      fingerprint: null,
      ...told,
    }
    const outcomes = batch.items.map(({ ord }) => ({ ord, ...outcome }))
    if (!(await commitBatch(sql, lease, { ...batch, outcomes, lost: new Set(), codeVersion: 'c1' })))
      throw new Error('fence lost')
    return 'committed'
  })

const WINDOW: Batch = { items: [2, 3, 4].map((ord) => ({ ord, attempt: 1 })), range: { from: 2, to: 5 } }
const RETRIES: Batch = { items: [{ ord: 0, attempt: 2 }], range: null }

/** Every statement that a lease gives a right to; what it answers when it does its work, and when the lease is gone. */
const mutations: [name: string, run: (lease: Lease) => Promise<unknown>, works: unknown, refused: unknown][] = [
  [
    'claimIntents',
    (lease) => database.query((connection) => claimIntents(connection, lease, { from: 2, to: 5, sendByMs: 1_000 })),
    new Set([2, 3, 4]),
    null,
  ],
  [
    'claimRetries',
    (lease) => claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 }),
    [{ ord: 0, step: '', effectKey: 'k0', send: 2, attempt: 2, resend: false, explained: false }],
    null,
  ],
  ['explainKnownKeys', (lease) => explainKnownKeys(database, lease, [1], 'c1'), 1, 0],
  [
    'commitBatch of a window of which nothing is told',
    (lease) => commit(lease, WINDOW, {}).catch((error: Error) => error.message),
    'committed',
    'fence lost',
  ],
  [
    'commitBatch of a window',
    (lease) => commit(lease, WINDOW, { effectRef: 'ref' }).catch((error: Error) => error.message),
    'committed',
    'fence lost',
  ],
  [
    'commitBatch of retries',
    (lease) => commit(lease, RETRIES, {}).catch((error: Error) => error.message),
    'committed',
    'fence lost',
  ],
  ['finishShard', (lease) => finishShard(database, lease), { state: 'ready', dueInMs: 0 }, null],
  [
    'endLease',
    (lease) =>
      database.query((connection) =>
        endLease(connection, lease, { dueInMs: 0, claims: 0, charge: { ord: 2, before: null } }),
      ),
    true,
    false,
  ],
  ['chargeSuspect', (lease) => database.query((connection) => chargeSuspect(connection, lease, 2)), 1, null],
  [
    'renewLeases',
    async (lease) => (await database.query((connection) => renewLeases(connection, lease.workerId, [lease]))).length,
    1,
    0,
  ],
  ['readLeases', async (lease) => (await database.query((connection) => readLeases(connection, [lease]))).length, 1, 0],
  [
    'readPosition',
    (lease) => database.query((connection) => readPosition(connection, lease)),
    { cursor: 2, stopRequested: null },
    null,
  ],
  ['advanceEpoch', (lease) => advanceEpoch(database, lease), 2, null],
  [
    'readHolding',
    async (lease) => (await database.query((connection) => readHolding(connection, lease)))?.cursor ?? null,
    2,
    null,
  ],
]

/** Every row that a run may write, of every table. */
const everything = async () => {
  const [row] = await database.query(
    ({ sql }) => sql<{ rows: string }>`
      select jsonb_build_array(
        (select jsonb_agg(s order by operation_id, shard) from operation_shards s),
        (select jsonb_agg(e order by effect_key) from effects e), (select jsonb_agg(r order by ord) from item_retries r),
        (select jsonb_agg(l order by seq) from ledger_entries l), (select jsonb_agg(d order by ord) from dead_letters d),
        (select jsonb_agg(c order by id) from reconciliation_cases c))::text as rows`,
  )
  return row?.rows
}

describe('lease fencing', () => {
  test.each(mutations)('%s does its work under the lease', async (_, run, works) => {
    expect(await run(await shardWithWork())).toEqual(works)
  })

  test.each(mutations)('case 17: %s under an epoch that is over touches no row', async (_, run, _works, refused) => {
    const zombie = await shardWithWork()
    await takeOver(zombie)
    const before = await everything()
    expect(await run(zombie)).toEqual(refused)
    expect(await everything()).toBe(before)
  })

  test.each(mutations)('case 3: %s touches no row after the shard was given back', async (_, run, _works, refused) => {
    const lease = await shardWithWork()
    await finishShard(database, lease)
    const before = await everything()
    expect(await run(lease)).toEqual(refused)
    expect(await everything()).toBe(before)
  })

  test.each(mutations.filter(([name]) => /^(claim|commit)/.test(name)))(
    '%s touches no row once a stop was asked for',
    async (_, run, _works, refused) => {
      const lease = await shardWithWork()
      await requestCancel(database, { tenantId: TENANT, operationId: lease.operationId, actor: 'tester', reason: null })
      const before = await everything()
      expect(await run(lease)).toEqual(refused)
      expect(await everything()).toBe(before)
    },
  )

  test('case 7: a new worker owns nothing of the old one, whose leases are renewed by neither of its names', async () => {
    const lease = await shardWithWork()
    const reborn = { ...lease, workerId: randomUUID() }
    expect(await database.query((connection) => renewLeases(connection, reborn.workerId, [reborn]))).toEqual([])
    const taken = await takeOver(lease)
    expect(taken).toMatchObject({ epoch: lease.epoch + 1, cursor: 2 })
    expect(await database.query((connection) => renewLeases(connection, lease.workerId, [lease]))).toEqual([])
  })

  test('a stop is acknowledged by the holder of the lease only', async () => {
    const zombie = await shardWithWork()
    const holder = await takeOver(zombie)
    await requestCancel(database, { tenantId: TENANT, operationId: zombie.operationId, actor: 'tester', reason: null })
    const seen = async () =>
      (await database.query(({ sql }) => sql`select 1 from operation_shards where stop_seen_at is not null`)).length
    await database.query((connection) => acknowledgeStops(connection, [{ ...zombie, stop: 'cancel' }]))
    expect(await seen()).toBe(0)
    // a pause that was seen acknowledges no cancel
    await database.query((connection) => acknowledgeStops(connection, [{ ...holder, stop: 'pause' }]))
    expect(await seen()).toBe(0)
    await database.query((connection) => acknowledgeStops(connection, [{ ...holder, stop: 'cancel' }]))
    expect(await seen()).toBe(1)
  })

  test('intents under the own epoch are told apart from those of an earlier holder', async () => {
    const zombie = await shardWithWork()
    await claimWindow(database, zombie, 2, 4)
    const holder = await takeOver(zombie)
    await claimWindow(database, holder, 4, 5)
    const own = (lease: Lease) =>
      database.query(async (connection) => (await readOwnIntents(connection, lease)).map(({ ord }) => ord))
    expect(await own(holder)).toEqual([4])
    expect(await own(zombie)).toEqual([2, 3])
  })

  test('an epoch that its holder advances takes along what is in flight, and leaves nothing to the old one', async () => {
    const old = await shardWithWork()
    await claimWindow(database, old, 2, 4)
    const fresh = { ...old, epoch: (await advanceEpoch(database, old)) ?? 0 }
    const own = (lease: Lease) =>
      database.query(async (connection) => (await readOwnIntents(connection, lease)).map(({ ord }) => ord))
    expect([await own(old), await own(fresh)]).toEqual([[], [2, 3]])
    expect(await claimWindow(database, old, 4, 5)).toBeNull()
    expect((await claimWindow(database, fresh, 4, 5))?.size).toBe(1)
    expect(await advanceEpoch(database, { ...fresh, workerId: randomUUID() })).toBeNull()
    // a crash behind it is explained as any other
    const taken = await takeOver(fresh)
    const orphans = await database.query((connection) => readOrphanedIntents(connection, taken, 10))
    expect(orphans.map(({ ord }) => ord)).toEqual([2, 3, 4])
  })

  test('case 19: claims grow with every crash, and only progress or a living worker takes them back', async () => {
    let lease = await shardWithWork()
    expect(lease.claims).toBe(1)
    for (const claims of [1, 2, 3]) {
      lease = await takeOver(lease) // the retry above was progress
      expect(lease.claims).toBe(claims)
    }
    expect(lease.isolateUntil).toBe(10)
    await finishShard(database, lease)
    expect((await claimOne(database)).claims).toBe(1)
  })

  test('case 59: an epoch beyond 32 bits is claimed, renewed and finished as any other', async () => {
    const lease = await shardWithWork()
    await database.query(
      ({ sql }) => sql`
        update operation_shards set lease_epoch = 3000000000 where operation_id = ${lease.operationId}::uuid`,
    )
    const taken = await takeOver(lease)
    expect(taken.epoch).toBe(3_000_000_001)
    expect((await claimWindow(database, taken, 2, 5))?.size).toBe(3)
    expect(await database.query((connection) => renewLeases(connection, taken.workerId, [taken]))).toHaveLength(1)
    for (const ord of [2, 3, 4]) {
      await tell(database, taken, { ord, effectKey: `k${ord}` }, { effect: 'applied', item: 'applied' })
    }
    expect(await finishShard(database, taken)).toMatchObject({ state: 'ready' })
  })
})
