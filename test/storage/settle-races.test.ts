import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { settleOperation } from '../../src/services/settle.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { claimRetries } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { markStarted, readUnsettled } from '../../src/storage/settle.ts'
import { requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  holdOperation,
  holdShard,
  items,
  NO_WAKE_UPS,
  raceBehind,
  readShard,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'
import { findViolations } from '../support/storm-audit.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'settle races' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const key = { ord: 0, effectKey: 'k0' }
const applied = { effect: 'applied', item: 'applied' } as const
const uncertain = { effect: 'uncertain', item: 'uncertain' } as const
const again = {
  effect: 'absent',
  item: 'failed',
  failureClass: 'transient',
  retry: { afterMs: 0, reason: 'confirmed_absent' },
} as const

const settle = (operationId: string) => settleOperation({ database, wakeUps: NO_WAKE_UPS }, TENANT, operationId)
const request = (operationId: string) => ({ tenantId: TENANT, operationId, actor: 'tester', reason: null })
const claimed = async (count = 1): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(count, (ord) => `k${ord}`) })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, count)
  return lease
}
const status = async (operationId: string) => {
  const [state] = await database.query((connection) =>
    readOperationStates(connection, [{ tenantId: TENANT, id: operationId }]),
  )
  return state?.status
}
const events = async (operationId: string): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ kind: string; status: string }>`
      select kind, status from operation_events where operation_id = ${operationId}::uuid order by version`,
  )
  return rows.map(({ kind, status: then }) => `${kind} ${then}`)
}

describe('finish × evidence that grants a retry', () => {
  test('evidence first: the shard is ready again, with its retry', async () => {
    const lease = await claimed()
    await tell(database, lease, key, uncertain)
    const [, finished] = await raceBehind(
      database,
      await holdShard(testDatabase.url, lease),
      () => tell(database, lease, key, again, 'lookup'),
      () => finishShard(database, lease),
    )
    expect(finished).toMatchObject({ state: 'ready' })
    expect(await readShard(database, lease)).toMatchObject({
      state: 'ready',
      waiting: 1,
      retries: 1,
      failed: 1,
      uncertain: 0,
    })
  })

  test('case 49: finish first: the evidence opens the shard, and the operation is not final before the retry has ended', async () => {
    const lease = await claimed()
    await database.query((connection) => markStarted(connection, TENANT, lease.operationId))
    await tell(database, lease, key, uncertain)
    const [finished] = await raceBehind(
      database,
      await holdShard(testDatabase.url, lease),
      () => finishShard(database, lease),
      () => tell(database, lease, key, again, 'lookup'),
    )
    expect(finished).toMatchObject({ state: 'done' })
    expect(await readShard(database, lease)).toMatchObject({ state: 'ready', waiting: 1, retries: 1 })
    expect(await status(lease.operationId)).toBe('running')
    const next = await claimOne(database)
    expect(await claimRetries(database, next, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 })).toMatchObject([
      { send: 2, attempt: 2 },
    ])
    await tell(database, next, { ...key, send: 2 }, applied)
    await finishShard(database, next)
    expect(await settle(lease.operationId)).toBe('succeeded')
    expect(await findViolations(database)).toEqual([])
  })

  test('a finish is refused while effects are in flight', async () => {
    const lease = await claimed()
    expect(await finishShard(database, lease)).toBeNull()
    expect(await readShard(database, lease)).toMatchObject({ state: 'leased', in_flight: 1 })
  })
})

describe('settle', () => {
  const finished = async () => {
    const lease = await claimed()
    await tell(database, lease, key, applied)
    await finishShard(database, lease)
    return lease.operationId
  }

  test('two at once write one final event', async () => {
    const operationId = await finished()
    const statuses = await raceBehind(
      database,
      await holdOperation(testDatabase.url, operationId),
      () => settle(operationId),
      () => settle(operationId),
    )
    expect(statuses).toEqual(['succeeded', 'succeeded'])
    expect(await events(operationId)).toEqual(['accepted pending', 'settled succeeded'])
  })

  test('case 27: a cancel before it: the operation completed after the cancel, and says so', async () => {
    const operationId = await finished()
    const [stored, settled] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, operationId),
      () => requestCancel(database, request(operationId)),
      () => settle(operationId),
    )
    expect([stored, settled]).toEqual([true, 'completed_after_cancel'])
    expect(await events(operationId)).toEqual([
      'accepted pending',
      'cancel_requested cancel_requested',
      'settled completed_after_cancel',
    ])
  })

  test('case 27: a cancel behind it comes too late and changes nothing', async () => {
    const operationId = await finished()
    const [settled, stored] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, operationId),
      () => settle(operationId),
      () => requestCancel(database, request(operationId)),
    )
    expect([settled, stored]).toEqual(['succeeded', false])
    expect(await events(operationId)).toEqual(['accepted pending', 'settled succeeded'])
    const [shard] = await database.query(({ sql }) => sql`select stop_requested from operation_shards`)
    expect(shard).toEqual({ stop_requested: null })
  })

  test('a worker that died between finish and settle: the sweep finds the operation, and only that one', async () => {
    const operationId = await finished()
    await claimed()
    const found = await database.query((connection) => readUnsettled(connection, 10))
    expect(found).toEqual([{ tenantId: TENANT, operationId }])
    await settle(operationId)
    expect(await database.query((connection) => readUnsettled(connection, 10))).toEqual([])
  })
})

describe('stops', () => {
  test('a cancel gives retries up: they are neither claimed nor counted against the end', async () => {
    const lease = await claimed(2)
    await tell(database, lease, key, again)
    await tell(database, lease, { ord: 1, effectKey: 'k1' }, applied)
    expect(await requestCancel(database, request(lease.operationId))).toBe(true)
    expect(await claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 })).toBeNull()
    expect(await finishShard(database, lease)).toMatchObject({ state: 'done' })
    expect(await settle(lease.operationId)).toBe('cancelled')
    expect(await readShard(database, lease)).toMatchObject({
      state: 'done',
      applied: 1,
      failed: 1,
      in_flight: 0,
      waiting: 1,
    })
  })

  test('case 51: a pause keeps retries, also over a crash, and a resume brings them back', async () => {
    const lease = await claimed(3)
    await tell(database, lease, key, again)
    expect(await requestPause(database, request(lease.operationId))).toBe(true)
    await expireLease(database, lease)
    const [taken] = await database.query((connection) =>
      claimExpiredShards(connection, { workerId: crypto.randomUUID(), types: [GRANT], limit: 1 }),
    )
    if (!taken) throw new Error('the lease did not run out')
    expect(taken.stopRequested).toBe('pause')
    for (const ord of [1, 2]) await tell(database, taken, { ord, effectKey: `k${ord}` }, uncertain, 'recovery')
    expect(await claimRetries(database, taken, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 })).toBeNull()
    await finishShard(database, taken)
    expect(await settle(lease.operationId)).toBe('paused')
    await expect(claimOne(database)).rejects.toThrow('no shard is ready')

    expect(await resume(database, request(lease.operationId))).toBe(true)
    const next = await claimOne(database)
    expect(await claimRetries(database, next, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 })).toMatchObject([
      { ord: 0, send: 2, attempt: 2 },
    ])
    await tell(database, next, { ...key, send: 2 }, applied)
    await finishShard(database, next)
    expect(await settle(lease.operationId)).toBe('reconciliation_required')
    expect(await findViolations(database)).toEqual([])
  })

  test('evidence that grants a retry during a pause waits for the resume', async () => {
    const lease = await claimed()
    await tell(database, lease, key, uncertain)
    await requestPause(database, request(lease.operationId))
    await finishShard(database, lease)
    await tell(database, lease, key, again, 'operator')
    expect(await readShard(database, lease)).toMatchObject({ state: 'done', waiting: 1, retries: 1 })
    expect(await status(lease.operationId)).toBe('paused')
    await resume(database, request(lease.operationId))
    expect(await readShard(database, lease)).toMatchObject({ state: 'ready', waiting: 1 })
  })

  test('a cancel outlives a pause and a resume', async () => {
    const lease = await claimed()
    await requestPause(database, request(lease.operationId))
    expect(await requestCancel(database, request(lease.operationId))).toBe(true)
    expect(await resume(database, request(lease.operationId))).toBe(false)
    expect(await requestPause(database, request(lease.operationId))).toBe(false)
    expect(await readShard(database, lease)).toMatchObject({ stop_requested: 'cancel' })
  })

  test('case 29: a cancel stops the named operation only', async () => {
    const ids = []
    for (let n = 0; n < 4; n++) ids.push(await storeOperation(database, { items: items(2) }))
    await requestCancel(database, request(ids[1] ?? ''))
    const stopped = await database.query(
      ({ sql }) => sql`select operation_id from operation_shards where stop_requested is not null`,
    )
    expect(stopped).toEqual([{ operation_id: ids[1] }])
    expect(await settle(ids[1] ?? '')).toBe('cancelled')
  })

  test('two cancels at once: one is stored', async () => {
    const lease = await claimed()
    const stored = await raceBehind(
      database,
      await holdOperation(testDatabase.url, lease.operationId),
      () => requestCancel(database, request(lease.operationId)),
      () => requestCancel(database, request(lease.operationId)),
    )
    expect(stored).toEqual([true, false])
    expect(await events(lease.operationId)).toEqual(['accepted pending', 'cancel_requested cancel_requested'])
  })
})
