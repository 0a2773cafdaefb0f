import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import type { Lease } from '../../src/storage/run/lease.ts'
import { KeyKnown, takeNewEffects } from '../../src/storage/run/plain-batch.ts'
import { type BatchOutcome, commitBatch, takeBatchEffects } from '../../src/storage/run/transactional.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { claimOne, items, storeOperation, TENANT, untilWaiting, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'plain batch' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const KEYS = ['key d', 'key a', 'key c', 'key b', 'key e']
const WINDOW = { from: 1, to: 4 }
const APPLIED: Omit<BatchOutcome, 'ord'> = {
  item: 'applied',
  failureClass: null,
  reasonCode: null,
  message: null,
  effectRef: null,
  retryMs: null,
  fingerprint: null,
}
const attemptsOf = ({ from, to }: typeof WINDOW, attempt = 1) =>
  Array.from({ length: to - from }, (_, n) => ({ ord: from + n, attempt }))

/** A shard at ord 1 of five items with these keys. */
const claim = async (keys: readonly string[] = KEYS): Promise<Lease> => {
  await storeOperation(database, { items: items(keys.length, (ord) => keys[ord] ?? '') })
  const lease = await claimOne(database)
  await database.query(
    ({ sql }) => sql`
      update operation_shards set cursor = 1, version = 7, claims = 3, suspect_ord = 2, suspect_crashes = 1,
        last_progress_at = now() - interval '1 hour'
      where operation_id = ${lease.operationId}::uuid`,
  )
  return lease
}
/** An effect that somebody else left behind. */
const plant = (effectKey: string, state: string) =>
  database.query(
    ({ sql }) => sql`
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, item_state, send_by)
      values (${TENANT}, ${effectKey}, ${state}, 1, gen_random_uuid(), 0, 0, 1, 1, 'other', 'h',
        case ${state} when 'applied' then 'applied' end, now())`,
  )
const effects = () =>
  database.query(
    ({ sql }) => sql`
      select effect_key, state, send, ord, shard, step, attempt, lease_epoch::int, item_key, input_hash, item_state, item_class,
        effect_ref, was, send_by - claimed_at < interval '1 second' as at_once, updated_at
      from effects order by effect_key`,
  )
/** What a batch leaves behind of itself, but for ids and times. */
const leftBehind = async ({ operationId }: Lease) => ({
  effects: await effects(),
  ledger: await database.query(
    ({ sql }) => sql`
      select ord, item_key, step, attempt, state, failure_class, reason_code, message, effect_key, send, input_hash, effect_ref,
        evidence_ref, source, actor, worker_id is not null as by_worker, code_version
      from ledger_entries where operation_id = ${operationId}::uuid order by seq`,
  ),
  shard: await database.query(
    ({ sql }) => sql`
      select cursor, version::int, claims, suspect_ord, suspect_crashes, waiting, in_flight, applied::int, skipped::int, failed::int,
        uncertain::int,
        last_progress_at > now() - interval '1 minute' as progressed, state, lease_epoch::int
      from operation_shards where operation_id = ${operationId}::uuid`,
  ),
})

const take = (lease: Lease): Promise<ReadonlySet<number>> =>
  database.transaction(({ sql }) => takeNewEffects(sql, lease, WINDOW))

test('a plain batch leaves behind what any other batch does', async () => {
  const run = async (asNew: boolean, told: Partial<BatchOutcome>) => {
    await wipe(database)
    const lease = await claim()
    const batch = { items: attemptsOf(WINDOW), range: WINDOW }
    const committed = await database.transaction(async ({ sql }) => {
      const lost = await (asNew ? takeNewEffects(sql, lease, WINDOW) : takeBatchEffects(sql, lease, batch))
      expect(lost).toEqual(new Set())
      const outcomes = batch.items.map(({ ord }) => ({ ord, ...APPLIED, ...told }))
      return commitBatch(sql, lease, { ...batch, outcomes, lost, codeVersion: 'c7' })
    })
    expect(committed).toBe(true)
    return leftBehind(lease)
  }
  const plain = await run(true, {})
  expect(plain.effects.map(({ effect_key, ord, state }) => [effect_key, ord, state])).toEqual([
    ['key a', 1, 'applied'],
    ['key b', 3, 'applied'],
    ['key c', 2, 'applied'],
  ])
  expect(plain.ledger.map(({ ord, effect_key }) => [ord, effect_key])).toEqual([
    [1, 'key a'],
    [2, 'key c'],
    [3, 'key b'],
  ])
  expect(plain.shard).toMatchObject([
    { cursor: 4, version: 8, claims: 0, suspect_ord: null, applied: 3, progressed: true },
  ])
  // nothing is told either, but the keys were looked at
  expect(await run(false, {})).toEqual(plain)
  // a name is told, which is the only thing that differs
  const named = await run(false, { effectRef: 'ref' })
  const unnamed = (row: object) => ({ ...row, effect_ref: null })
  expect({ ...named, effects: named.effects.map(unnamed), ledger: named.ledger.map(unnamed) }).toEqual(plain)
  expect(named.ledger.map(({ effect_ref }) => effect_ref)).toEqual(['ref', 'ref', 'ref'])
})

describe('new keys', () => {
  test.each(['applied', 'intent', 'uncertain', 'absent', 'compensated'])(
    'are refused where one is known as %s, and nothing is kept of the others',
    async (state) => {
      const lease = await claim()
      await plant('key b', state)
      const before = await leftBehind(lease)
      await expect(take(lease)).rejects.toBeInstanceOf(KeyKnown)
      expect(await leftBehind(lease)).toEqual(before)
    },
  )

  test('are refused where two items of the window have the same', async () => {
    const lease = await claim(['one', 'two', 'three', 'two', 'four'])
    await expect(take(lease)).rejects.toBeInstanceOf(KeyKnown)
    expect(await effects()).toEqual([])
  })

  test('are those of the window alone: what lies around it may be known', async () => {
    const lease = await claim()
    await plant('key d', 'applied')
    await plant('key e', 'intent')
    expect(await take(lease)).toEqual(new Set())
  })

  test('that fail for another reason say so', async () => {
    const lease = await claim()
    await expect(take({ ...lease, epoch: Number.NaN })).rejects.toMatchObject({ code: '22P02' })
  })
})

test('an item without an outcome is not called applied', async () => {
  const lease = await claim()
  const batch = { items: attemptsOf(WINDOW), range: WINDOW }
  const commit = database.transaction(async ({ sql }) => {
    const lost = await takeNewEffects(sql, lease, WINDOW)
    const outcomes = batch.items.slice(1).map(({ ord }) => ({ ord, ...APPLIED }))
    return commitBatch(sql, lease, { ...batch, outcomes, lost, codeVersion: 'c7' })
  })
  await expect(commit).rejects.toThrow('an item of the batch has no outcome')
  expect(await effects()).toEqual([])
})

describe('a key that another transaction is taking right now', () => {
  /** Both have all keys, in another order; the first one has taken them, and waits to be told how it ends. */
  const race = async (rival: (lease: Lease) => Promise<unknown>) => {
    const first = await claim()
    const second = await claim([...KEYS].reverse())
    let end: (how: 'commit' | 'rollback') => void = () => {}
    const ending = new Promise<'commit' | 'rollback'>((resolve) => {
      end = resolve
    })
    let taken: () => void = () => {}
    const hasTaken = new Promise<void>((resolve) => {
      taken = resolve
    })
    const holder = database
      .transaction(async ({ sql }) => {
        await takeNewEffects(sql, first, WINDOW)
        taken()
        if ((await ending) === 'rollback') throw new Error('rolled back')
      })
      .catch((error: Error) => error.message)
    await hasTaken
    const rivals = rival(second).catch((error: unknown) => error)
    await untilWaiting(database, 1)
    return async (how: 'commit' | 'rollback') => {
      end(how)
      await holder
      return rivals
    }
  }
  const takeAny = (lease: Lease) =>
    database.transaction(({ sql }) => takeBatchEffects(sql, lease, { items: attemptsOf(WINDOW), range: WINDOW }))

  test('is waited for, and known once that has committed', async () => {
    const endsWith = await race(take)
    expect(await endsWith('commit')).toBeInstanceOf(KeyKnown)
  })

  test('is new where that was rolled back', async () => {
    const endsWith = await race(take)
    expect(await endsWith('rollback')).toEqual(new Set())
  })

  test('is waited for by a batch that looks at each key too', async () => {
    const committed = await race(takeAny)
    expect(await committed('commit')).toEqual(new Set([1, 2, 3]))
    await wipe(database)
    const rolledBack = await race(takeAny)
    expect(await rolledBack('rollback')).toEqual(new Set())
  })
})
