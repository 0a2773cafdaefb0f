import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { queueResend, takeDueLookups } from '../../src/storage/lookups.ts'
import { claimRetries } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards, claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { readDueRetries } from '../../src/storage/run/window.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  holdShard,
  items,
  raceBehind,
  readShard,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'claim races' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const cancel = (operationId: string) => () =>
  requestCancel(database, { tenantId: TENANT, operationId, actor: 'tester', reason: null })

test('a window that is claimed before the cancel keeps its intents, each older than the cancel', async () => {
  const operationId = await storeOperation(database, { items: items(10) })
  const lease = await claimOne(database)
  const [won, stored] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () => claimWindow(database, lease, 0, 5),
    cancel(operationId),
  )
  expect([won?.size, stored]).toEqual([5, true])
  expect(await readShard(database, lease)).toMatchObject({
    cursor: 5,
    in_flight: 5,
    intents: 5,
    stop_requested: 'cancel',
  })
  const late = await database.query(
    ({ sql }) => sql`
      select 1 from effects e join operations o on o.id = e.operation_id where e.claimed_at > o.cancel_requested_at`,
  )
  expect(late).toEqual([])
})

test('a cancel that comes before the window: nothing is claimed, not then and not later', async () => {
  const operationId = await storeOperation(database, { items: items(10) })
  const lease = await claimOne(database)
  const [stored, won] = await raceBehind(database, await holdShard(testDatabase.url, lease), cancel(operationId), () =>
    claimWindow(database, lease, 0, 5),
  )
  expect([stored, won]).toEqual([true, null])
  expect(await claimWindow(database, lease, 0, 5)).toBeNull()
  expect(await readShard(database, lease)).toMatchObject({ cursor: 0, in_flight: 0, intents: 0, retries: 0 })
})

test('two claims of the same window: the cursor moves once', async () => {
  await storeOperation(database, { items: items(10) })
  const lease = await claimOne(database)
  const [first, second] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () => claimWindow(database, lease, 0, 5),
    () => claimWindow(database, lease, 0, 5),
  )
  expect([first?.size, second]).toEqual([5, null])
  expect(await readShard(database, lease)).toMatchObject({ cursor: 5, in_flight: 5, intents: 5, retries: 0 })
})

test('two operations that want one effect key at once: one intent, the other waits and is charged nothing', async () => {
  await storeOperation(database, { items: items(1, () => 'shared') })
  await storeOperation(database, { items: items(1, () => 'shared') })
  const [one, two] = [await claimOne(database), await claimOne(database)]
  const won = await Promise.all([claimWindow(database, one, 0, 1), claimWindow(database, two, 0, 1)])
  expect(won.map((ords) => ords?.size).sort()).toEqual([0, 1])
  const facts = await Promise.all([readShard(database, one), readShard(database, two)])
  expect(
    facts.map(({ intents, retries, in_flight, waiting }) => [intents, retries, in_flight, waiting]).sort(),
  ).toEqual([
    [0, 1, 0, 1],
    [1, 0, 1, 0],
  ])
})

test('case 1: a lease that ran out is taken over once, and passed over while its holder writes', async () => {
  await storeOperation(database, { items: items(1) })
  const lease = await claimOne(database)
  await expireLease(database, lease)
  const claim = () =>
    database.query((connection) => claimExpiredShards(connection, { workerId: randomUUID(), types: [GRANT], limit: 1 }))
  const held = await holdShard(testDatabase.url, lease)
  expect(await claim()).toEqual([])
  await held.commit()
  for (let epoch = 2; epoch < 32; epoch++) {
    const claims = (await Promise.all([claim(), claim(), claim()])).flat()
    expect(claims.map((claimed) => claimed.epoch)).toEqual([epoch])
    await expireLease(database, lease)
  }
})

test('a ready shard is claimed once by workers that come at the same time', async () => {
  await storeOperation(database, { items: items(8), shards: 8 })
  const claim = () =>
    database.query((connection) =>
      claimReadyShards(connection, { workerId: randomUUID(), types: [GRANT], limit: 3, perTenant: 3, afterTenant: 0 }),
    )
  const claimed = await Promise.all([claim(), claim(), claim(), claim(), claim(), claim()])
  const rest = await Promise.all([claim(), claim(), claim()])
  const shards = [...claimed, ...rest].flatMap((claim) => claim.shards.map(({ shard }) => shard)).sort()
  expect(shards).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
})

/** An effect in doubt whose resend is queued: the only retry that is claimed over an effect that is not free. */
const queuedResend = async () => {
  await storeOperation(database, { items: items(1, () => 'key') })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 1)
  await tell(database, lease, { ord: 0, effectKey: 'key' }, { effect: 'uncertain', item: 'uncertain' })
  await database.query(({ sql }) => sql`update reconciliation_cases set next_lookup_at = now()`)
  const [due] = await database.query((connection) =>
    takeDueLookups(connection, { types: [GRANT.name], limit: 1, holdMs: 1_000, only: null }),
  )
  if (!due) throw new Error('no lookup is due')
  expect(await queueResend(database, due)).toBe(true)
  expect(await database.query((connection) => readDueRetries(connection, lease, 10))).toEqual([0])
  return lease
}

test('a resend is claimed with the next send, and is a resend', async () => {
  const lease = await queuedResend()
  expect(await claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 })).toEqual([
    { ord: 0, step: '', effectKey: 'key', send: 2, attempt: 2, resend: true, explained: false },
  ])
  expect(await readShard(database, lease)).toMatchObject({
    in_flight: 1,
    intents: 1,
    waiting: 0,
    retries: 0,
    uncertain: 1,
  })
})

test('a resend whose time has passed is withdrawn: its item stays uncertain, and its case is looked at again', async () => {
  const lease = await queuedResend()
  await database.query(({ sql }) => sql`update reconciliation_cases set next_lookup_at = null`)
  await database.query(({ sql }) => sql`update operations set started_at = now() - interval '1 hour'`)
  expect(await claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_599_000 })).toEqual([])
  expect(await readShard(database, lease)).toMatchObject({
    in_flight: 0,
    intents: 0,
    waiting: 0,
    retries: 0,
    uncertain: 1,
  })
  const cases = await database.query(
    ({ sql }) => sql`select last_lookup, next_lookup_at <= now() as due, closed_at from reconciliation_cases`,
  )
  expect(cases).toEqual([{ last_lookup: 'resend expired', due: true, closed_at: null }])
})

test('a resend that waits behind a person who says "not applied": nothing is claimed for a retry that is gone', async () => {
  const lease = await queuedResend()
  const [, won] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () =>
      tell(
        database,
        lease,
        { ord: 0, effectKey: 'key' },
        { effect: 'absent', item: 'failed', failureClass: 'transient' },
        'operator',
      ),
    () => claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 }),
  )
  expect(won).toEqual([])
  expect(await readShard(database, lease)).toMatchObject({
    in_flight: 0,
    intents: 0,
    waiting: 0,
    retries: 0,
    failed: 1,
    uncertain: 0,
  })
})

test('a resend that waits behind a lookup that grants a retry: it is claimed as that retry', async () => {
  const lease = await queuedResend()
  const [, won] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () =>
      tell(
        database,
        lease,
        { ord: 0, effectKey: 'key' },
        {
          effect: 'absent',
          item: 'failed',
          failureClass: 'transient',
          retry: { afterMs: 0, reason: 'confirmed_absent' },
        },
        'lookup',
      ),
    () => claimRetries(database, lease, [0], { sendByMs: 1_000, resendWithinMs: 3_600_000 }),
  )
  expect(won).toEqual([{ ord: 0, step: '', effectKey: 'key', send: 2, attempt: 2, resend: false, explained: false }])
  await tell(database, lease, { ord: 0, effectKey: 'key', send: 2 }, { effect: 'applied', item: 'applied' })
  expect(await readShard(database, lease)).toMatchObject({
    in_flight: 0,
    applied: 1,
    failed: 0,
    uncertain: 0,
    waiting: 0,
  })
})
