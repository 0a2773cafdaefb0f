/** How a compensation is made, what may happen meanwhile, and how its outcomes move the effects that it takes back. */
import { randomUUID } from 'node:crypto'
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { compensationKey } from '../../src/domain/compensation.ts'
import type { Executor } from '../../src/domain/operation-type.ts'
import { compensateOperation } from '../../src/services/compensate.ts'
import { preflightCompensation } from '../../src/services/preflight-compensation.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { replayOperation } from '../../src/services/replay.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { insertCompensation, type NewCompensation } from '../../src/storage/compensations.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readPreflight } from '../../src/storage/replays.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards, claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readDueRetries, readOrphanedIntents } from '../../src/storage/run/window.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  type PlantedItem,
  plantEffects,
  plantedType,
  plantedTypes,
  plantOperation,
} from '../support/planted-operation.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
  holdOperation,
  holdShard,
  NO_WAKE_UPS,
  raceBehind,
  readShard,
  storeOperation,
  TENANT,
  tell,
  webhooksOf,
  wipe,
} from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'compensation' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(async () => {
  await wipe(database)
  await database.query(({ sql }) => sql`delete from replay_preflights`)
})

const never: Executor = {
  kind: 'external',
  callTimeoutMs: 5_000,
  send: () => Promise.reject(new Error('a planted type is never run')),
  lookup: null,
}
const UNDOING = { ...GRANT, compensates: true }
const types = plantedTypes(plantedType('grant', { compensation: 'available', compensator: never }))
const context = () => ({ database, types, wakeUps: NO_WAKE_UPS })
const operator = { tenantId: TENANT, name: 'operator', scopes: [] }

const applied: PlantedItem['entries'] = [{ state: 'applied' }]
const failed: PlantedItem['entries'] = [{ state: 'failed', failureClass: 'transient' }]
const skipped: PlantedItem['entries'] = [{ state: 'skipped' }]

const plant = async (items: PlantedItem[], status: 'succeeded' | 'partially_succeeded' = 'succeeded') => {
  const id = await plantOperation(database, { type: 'grant', status, items })
  await plantEffects(database, id)
  return id
}
const keysOf = (prefix: string, count: number): PlantedItem[] =>
  Array.from({ length: count }, (_, index) => ({ key: `${prefix}${index}`, entries: applied }))

const preflight = (of: string, itemKeys: string[] | null = null) =>
  preflightCompensation(context(), operator, of, { scope: itemKeys && { itemKeys } })
const compensate = (of: string, preflightId: string | null = null) =>
  compensateOperation(context(), operator, of, { preflightId, reason: 'a slip', force: [], ifMatchVersion: null })
const refusal = async (promise: Promise<unknown>): Promise<unknown> => {
  const error: unknown = await promise.catch((thrown: unknown) => thrown)
  return error instanceof Error && 'extra' in error ? { message: error.message, extra: error.extra } : error
}

const itemsOf = (id: string) =>
  database.query(
    ({ sql }) => sql<{ ord: number; item_key: string; effect_key: string }>`
      select ord, item_key, effect_key from operation_items where operation_id = ${id}::uuid order by ord`,
  )
const effectsOf = async (id: string) => {
  const rows = await database.query(
    ({ sql }) => sql<{ item_key: string; state: string; send: number }>`
      select i.item_key, e.state, e.send from operation_items i
        join effects e on e.tenant_id = i.tenant_id and e.effect_key = i.effect_key
      where i.operation_id = ${id}::uuid order by i.ord`,
  )
  return Object.fromEntries(rows.map((row) => [row.item_key, `${row.state} ${row.send}`]))
}
const entriesOf = (id: string) =>
  database.query(
    ({ sql }) => sql<{ item_key: string; state: string | null; reason_code: string | null; source: string }>`
      select item_key, state, reason_code, source, evidence_ref, effect_ref, send, actor from ledger_entries
      where operation_id = ${id}::uuid order by seq`,
  )
const versionOf = async (id: string): Promise<number> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ version: number }>`
      select (o.version + (select sum(version) from operation_shards s where s.operation_id = o.id))::int as version
      from operations o where id = ${id}::uuid`,
  )
  return row?.version ?? 0
}

describe('what a compensation is made of', () => {
  const ITEMS: PlantedItem[] = [
    { key: 'a', entries: applied },
    { key: 'b', entries: failed },
    { key: 'c', entries: [...(failed ?? []), { state: 'applied' }] },
    { key: 'd', entries: applied },
    { key: 'e', entries: skipped },
    { key: 'f' },
    { key: 'g', entries: applied },
  ]
  const recorded = async (of: string): Promise<NewCompensation> => {
    const asked = await preflight(of)
    const found = await database.query((connection) => readPreflight(connection, TENANT, asked.id))
    if (found?.kind !== 'compensation') throw new Error('the preflight was not recorded')
    return {
      tenantId: TENANT,
      id: uuidv7(),
      preflightId: asked.id,
      of,
      seenVersion: found.version,
      scope: found.scope,
      targets: asked.compensationTargets,
      typeVersion: 1,
      codeVersion: 'c1',
      requestedBy: 'operator',
      reason: 'a slip',
      approvalRequired: null,
      steps: [],
      shardEnds: [asked.compensationTargets],
    }
  }
  const expectNoTrace = async ({ id, preflightId }: NewCompensation): Promise<void> => {
    const [left] = await database.query(
      ({ sql }) => sql`
        select (select count(*)::int from operations where id = ${id}::uuid) as operations,
          (select count(*)::int from operation_items where operation_id = ${id}::uuid) as items,
          (select used_by from replay_preflights where id = ${preflightId}::uuid) as used_by`,
    )
    expect(left).toEqual({ operations: 0, items: 0, used_by: null })
  }

  test.each([1, 2, 3, 7, 50_000])('the applied items, last first, %i items a statement', async (perStatement) => {
    const of = await plant(ITEMS, 'partially_succeeded')
    const made = await recorded(of)
    expect(await insertCompensation(database, made, perStatement)).toEqual({ kind: 'made' })
    expect(await itemsOf(made.id)).toEqual(
      ['g', 'd', 'c', 'a'].map((key, ord) => ({ ord, item_key: key, effect_key: `compensate:1:${of}:${key}` })),
    )
    expect(await insertCompensation(database, { ...made, id: randomUUID() })).toEqual({ kind: 'used', by: made.id })
    const [row] = await database.query(
      ({ sql }) => sql`
        select o.compensates, o.replay_of, o.root_id, o.status, s.compensating, s.state, s.to_ord
        from operations o join operation_shards s on s.operation_id = o.id where o.id = ${made.id}::uuid`,
    )
    expect(row).toEqual({
      compensates: of,
      replay_of: null,
      root_id: of,
      status: 'pending',
      compensating: true,
      state: 'ready',
      to_ord: 4,
    })
  })

  test('only effects that are applied by this operation and still stand', async () => {
    const of = await plant(keysOf('k', 4))
    await database.query(({ sql }) => sql`update effects set state = 'compensated' where effect_key = ${`${of}:k1`}`)
    await database.query(
      ({ sql }) => sql`update effects set operation_id = ${randomUUID()}::uuid where effect_key = ${`${of}:k2`}`,
    )
    expect(await preflight(of)).toMatchObject({ compensationTargets: 2, appliedTargets: 4, allowed: true })
    const { id } = await compensate(of)
    expect((await itemsOf(id)).map((item) => item.item_key)).toEqual(['k3', 'k0'])
  })

  test('of a scope, only what it names; a key that no item has is refused', async () => {
    const of = await plant(keysOf('k', 4))
    const asked = await preflight(of, ['k2', 'k0'])
    expect(asked).toMatchObject({ compensationTargets: 2, scope: { itemKeys: ['k0', 'k2'] } })
    const { id } = await compensate(of, asked.id)
    expect((await itemsOf(id)).map((item) => item.item_key)).toEqual(['k2', 'k0'])
    expect(await refusal(preflight(of, ['k1', 'nobody']))).toMatchObject({ message: expect.stringContaining('scope') })
    await expect(
      preflight(
        of,
        Array.from({ length: 10_001 }, (_, index) => `k${index}`),
      ),
    ).rejects.toThrow('there is no compensation of this scope')
  })

  test('other targets than were judged make it outdated, and leave no trace', async () => {
    const made = await recorded(await plant(ITEMS, 'partially_succeeded'))
    expect(await insertCompensation(database, { ...made, targets: 3, shardEnds: [3] }, 2)).toEqual({ kind: 'outdated' })
    await expectNoTrace(made)
  })

  test('an outcome that is written while it waits for the shard makes it outdated', async () => {
    const made = await recorded(await plant(ITEMS, 'partially_succeeded'))
    const held = await holdShard(testDatabase.url, { tenantId: TENANT, operationId: made.of, shard: 0 })
    await held.sql`update operation_shards set version = version + 1 where operation_id = ${made.of}`
    const [inserted] = await raceBehind(database, held, () => insertCompensation(database, made))
    expect(inserted).toEqual({ kind: 'outdated' })
    await expectNoTrace(made)
  })

  test('an effect that was undone since the preflight makes it outdated, although no version has moved', async () => {
    const of = await plant(keysOf('k', 2))
    const asked = await preflight(of)
    await database.query(({ sql }) => sql`update effects set state = 'compensated' where effect_key = ${`${of}:k1`}`)
    await expect(compensate(of, asked.id)).rejects.toThrow('preflight-outdated')
  })
})

describe('two at once', () => {
  test('with one preflight make one compensation', async () => {
    const of = await plant(keysOf('k', 3))
    const { id } = await preflight(of)
    const held = await holdOperation(testDatabase.url, of)
    const [first, second] = await raceBehind(
      database,
      held,
      () => compensate(of, id),
      () => compensate(of, id),
    )
    expect(first.replayed).toBe(false)
    expect(second).toEqual({ id: first.id, replayed: true })
    expect(await compensate(of, id)).toEqual({ id: first.id, replayed: true })
  })

  test('with a preflight each: the later one is outdated, and then in progress', async () => {
    const of = await plant(keysOf('k', 3))
    const [one, other] = [await preflight(of), await preflight(of)]
    const held = await holdOperation(testDatabase.url, of)
    const [first, second] = await raceBehind(
      database,
      held,
      () => compensate(of, one.id),
      () => refusal(compensate(of, other.id)),
    )
    expect(first.replayed).toBe(false)
    expect(second).toMatchObject({ message: expect.stringContaining('preflight-outdated') })
    expect(await refusal(compensate(of, other.id))).toMatchObject({
      extra: { blocked_by: ['compensation-in-progress'] },
    })
  })

  test('without a preflight: the later one is told that one is in progress', async () => {
    const of = await plant(keysOf('k', 3))
    const held = await holdOperation(testDatabase.url, of)
    const [first, second] = await raceBehind(
      database,
      held,
      () => compensate(of),
      () => refusal(compensate(of)),
    )
    expect(first.replayed).toBe(false)
    expect(second).toMatchObject({ extra: { blocked_by: ['compensation-in-progress'] } })
  })

  test.each([
    ['a replay, then a compensation', true],
    ['a compensation, then a replay', false],
  ])('%s: the second finds the operation changed, and then the other open', async (_name, isReplayFirst) => {
    const of = await plant([...keysOf('k', 2), { key: 'x', entries: failed }], 'partially_succeeded')
    const replay = await preflightReplay(context(), operator, of, { scope: null })
    const undo = await preflight(of)
    const repeat = () =>
      replayOperation(context(), operator, of, {
        preflightId: replay.id,
        reason: 'again',
        force: [],
        ifMatchVersion: null,
      })
    const held = await holdOperation(testDatabase.url, of)
    const rivals = [repeat, () => compensate(of, undo.id)] as const
    const [one, other] = isReplayFirst ? rivals : [rivals[1], rivals[0]]
    const [first, second] = await raceBehind(database, held, one, () => refusal(other()))
    expect(first.replayed).toBe(false)
    expect(second).toMatchObject({ message: expect.stringContaining('preflight-outdated') })
    const open = isReplayFirst ? 'replay-in-progress' : 'compensation-in-progress'
    expect(await refusal(compensate(of))).toMatchObject({ extra: { blocked_by: [open] } })
    expect(await refusal(repeat())).toMatchObject(
      isReplayFirst ? { replayed: true } : { extra: { blocked_by: [open] } },
    )
  })

  test('while it is compensated, an operation is not replayed', async () => {
    const of = await plant([...keysOf('k', 2), { key: 'x', entries: failed }], 'partially_succeeded')
    await compensate(of)
    const { blockedBy, allowed } = await preflightReplay(context(), operator, of, { scope: null })
    expect({ blockedBy, allowed }).toEqual({ blockedBy: ['compensation-in-progress'], allowed: false })
  })
})

test('its webhook tells how it ended, and the original has none of it', async () => {
  const of = await plant(keysOf('k', 1))
  await database.query(({ sql }) => sql`update operations set callback_url = 'https://receiver.example/'`)
  const { id } = await compensate(of)
  const lease = await claimOne(database, UNDOING)
  await claimWindow(database, lease, 0, 1)
  const undoing = { ord: 0, effectKey: `compensate:1:${of}:k0` }
  await tell(database, lease, undoing, { effect: 'uncertain', item: 'uncertain' })
  await finishShard(database, lease)
  await settleOperation(context(), TENANT, id)
  await tell(database, lease, undoing, { effect: 'applied', item: 'applied' }, 'lookup')
  expect(await webhooksOf(database, id)).toEqual([
    'operation.reconciliation_required reconciliation_required',
    'operation.settled succeeded',
  ])
  expect(await webhooksOf(database, of)).toEqual([])
})

test('preflights of the two kinds are not exchangeable', async () => {
  const of = await plant([...keysOf('k', 2), { key: 'x', entries: failed }], 'partially_succeeded')
  const replay = await preflightReplay(context(), operator, of, { scope: null })
  const undo = await preflight(of)
  await expect(compensate(of, replay.id)).rejects.toThrow('invalid-request')
  await expect(
    replayOperation(context(), operator, of, { preflightId: undo.id, reason: 'r', force: [], ifMatchVersion: null }),
  ).rejects.toThrow('invalid-request')
  await expect(compensate(await plant(keysOf('y', 1)), undo.id)).rejects.toThrow('invalid-request')
})

describe('the effect that a compensation takes back', () => {
  /** An operation of one applied item, its compensation, and the shard of that in our hands with its window claimed. */
  const undoing = async (count = 1) => {
    const of = await plant(keysOf('k', count))
    const { id } = await compensate(of)
    const lease = await claimOne(database, UNDOING)
    expect(lease).toMatchObject({ operationId: id, compensating: true })
    await claimWindow(database, lease, 0, count)
    return { of, id, lease }
  }
  const own = (of: string, ord = 0, key = 'k0') => ({ ord, effectKey: `compensate:1:${of}:${key}` })
  const done = { effect: 'applied', item: 'applied', effectRef: 'undone' } as const
  const unknown = { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' } as const
  const resolve = async (id: string, resolution: 'applied' | 'not_applied') => {
    const [found] = await database.query(
      ({ sql }) => sql<{ id: string }>`
        select id from reconciliation_cases where operation_id = ${id}::uuid and closed_at is null`,
    )
    return resolveCase(context(), operator, found?.id ?? randomUUID(), {
      resolution,
      evidenceRef: 'asked them',
      effectRef: null,
      note: null,
      retry: false,
    })
  }
  const expectCompensated = async (of: string, id: string, source: string): Promise<void> => {
    expect(await effectsOf(of)).toEqual({ k0: 'compensated 1' })
    expect((await entriesOf(of)).slice(1)).toMatchObject([
      {
        item_key: 'k0',
        state: null,
        reason_code: 'COMPENSATED',
        source,
        evidence_ref: `op_${id.replaceAll('-', '')}`,
        effect_ref: 'ref:k0',
        send: 1,
      },
    ])
  }

  test.each([
    ['applied', done],
    ['skipped', { effect: 'applied', item: 'skipped', reasonCode: 'ALREADY_GONE' } as const],
  ])('is compensated in the commit that calls the undoing %s', async (_name, said) => {
    const { of, id, lease } = await undoing()
    const [before, counts] = [
      await versionOf(of),
      await readShard(database, { tenantId: TENANT, operationId: of, shard: 0 }),
    ]
    await tell(database, lease, own(of), said)
    await expectCompensated(of, id, 'worker')
    expect(await versionOf(of)).toBe(before)
    expect(await readShard(database, { tenantId: TENANT, operationId: of, shard: 0 })).toEqual({
      ...counts,
      entries: counts.entries + 1,
    })
  })

  test('stays applied while the undoing is in flight, uncertain, or has failed', async () => {
    const { of, lease } = await undoing(3)
    await tell(database, lease, own(of, 0, 'k2'), unknown)
    await tell(database, lease, own(of, 1, 'k1'), {
      effect: 'absent',
      item: 'failed',
      failureClass: 'validation_rejected',
    })
    expect(await effectsOf(of)).toEqual({ k0: 'applied 1', k1: 'applied 1', k2: 'applied 1' })
    expect(await entriesOf(of)).toHaveLength(3)
  })

  test('the same evidence twice moves nothing and writes nothing', async () => {
    const { of, lease } = await undoing()
    await tell(database, lease, own(of), done)
    expect((await tell(database, lease, own(of), done)).moved.size).toBe(0)
    expect(await entriesOf(of)).toHaveLength(2)
  })

  test('two reports at once: one observation', async () => {
    const { of, id, lease } = await undoing()
    const held = await holdShard(testDatabase.url, lease)
    await raceBehind(
      database,
      held,
      () => tell(database, lease, own(of), done),
      () => tell(database, lease, own(of), done, 'lookup'),
    )
    await expectCompensated(of, id, 'worker')
  })

  test('is compensated by what a worker saw before it lost its lease', async () => {
    const { of, id, lease } = await undoing()
    await expireLease(database, lease)
    const [taken] = await database.query((connection) =>
      claimExpiredShards(connection, { workerId: randomUUID(), types: [UNDOING], limit: 1 }),
    )
    expect(taken).toMatchObject({ epoch: 2, compensating: true })
    await tell(database, taken as ClaimedShard, own(of), { ...unknown, reasonCode: 'WORKER_LOST' }, 'recovery')
    expect(await effectsOf(of)).toEqual({ k0: 'applied 1' })
    await tell(database, lease, own(of), done)
    await expectCompensated(of, id, 'late_worker')
  })

  test('is compensated by a person who found that the undoing happened, and not by one who found that it did not', async () => {
    const first = await undoing()
    await tell(database, first.lease, own(first.of), unknown)
    await resolve(first.id, 'applied')
    await expectCompensated(first.of, first.id, 'operator')
    await wipe(database)
    const second = await undoing()
    await tell(database, second.lease, own(second.of), unknown)
    await resolve(second.id, 'not_applied')
    expect(await effectsOf(second.of)).toEqual({ k0: 'applied 1' })
  })

  test('a person and the late answer at once: one of them wins, and there is one observation', async () => {
    const { of, id, lease } = await undoing()
    await tell(database, lease, own(of), unknown)
    const held = await holdShard(testDatabase.url, lease)
    const [, second] = await raceBehind(
      database,
      held,
      () => tell(database, lease, own(of), done),
      () => refusal(resolve(id, 'not_applied')),
    )
    expect(second).toMatchObject({ message: expect.stringContaining('case-already-resolved') })
    await expectCompensated(of, id, 'worker')
  })

  test('is fenced by its send and its operation: what was applied again since is left alone', async () => {
    const { of, lease } = await undoing()
    await database.query(({ sql }) => sql`update effects set send = 2 where effect_key = ${`${of}:k0`}`)
    await tell(database, lease, own(of), done)
    expect(await effectsOf(of)).toEqual({ k0: 'applied 2' })
    expect(await entriesOf(of)).toHaveLength(1)
  })

  test('evidence for the send that was compensated is known: it moves nothing and opens no case', async () => {
    const { of, lease } = await undoing()
    await tell(database, lease, own(of), done)
    const shard = { tenantId: TENANT, operationId: of, shard: 0 }
    for (const effect of ['applied', 'absent', 'uncertain'] as const) {
      await tell(database, shard, { ord: 0, effectKey: `${of}:k0` }, { effect, item: null }, 'lookup')
    }
    expect(await effectsOf(of)).toEqual({ k0: 'compensated 1' })
    const [cases] = await database.query(
      ({ sql }) => sql`select count(*)::int as n from reconciliation_cases where operation_id = ${of}::uuid`,
    )
    expect(cases).toEqual({ n: 0 })
  })

  test('waits for whoever holds it, and is marked then', async () => {
    const { of, id, lease } = await undoing()
    const held = await holdOperation(testDatabase.url, id)
    await held.sql`select 1 from effects where effect_key = ${`${of}:k0`} for no key update`
    await raceBehind(database, held, () => tell(database, lease, own(of), done))
    await expectCompensated(of, id, 'worker')
  })

  test('of a second compensation, after one that failed, is undone under the same key, with another send', async () => {
    const { of, id, lease } = await undoing()
    await tell(database, lease, own(of), { effect: 'absent', item: 'failed', failureClass: 'conflict' })
    await database.query(
      ({ sql }) => sql`
        update operations set status = 'failed', completed_at = now() where id = ${id}::uuid`,
    )
    const again = await compensate(of)
    expect(await itemsOf(again.id)).toEqual(await itemsOf(id))
    // the first one did happen after all: then there is nothing left for the second one to do
    await tell(database, lease, own(of), done, 'lookup')
    await expectCompensated(of, id, 'lookup')
    const second = await claimOne(database, UNDOING)
    expect(await claimWindow(database, second, 0, 1)).toEqual(new Set())
    expect(await readShard(database, second)).toMatchObject({ in_flight: 0, waiting: 1, intents: 0 })
  })

  test('a crash at each line leaves a state that says what is known', async () => {
    const { of, id, lease } = await undoing(2)
    // window claimed, nothing sent, or sent and not stored: the intents are there for the next holder
    await expireLease(database, lease)
    const [taken] = await database.query((connection) =>
      claimExpiredShards(connection, { workerId: randomUUID(), types: [UNDOING], limit: 1 }),
    )
    if (!taken) throw new Error('the lease did not run out')
    const orphans = await database.query((connection) => readOrphanedIntents(connection, taken, 10))
    expect(orphans.map((orphan) => orphan.effectKey)).toEqual([own(of, 1, 'k0').effectKey, own(of, 0, 'k1').effectKey])
    expect(await effectsOf(of)).toEqual({ k0: 'applied 1', k1: 'applied 1' })
    // the converge is rolled back by a fault behind its last statement: neither side has moved
    await database.query(
      ({ sql }) => sql`alter table ledger_entries add constraint die check (reason_code <> 'COMPENSATED') not valid`,
    )
    await expect(tell(database, lease, own(of, 0, 'k1'), done)).rejects.toThrow()
    await database.query(({ sql }) => sql`alter table ledger_entries drop constraint die`)
    expect(await effectsOf(id)).toEqual({ k1: 'intent 1', k0: 'intent 1' })
    expect(await effectsOf(of)).toEqual({ k0: 'applied 1', k1: 'applied 1' })
    expect(await readShard(database, lease)).toMatchObject({ in_flight: 2, applied: 0 })
    await tell(database, lease, own(of, 0, 'k1'), done)
    expect(await effectsOf(of)).toEqual({ k0: 'applied 1', k1: 'compensated 1' })
  })
})

test('its shards are left to workers whose type can take effects back', async () => {
  await compensate(await plant(keysOf('k', 1)))
  const claim = { workerId: randomUUID(), limit: 1, perTenant: 1, afterTenant: 0 }
  const claimed = (compensates: boolean) =>
    database.query((connection) => claimReadyShards(connection, { ...claim, types: [{ ...GRANT, compensates }] }))
  expect((await claimed(false)).shards).toEqual([])
  expect((await claimed(true)).shards).toHaveLength(1)
})

test('a replay of a compensation compensates too, in one shard, and is not listed beside it', async () => {
  const of = await plant(keysOf('k', 3))
  const { id } = await compensate(of)
  await database.transaction(async ({ sql }) => {
    await sql`update operations set status = 'failed', completed_at = now() where id = ${id}::uuid`
    await sql`update operation_shards set state = 'done', cursor = 3, failed = 3, failed_transient = 3
      where operation_id = ${id}::uuid`
    await sql`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key,
        input_hash, source, code_version)
      select tenant_id, operation_id, ord, item_key, 1, 'failed', 'transient', effect_key, 'h', 'worker', 'c1'
      from operation_items where operation_id = ${id}::uuid`
  })
  const asked = await preflightReplay(context(), operator, id, { scope: null })
  expect(asked).toMatchObject({ allowed: true, replayTargets: 3 })
  const replay = await replayOperation(context(), operator, id, {
    preflightId: asked.id,
    reason: 'again',
    force: [],
    ifMatchVersion: null,
  })
  expect(await itemsOf(replay.id)).toEqual(await itemsOf(id))
  const rows = await database.query(
    ({ sql }) => sql`
      select o.compensates, o.replay_of, s.compensating, s.to_ord from operations o
        join operation_shards s on s.operation_id = o.id where o.id = ${replay.id}::uuid`,
  )
  expect(rows).toEqual([{ compensates: of, replay_of: id, compensating: true, to_ord: 3 }])
  // an open one of either kind stands in the way of another compensation
  expect(await refusal(compensate(of))).toMatchObject({ extra: { blocked_by: ['compensation-in-progress'] } })
  const noMore = plantedTypes(plantedType('grant'))
  expect(await preflightReplay({ database, types: noMore }, operator, id, { scope: null })).toMatchObject({
    blockedBy: ['replay-in-progress', 'no-compensation'],
  })
})

describe('an item with steps', () => {
  const STEPS = ['reserve', 'pay', 'ship']
  const said = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
  const busy = { effect: 'absent', item: 'failed', failureClass: 'transient', reasonCode: 'BUSY' } as const
  const done = { effect: 'applied', item: 'applied', effectRef: 'undone' } as const
  const stepStates = async (key: string) => {
    const rows = await database.query(
      ({ sql }) => sql<{ step: string; state: string; send: number }>`
        select step, state, send from effects where effect_key like ${`${key}/%`}`,
    )
    return Object.fromEntries(rows.map((row) => [row.step, `${row.state} ${row.send}`]))
  }
  const claimDue = async (lease: ClaimedShard): Promise<void> => {
    const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
    await claimRetries(database, lease, ords, { sendByMs: 1_000, resendWithinMs: 3_600_000 })
    await explainKnownKeys(database, lease, ords, 'c1')
  }
  const at = (key: string, step: string, ord = 0, send = 1) => ({ ord, effectKey: `${key}/${step}`, send })
  const end = async (lease: ClaimedShard): Promise<void> => {
    await finishShard(database, lease)
    await settleOperation(context(), TENANT, lease.operationId)
  }
  /** Walks the items of the shard through the steps from `from` on, each with this send. */
  const walk = async (lease: ClaimedShard, keys: readonly string[], from = STEPS[0], send = 1): Promise<void> => {
    for (const step of STEPS.slice(STEPS.indexOf(from ?? ''))) {
      for (const [ord, key] of keys.entries()) await tell(database, lease, at(key, step, ord, send), said)
      await claimDue(lease)
    }
    await end(lease)
  }
  const submit = async (keys: readonly string[]): Promise<ClaimedShard> => {
    await storeOperation(database, {
      items: keys.map((key) => ({ key: `item-${key}`, effectKey: key })),
      steps: STEPS,
    })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, keys.length)
    return lease
  }
  const applyAll = async (keys: readonly string[]): Promise<string> => {
    const lease = await submit(keys)
    await walk(lease, keys)
    return lease.operationId
  }
  const undo = async (of: string) => {
    const { id } = await compensate(of)
    const lease = await claimOne(database, UNDOING)
    expect(lease).toMatchObject({ operationId: id, compensating: true, steps: [] })
    await claimWindow(database, lease, 0, lease.toOrd)
    return { id, lease }
  }
  const own = (key: string, ord = 0, send = 1) => ({ ord, effectKey: `compensate:1/ship:${key}`, send })
  const all = (standing: string) => ({ reserve: standing, pay: standing, ship: standing })
  const observed = async (id: string) =>
    (
      await database.query(
        ({ sql }) => sql<{ item_key: string; step: string }>`
          select item_key, step from ledger_entries
          where operation_id = ${id}::uuid and reason_code = 'COMPENSATED' order by seq`,
      )
    ).map(({ item_key, step }) => `${item_key} ${step}`)
  /** A first run that got as far as `pay`, which failed, and its replay, which did the rest. */
  const replayed = async (): Promise<{ first: string; second: string }> => {
    const first = await submit(['k'])
    await tell(database, first, at('k', 'reserve'), said)
    await claimDue(first)
    await tell(database, first, at('k', 'pay'), busy)
    await end(first)
    const stepped = { ...context(), types: plantedTypes(plantedType('grant', { steps: STEPS })) }
    const { id: preflightId } = await preflightReplay(stepped, operator, first.operationId, { scope: null })
    const { id } = await replayOperation(stepped, operator, first.operationId, {
      preflightId,
      reason: 'again',
      force: [],
      ifMatchVersion: null,
    })
    const second = await claimOne(database)
    expect(second).toMatchObject({ operationId: id, steps: STEPS })
    await claimWindow(database, second, 0, 1)
    await claimDue(second)
    await claimDue(second)
    await tell(database, second, at('k', 'pay', 0, 2), said)
    await claimDue(second)
    await walk(second, ['k'], 'ship')
    return { first: first.operationId, second: id }
  }

  test('is one target, under the key of the item and the send of its last step', async () => {
    const of = await applyAll(['b', 'a'])
    expect(await preflight(of)).toMatchObject({ compensationTargets: 2, appliedTargets: 2, allowed: true })
    const { id } = await compensate(of)
    expect(await itemsOf(id)).toEqual([
      { ord: 0, item_key: 'item-a', effect_key: compensationKey({ effectKey: 'a', step: 'ship', send: 1 }) },
      { ord: 1, item_key: 'item-b', effect_key: 'compensate:1/ship:b' },
    ])
  })

  test('is a target by its last step only: not where that is not applied any more, or by another operation', async () => {
    const of = await applyAll(['a', 'b', 'c', 'd'])
    await database.query(
      ({ sql }) => sql`
        update effects set state = case effect_key when 'a/ship' then 'compensated' else state end,
          operation_id = case when effect_key in ('b/ship', 'c/pay') then ${randomUUID()}::uuid else operation_id end`,
    )
    const { compensationTargets } = await preflight(of)
    const { id } = await compensate(of)
    expect((await itemsOf(id)).map((item) => item.item_key)).toEqual(['item-d', 'item-c'])
    expect(compensationTargets).toBe(2)
  })

  test('that stopped on its way is no target', async () => {
    const lease = await submit(['k'])
    await tell(database, lease, at('k', 'reserve'), said)
    await claimDue(lease)
    await tell(database, lease, at('k', 'pay'), busy)
    await end(lease)
    expect(await preflight(lease.operationId)).toMatchObject({ blockedBy: ['nothing-to-compensate'] })
  })

  test('is compensated in all its steps by one undoing, each with an observation of its own', async () => {
    const of = await applyAll(['a', 'b'])
    const { lease } = await undo(of)
    await tell(database, lease, own('b', 0), done)
    expect([await stepStates('a'), await stepStates('b')]).toEqual([all('applied 1'), all('compensated 1')])
    await tell(database, lease, own('a', 1), done)
    await tell(database, lease, own('a', 1), done)
    expect([await stepStates('a'), await stepStates('b')]).toEqual([all('compensated 1'), all('compensated 1')])
    expect(await observed(of)).toEqual([
      ...STEPS.map((step) => `item-b ${step}`),
      ...STEPS.map((step) => `item-a ${step}`),
    ])
    await end(lease)
    expect(await preflight(of)).toMatchObject({ blockedBy: ['nothing-to-compensate'] })
  })

  test.each([
    ['another send of its last step', (of: string) => ({ key: 'k/ship', send: 2, operation: of, state: 'applied' })],
    ['a last step of another operation', () => ({ key: 'k/ship', send: 1, operation: randomUUID(), state: 'applied' })],
    ['a last step that is undone', (of: string) => ({ key: 'k/ship', send: 1, operation: of, state: 'compensated' })],
  ])('is left alone as a whole where the fence finds %s', async (_name, change) => {
    const of = await applyAll(['k'])
    const { lease } = await undo(of)
    const { key, send, operation, state } = change(of)
    await database.query(
      ({ sql }) => sql`
        update effects set send = ${send}, operation_id = ${operation}::uuid, state = ${state} where effect_key = ${key}`,
    )
    await tell(database, lease, own('k'), done)
    expect(await stepStates('k')).toEqual({ ...all('applied 1'), ship: `${state} ${send}` })
    expect(await observed(of)).toEqual([])
  })

  test('whose first step an earlier run applied: the replay is what is compensated, with that step', async () => {
    const { first, second } = await replayed()
    expect(await stepStates('k')).toEqual({ ...all('applied 1'), pay: 'applied 2' })
    expect(await preflight(first)).toMatchObject({ blockedBy: ['nothing-to-compensate'] })
    const { lease } = await undo(second)
    const before = await Promise.all([first, second].map(entriesOf))
    await tell(database, lease, own('k'), done)
    expect(await stepStates('k')).toEqual({ ...all('compensated 1'), pay: 'compensated 2' })
    expect(await observed(second)).toEqual(STEPS.map((step) => `item-k ${step}`))
    expect(await entriesOf(first)).toEqual(before[0])
    expect(await entriesOf(second)).toHaveLength((before[1]?.length ?? 0) + STEPS.length)
  })

  test('goes through all steps again afterwards; evidence of the undoing that comes late marks nothing then', async () => {
    const of = await applyAll(['k'])
    const { lease } = await undo(of)
    await tell(database, lease, own('k'), { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' })
    await tell(database, lease, own('k'), { effect: 'absent', item: 'failed', failureClass: 'transient' }, 'operator')
    await end(lease)
    const second = await undo(of)
    expect(await claimWindow(database, second.lease, 0, 1)).toBeNull()
    await claimDue(second.lease)
    await tell(database, second.lease, own('k', 0, 2), done)
    await end(second.lease)
    expect(await stepStates('k')).toEqual(all('compensated 1'))

    const again = await submit(['k'])
    await claimDue(again)
    await walk(again, ['k'], 'reserve', 2)
    expect(await stepStates('k')).toEqual(all('applied 2'))
    const entriesBefore = await entriesOf(of)
    for (const late of [lease, second.lease]) {
      await tell(database, late, own('k'), done)
      await tell(database, late, own('k', 0, 2), done)
    }
    expect(await stepStates('k')).toEqual(all('applied 2'))
    expect(await entriesOf(of)).toEqual(entriesBefore)
    expect(await preflight(again.operationId)).toMatchObject({ compensationTargets: 1, allowed: true })
    expect(await itemsOf((await compensate(again.operationId)).id)).toMatchObject([
      { effect_key: 'compensate:2/ship:k' },
    ])
  })

  test('while a first step is sent again: late evidence marks nothing of it', async () => {
    const of = await applyAll(['k'])
    const { lease } = await undo(of)
    await tell(database, lease, own('k'), done)
    const again = await submit(['k'])
    await claimDue(again)
    await tell(database, again, at('k', 'reserve', 0, 2), said)
    await tell(database, lease, own('k'), done, 'lookup')
    expect(await stepStates('k')).toEqual({ reserve: 'applied 2', pay: 'compensated 1', ship: 'compensated 1' })
  })

  test.each([
    ['the same: all of it is marked then', 1, all('compensated 1')],
    ['another one: nothing is', 7, { ...all('applied 1'), ship: 'applied 7' }],
  ])('waits for whoever holds its last step, whose send then is %s', async (_name, send, expected) => {
    const of = await applyAll(['k'])
    const { id, lease } = await undo(of)
    const held = await holdOperation(testDatabase.url, id)
    await held.sql`update effects set send = ${send} where effect_key = 'k/ship'`
    await raceBehind(database, held, () => tell(database, lease, own('k'), done))
    expect(await stepStates('k')).toEqual(expected)
  })

  test('two reports at once: one observation of each step', async () => {
    const of = await applyAll(['k'])
    const { lease } = await undo(of)
    const held = await holdShard(testDatabase.url, lease)
    const [first, second] = await raceBehind(
      database,
      held,
      () => tell(database, lease, own('k'), done),
      () => tell(database, lease, own('k'), done, 'lookup'),
    )
    expect([first.moved.size, second.moved.size]).toEqual([1, 0])
    expect(await stepStates('k')).toEqual(all('compensated 1'))
    expect(await observed(of)).toHaveLength(STEPS.length)
  })

  test('a fault behind the marking rolls both back: no item is half undone', async () => {
    const of = await applyAll(['k'])
    const { lease } = await undo(of)
    await database.query(
      ({ sql }) =>
        sql`alter table ledger_entries add constraint die check (step <> 'ship' or reason_code <> 'COMPENSATED') not valid`,
    )
    await expect(tell(database, lease, own('k'), done)).rejects.toThrow()
    await database.query(({ sql }) => sql`alter table ledger_entries drop constraint die`)
    expect(await stepStates('k')).toEqual(all('applied 1'))
    expect(await readShard(database, lease)).toMatchObject({ in_flight: 1, applied: 0 })
    await tell(database, lease, own('k'), done)
    expect(await stepStates('k')).toEqual(all('compensated 1'))
  })
})
