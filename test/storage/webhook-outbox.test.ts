/** The outbox of webhooks: what is inserted with which event, and that one delivery has one sender at a time. */
import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { WEBHOOK_TRIES_MAX } from '../../src/domain/webhook.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { cancelBySystem } from '../../src/services/stop.ts'
import { approve, reject } from '../../src/storage/approvals.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { markStarted, readSettleFacts, writeStatus } from '../../src/storage/settle.ts'
import { requestCancel, requestPause } from '../../src/storage/stops.ts'
import { findDeliveryRow, redeliver } from '../../src/storage/webhook-deliveries.ts'
import {
  disableSiblings,
  type FinishedTry,
  finishTry,
  forgetOldDeliveries,
  storeBodies,
  type TakenDelivery,
  takeDueDeliveries,
} from '../../src/storage/webhook-outbox.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  holdOperation,
  items,
  NO_WAKE_UPS,
  raceBehind,
  storeOperation,
  TENANT,
  tell,
  wipe,
} from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 12, name: 'webhook outbox' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const URL = 'https://receiver.example/hooks?a=b'
const applied = { effect: 'applied', item: 'applied' } as const
const uncertain = { effect: 'uncertain', item: 'uncertain' } as const
const rejected = { effect: 'absent', item: 'failed', failureClass: 'validation_rejected' } as const

const context = () => ({ database, wakeUps: NO_WAKE_UPS })
const settle = (operationId: string) => settleOperation(context(), TENANT, operationId)
const request = (operationId: string) => ({ tenantId: TENANT, operationId, actor: 'tester', reason: null, note: null })
const store = (count = 1, callbackUrl: string | undefined = URL) =>
  storeOperation(database, { items: items(count), ...(callbackUrl && { callbackUrl }) })
const become = (operationId: string, status: string) =>
  database.query(({ sql }) => sql`update operations set status = ${status} where id = ${operationId}::uuid`)

/** Runs a one-shard operation with one outcome an item, up to the settle. */
const run = async (operationId: string, outcomes: (typeof applied | typeof uncertain | typeof rejected)[]) => {
  const lease = await claimOne(database)
  await database.query((connection) => markStarted(connection, TENANT, operationId))
  const rows = await database.query(
    ({ sql }) => sql<{ ord: number; effectKey: string }>`
      select ord, effect_key as "effectKey" from operation_items where operation_id = ${operationId}::uuid order by ord`,
  )
  await claimWindow(database, lease, 0, outcomes.length)
  for (const [index, outcome] of outcomes.entries()) {
    const effect = rows[index]
    if (effect) await tell(database, lease, effect, outcome)
  }
  await finishShard(database, lease)
  return { lease, effects: rows }
}

interface Row {
  event: string
  status: string
  url: string
  origin: string
  state: string
  event_version: number
  facts: { version: number; counts: Record<string, number>; timestamp: string; completed_at: string | null }
  body: string | null
}
const deliveries = (operationId: string): Promise<Row[]> =>
  database.query(
    ({ sql }) => sql<Row>`
      select event, status, url, origin, state, event_version::int, facts, body
      from webhook_deliveries where operation_id = ${operationId}::uuid order by event_version`,
  )
const told = async (operationId: string) =>
  (await deliveries(operationId)).map(({ event, status, state }) => `${event} ${status} ${state}`)

describe('a delivery is written with the event that it tells of', () => {
  test.each([
    ['succeeded', [applied, applied]],
    ['partially_succeeded', [applied, rejected]],
    ['failed', [rejected, rejected]],
  ] as const)('%s', async (status, outcomes) => {
    const id = await store(2)
    await run(id, [...outcomes])
    expect(await deliveries(id)).toEqual([])
    expect(await settle(id)).toBe(status)
    expect(await told(id)).toEqual([`operation.settled ${status} pending`])
    await settle(id)
    expect(await told(id)).toHaveLength(1)
    const [delivery] = await deliveries(id)
    const [shown] = await database.query(
      ({ sql }) => sql<{ version: number; event: number; completed: string }>`
        select (o.version + (select sum(version) from operation_shards s where s.operation_id = o.id))::int as version,
          (select max(e.version) from operation_events e where e.operation_id = o.id and e.kind = 'settled')::int as event,
          to_jsonb(completed_at) #>> '{}' as completed
        from operations o where id = ${id}::uuid`,
    )
    const done = outcomes.filter((outcome) => outcome === applied).length
    expect(delivery).toMatchObject({
      url: URL,
      origin: 'https://receiver.example',
      event_version: shown?.event,
      body: null,
      facts: {
        version: shown?.version,
        counts: { total: 2, applied: done, skipped: 0, failed: 2 - done, uncertain: 0 },
        completed_at: shown?.completed,
      },
    })
  })

  test('reconciliation_required, and then how it ended; once each time it comes to that', async () => {
    const id = await store()
    const { lease, effects } = await run(id, [uncertain])
    expect(await settle(id)).toBe('reconciliation_required')
    expect(await told(id)).toEqual(['operation.reconciliation_required reconciliation_required pending'])
    // a cancel changes its version, and not what it waits for
    await requestCancel(database, request(id))
    await settle(id)
    expect(await told(id)).toHaveLength(1)
    await tell(database, lease, effects[0] ?? { ord: 0, effectKey: '' }, applied, 'operator')
    expect(await settle(id)).toBe('completed_after_cancel')
    expect(await told(id)).toEqual([
      'operation.reconciliation_required reconciliation_required pending',
      'operation.settled completed_after_cancel pending',
    ])
    expect((await deliveries(id))[0]?.facts).toMatchObject({ completed_at: null, counts: { uncertain: 1 } })
  })

  test('late evidence after the end makes no second one', async () => {
    const id = await store()
    const { lease, effects } = await run(id, [rejected])
    await settle(id)
    await tell(database, lease, effects[0] ?? { ord: 0, effectKey: '' }, applied, 'operator')
    await settle(id)
    expect(await told(id)).toEqual(['operation.settled failed pending'])
  })

  test('cancelled before the start, by a person and by the deadline', async () => {
    const [first, second] = [await store(), await store()]
    await requestCancel(database, request(first))
    expect(await told(first)).toEqual([])
    await settle(first)
    await cancelBySystem(context(), { tenantId: TENANT, operationId: second }, 'system:deadline', 'the deadline passed')
    for (const id of [first, second]) expect(await told(id)).toEqual(['operation.settled cancelled pending'])
    expect((await deliveries(first))[0]?.facts.counts).toEqual({
      total: 1,
      applied: 0,
      skipped: 0,
      failed: 0,
      uncertain: 0,
    })
  })

  test('cancelled as a draft, and while it is paused', async () => {
    const [draft, paused] = [await store(), await store()]
    await become(draft, 'draft')
    await requestCancel(database, request(draft))
    await settle(draft)
    await requestPause(database, request(paused))
    await settle(paused)
    expect(await told(paused)).toEqual([])
    await requestCancel(database, request(paused))
    await settle(paused)
    for (const id of [draft, paused]) expect(await told(id)).toEqual(['operation.settled cancelled pending'])
  })

  test('a rejected approval', async () => {
    const [refused, allowed] = [await store(), await store()]
    for (const id of [refused, allowed]) await become(id, 'awaiting_approval')
    expect(await reject(database, request(refused))).toBe(true)
    expect(await told(refused)).toEqual(['operation.settled cancelled pending'])
    expect(await reject(database, request(refused))).toBe(false)
    expect(await approve(database, request(allowed))).toBe(true)
    expect(await told(refused)).toHaveLength(1)
    expect(await told(allowed)).toEqual([])
    const [shown] = await database.query(
      ({ sql }) => sql<{ version: number }>`
        select (o.version + (select sum(version) from operation_shards s where s.operation_id = o.id))::int as version
        from operations o where id = ${refused}::uuid`,
    )
    expect((await deliveries(refused))[0]?.facts).toMatchObject({ version: shown?.version, counts: { total: 1 } })
  })

  test('none without a callback URL', async () => {
    const id = await storeOperation(database, { items: items(1) })
    await run(id, [applied])
    expect(await settle(id)).toBe('succeeded')
    expect(await told(id)).toEqual([])
  })

  test('none by who lost the settle, and one after a race of settlers', async () => {
    const id = await store()
    await run(id, [applied])
    const facts = await database.query((connection) => readSettleFacts(connection, TENANT, id))
    const write = () =>
      database.query((connection) =>
        writeStatus(connection, {
          tenantId: TENANT,
          operationId: id,
          seenVersion: facts?.version ?? '',
          status: 'succeeded',
          final: true,
          summary: null,
        }),
      )
    const written = await raceBehind(database, await holdOperation(testDatabase.url, id), write, write, write)
    expect(written.filter(Boolean)).toHaveLength(1)
    expect(await told(id)).toHaveLength(1)
  })

  test('a settle that is rolled back takes it along', async () => {
    const id = await store()
    await run(id, [applied])
    const facts = await database.query((connection) => readSettleFacts(connection, TENANT, id))
    const died = database.transaction(async (connection) => {
      await writeStatus(
        { ...connection, db: null as never },
        {
          tenantId: TENANT,
          operationId: id,
          seenVersion: facts?.version ?? '',
          status: 'succeeded',
          final: true,
          summary: null,
        },
      )
      throw new Error('died before the commit')
    })
    await expect(died).rejects.toThrow('died before the commit')
    expect(await told(id)).toEqual([])
  })
})

/** Deliveries that are due, of operations of their own; by id, in their order. */
const plant = async (count: number, { url = URL, operationId }: { url?: string; operationId?: string } = {}) => {
  const ids: string[] = []
  for (let index = 0; index < count; index++) {
    const operation = operationId ?? (await store(1, url))
    const [row] = await database.query(
      ({ sql }) => sql<{ id: string }>`
        insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url)
        values (${TENANT}, ${operation}::uuid, ${index + 2}, 'operation.settled', 'succeeded',
          '{"timestamp": "2026-11-29T14:20:18+00:00", "version": 2, "counts": {}, "completed_at": null}', ${url})
        returning id`,
    )
    ids.push(row?.id ?? '')
  }
  return ids
}
const LIMITS = { limit: 100, perOrigin: 100, afterOrigin: '', holdMs: 60_000, triesMax: WEBHOOK_TRIES_MAX }
const take = async (limits: Partial<typeof LIMITS> = {}): Promise<TakenDelivery[]> =>
  (await takeDueDeliveries(database, { ...LIMITS, ...limits })).taken
const takeOne = async (): Promise<TakenDelivery> => {
  const [taken] = await take({ limit: 1 })
  if (!taken) throw new Error('nothing is due')
  return taken
}
const finish = (taken: TakenDelivery, change: Partial<FinishedTry> = {}) =>
  database.query((connection) =>
    finishTry(connection, {
      tenantId: taken.tenantId,
      id: taken.id,
      attempt: taken.attempt,
      status: 204,
      error: null,
      durationMs: 5,
      state: 'delivered',
      delayMs: null,
      ...change,
    }),
  )
const expireHolds = () =>
  database.query(
    ({ sql }) => sql`
      update webhook_deliveries set held_until = now() - interval '1 second', next_attempt_at = now() - interval '1 second'
      where held_until is not null`,
  )
const makeDue = () =>
  database.query(({ sql }) => sql`update webhook_deliveries set next_attempt_at = now() where state = 'pending'`)
const find = async (id: string) => {
  const row = await database.query((connection) => findDeliveryRow(connection, TENANT, id))
  if (!row) throw new Error('there is no such delivery')
  return row
}

describe('taking', () => {
  test('holds a delivery, counts the try and begins its log', async () => {
    const [id = ''] = await plant(1)
    const taken = await takeOne()
    expect(taken).toMatchObject({
      tenantId: TENANT,
      id,
      url: URL,
      origin: 'https://receiver.example',
      attempt: 1,
      tries: 1,
      body: null,
      operation: { type: 'grant', status: 'succeeded' },
      facts: { version: 2 },
    })
    expect(Math.abs(taken.atSeconds * 1_000 - Date.now())).toBeLessThan(60_000)
    expect(await find(id)).toMatchObject({
      state: 'pending',
      sending: true,
      attempts: 1,
      log: [{ attempt: 1, status: null, error: null, durationMs: null }],
    })
    expect(await take()).toEqual([])
  })

  test('one sender at a time: while another one takes, nothing is taken', async () => {
    await plant(1)
    const other = postgres(testDatabase.url, { max: 1 })
    await other.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(8603390863846894451)`
      expect(await take()).toEqual([])
    })
    await other.end()
    expect(await take()).toHaveLength(1)
  })

  test('eight senders together take each delivery once, and never more of an origin than its limit', async () => {
    const url = (origin: number): string => `https://r${origin}.example/x`
    for (let origin = 0; origin < 5; origin++) await plant(12, { url: url(origin) })
    const seen: string[] = []
    const flying = new Map<string, number>()
    const sender = async (): Promise<void> => {
      while (seen.length < 60) {
        const taken = await take({ limit: 3, perOrigin: 2 })
        for (const { id, origin } of taken) {
          seen.push(id)
          flying.set(origin, (flying.get(origin) ?? 0) + 1)
          expect(flying.get(origin)).toBeLessThanOrEqual(2)
        }
        for (const delivery of taken) {
          flying.set(delivery.origin, (flying.get(delivery.origin) ?? 0) - 1)
          expect(await finish(delivery)).toBe(true)
        }
      }
    }
    await Promise.all(Array.from({ length: 8 }, sender))
    expect(new Set(seen).size).toBe(60)
    expect(seen).toHaveLength(60)
  })

  test('a receiver that answers nobody does not keep the others waiting', async () => {
    await plant(30, { url: 'https://a-slow.example/' })
    expect(await take({ limit: 32, perOrigin: 4 })).toHaveLength(4)
    await plant(1, { url: 'https://b-quick.example/' })
    expect((await take({ limit: 32, perOrigin: 4 })).map(({ origin }) => origin)).toEqual(['https://b-quick.example'])
  })

  test('a limit ends a take, and the next one goes on behind it', async () => {
    for (const name of ['a', 'b', 'c']) await plant(2, { url: `https://${name}.example/` })
    const first = await takeDueDeliveries(database, { ...LIMITS, limit: 2, perOrigin: 1 })
    expect(first.next).toBe('https://b.example')
    const second = await takeDueDeliveries(database, { ...LIMITS, limit: 2, perOrigin: 1, afterOrigin: first.next })
    expect(second.taken.map(({ origin }) => origin)).toEqual(['https://c.example'])
    expect(second.next).toBe('')
  })
})

describe('a sender that dies', () => {
  test('before the bytes are stored: another one takes it over when the hold has run out', async () => {
    const [id = ''] = await plant(1)
    await takeOne()
    expect(await take()).toEqual([])
    await expireHolds()
    expect(await find(id)).toMatchObject({ sending: false })
    expect(await takeOne()).toMatchObject({ id, attempt: 2, tries: 2, body: null })
    expect((await find(id)).log).toMatchObject([
      { attempt: 1, error: 'SENDER_LOST', durationMs: null },
      { attempt: 2, error: null },
    ])
  })

  test('after the send: the next one has the same bytes', async () => {
    const [id = ''] = await plant(1)
    const taken = await takeOne()
    const store = (body: string) =>
      database.query((connection) => storeBodies(connection, [{ tenantId: TENANT, id, body }]))
    expect(await store('{"first": "ünïcode \\" \\\\"}')).toEqual(new Map([[id, '{"first": "ünïcode \\" \\\\"}']]))
    await expireHolds()
    expect(await takeOne()).toMatchObject({ id, body: '{"first": "ünïcode \\" \\\\"}' })
    // what one sender has stored, no other one replaces
    expect(await store('{"second": true}')).toEqual(new Map([[id, '{"first": "ünïcode \\" \\\\"}']]))
    expect(taken.id).toBe(id)
  })

  test('and comes back too late: its end is kept in the log and moves nothing', async () => {
    const [id = ''] = await plant(1)
    const late = await takeOne()
    await expireHolds()
    const second = await takeOne()
    expect(await finish(late, { status: 500, state: 'failed' })).toBe(false)
    expect(await find(id)).toMatchObject({ state: 'pending', sending: true })
    expect(await finish(second)).toBe(true)
    expect(await finish(late, { status: 500, state: 'failed' })).toBe(false)
    expect(await find(id)).toMatchObject({
      state: 'delivered',
      lastStatus: 204,
      log: [
        { attempt: 1, status: 500, durationMs: 5 },
        { attempt: 2, status: 204, durationMs: 5 },
      ],
    })
  })

  test('and comes back too late for a redelivery: that one is not called off', async () => {
    const [id = ''] = await plant(1)
    const late = await takeOne()
    await expireHolds()
    expect(await database.query((connection) => redeliver(connection, TENANT, id))).toBe(true)
    expect(await finish(late, { status: 500, state: 'failed' })).toBe(false)
    expect(await takeOne()).toMatchObject({ id, attempt: 2, tries: 1 })
  })

  test('and comes back before anybody missed it: its outcome counts', async () => {
    const [id = ''] = await plant(1)
    const late = await takeOne()
    await expireHolds()
    expect(await finish(late)).toBe(true)
    expect((await find(id)).state).toBe('delivered')
    expect(await take()).toEqual([])
  })

  test('at every try: the delivery ends as failed', async () => {
    const [id = ''] = await plant(1)
    for (let tries = 1; tries <= WEBHOOK_TRIES_MAX; tries++) {
      expect(await takeOne()).toMatchObject({ tries })
      await expireHolds()
    }
    expect(await take()).toEqual([])
    const failed = await find(id)
    expect(failed).toMatchObject({ state: 'failed', lastError: 'SENDER_LOST', attempts: WEBHOOK_TRIES_MAX })
    expect(failed.log.map(({ error }) => error)).toEqual(Array(WEBHOOK_TRIES_MAX).fill('SENDER_LOST'))
    expect(await take()).toEqual([])
  })
})

describe('a receiver that is gone', () => {
  test('gets nothing else of the operation; what others tell stays', async () => {
    const [waiting = '', held = '', gone = ''] = await plant(3, { operationId: await store() })
    const [other = ''] = await plant(1)
    const taken = new Map((await take()).map((delivery) => [delivery.id, delivery]))
    const finishId = async (id: string, change: Partial<FinishedTry>) => {
      const delivery = taken.get(id)
      return delivery !== undefined && (await finish(delivery, change))
    }
    await finishId(waiting, { status: 500, state: 'pending', delayMs: 60_000 })
    await finishId(gone, { status: 410, state: 'disabled' })
    await database.query((connection) => disableSiblings(connection, { tenantId: TENANT, id: gone }))
    expect((await find(gone)).state).toBe('disabled')
    for (const id of [waiting, held]) {
      expect(await find(id)).toMatchObject({ state: 'disabled', lastError: 'RECEIVER_GONE', sending: false })
    }
    expect((await find(other)).state).toBe('pending')
    // the answer to the one that was in flight comes after it
    expect(await finishId(held, {})).toBe(false)
    expect((await find(held)).state).toBe('disabled')
  })

  test('hears nothing of a later event either, until somebody redelivers', async () => {
    const id = await store()
    const { lease, effects } = await run(id, [uncertain])
    await settle(id)
    await finish(await takeOne(), { status: 410, state: 'disabled' })
    await tell(database, lease, effects[0] ?? { ord: 0, effectKey: '' }, applied, 'operator')
    await settle(id)
    expect(await told(id)).toEqual([
      'operation.reconciliation_required reconciliation_required disabled',
      'operation.settled succeeded disabled',
    ])
    expect(await take()).toEqual([])
  })

  test('two senders that hear it at once about one operation do not lock each other out', async () => {
    const ids = await plant(8, { operationId: await store() })
    const taken = await take()
    await Promise.all(
      taken.map(async (delivery) => {
        await finish(delivery, { status: 410, state: 'disabled' })
        await database.query((connection) => disableSiblings(connection, delivery))
      }),
    )
    for (const id of ids) expect((await find(id)).state).toBe('disabled')
  })
})

describe('a redelivery', () => {
  const again = (id: string, tenantId = TENANT) => database.query((connection) => redeliver(connection, tenantId, id))

  test.each(['delivered', 'failed', 'disabled'] as const)(
    'from %s: due now, with all its tries before it',
    async (state) => {
      const [id = ''] = await plant(1)
      const first = await takeOne()
      await database.query((connection) => storeBodies(connection, [{ tenantId: TENANT, id, body: '{"a":1}' }]))
      await finish(first, { state })
      expect(await again(id)).toBe(true)
      expect(await takeOne()).toMatchObject({ id, attempt: 2, tries: 1, body: '{"a":1}' })
    },
  )

  test('of one that waits for its next try: now', async () => {
    const [id = ''] = await plant(1)
    await finish(await takeOne(), { status: 500, state: 'pending', delayMs: 3_600_000 })
    expect(await take()).toEqual([])
    expect(await again(id)).toBe(true)
    expect(await takeOne()).toMatchObject({ id, attempt: 2, tries: 1 })
  })

  test('not of one that is being sent, until its hold has run out; nor of another tenant', async () => {
    const [id = ''] = await plant(1)
    await takeOne()
    expect(await again(id)).toBe(false)
    await expireHolds()
    expect(await again(id, 2)).toBe(false)
    expect(await again(randomUUID())).toBe(false)
    expect(await again(id)).toBe(true)
  })
})

test('a pause is kept: nothing is due before it', async () => {
  const [id = ''] = await plant(1)
  await finish(await takeOne(), { status: 503, state: 'pending', delayMs: 60_000 })
  expect(await take()).toEqual([])
  expect(await find(id)).toMatchObject({ state: 'pending', sending: false, lastStatus: 503 })
  await makeDue()
  expect(await takeOne()).toMatchObject({ id, attempt: 2, tries: 2 })
})

test('what has ended is forgotten with its log after 30 days, and what is pending never', async () => {
  const [ended = '', open = '', young = ''] = await plant(3)
  for (const taken of await take()) if (taken.id !== open) await finish(taken)
  await database.query(
    ({ sql }) => sql`
      update webhook_deliveries set created_at = now() - interval '31 days' where id in (${ended}::uuid, ${open}::uuid)`,
  )
  await database.query(forgetOldDeliveries)
  const left = await database.query(
    ({ sql }) => sql<{ id: string }>`select distinct delivery_id as id from webhook_attempts`,
  )
  expect(left.map(({ id }) => id).sort()).toEqual([open, young].sort())
  await expect(find(ended)).rejects.toThrow()
})
