import { createHash } from 'node:crypto'
import { pino } from 'pino'
import { describe, expect, test } from 'vitest'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { callbacks } from '../../src/maintenance/callbacks.ts'
import { judgeCallback } from '../../src/services/judge-callback.ts'
import type { CallbackView } from '../../src/services/views.ts'
import { findCallbackTargets, insertCallback, readCallback, takePendingCallbacks } from '../../src/storage/callbacks.ts'
import { forgetOldCallbacks } from '../../src/storage/housekeeping.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import {
  applied,
  busyAgain,
  cases,
  claimRetry,
  contextOf,
  database,
  effect,
  entries,
  grant,
  hold,
  inbox,
  inFlight,
  key,
  maintain,
  receive,
  refused,
  resolve,
  type Said,
  timedOut,
  uncertain,
  useCallbackDatabase,
} from '../support/callback-events.ts'
import { claimOne, claimWindow, items, raceBehind, readShard, storeOperation, tell } from '../support/races.ts'
import { findViolations } from '../support/storm-audit.ts'

useCallbackDatabase()

describe('races', () => {
  test.each<[string, Said, () => Promise<ClaimedShard>, CallbackView['outcome'], number]>([
    ['applied', 'applied', timedOut, 'applied', 2],
    ['absent', 'absent', timedOut, 'absent', 2],
    [
      'a contradiction',
      'absent',
      async () => {
        const lease = await inFlight()
        await tell(database, lease, key, applied)
        return lease
      },
      'contradiction',
      2,
    ],
  ])(
    'two deliveries of one event at once, %s: it acts once, and both are answered the same',
    async (_, said, prepare, outcome, written) => {
      const lease = await prepare()
      const held = await hold(lease)
      const both = await raceBehind(
        database,
        held,
        () => receive(said),
        () => receive(said),
      )
      const [first, second] = both
      expect([first.duplicate, second.duplicate]).toEqual([false, true])
      expect(first).toMatchObject({ outcome })
      expect({ ...second, duplicate: false }).toEqual({ ...first, duplicate: false })
      expect(await entries(lease.operationId)).toHaveLength(written)
      expect(await inbox()).toEqual({ outcome, processed: true })
      expect(await findViolations(database)).toEqual([])
    },
  )

  test('many deliveries at once without anything held', async () => {
    const lease = await timedOut()
    const all = await Promise.all(Array.from({ length: 12 }, () => receive('applied')))
    expect(new Set(all.map((one) => one.outcome))).toEqual(new Set(['applied']))
    expect(all.filter((one) => !one.duplicate)).toHaveLength(1)
    expect(await entries(lease.operationId)).toHaveLength(2)
  })

  test('two events of one id and two bodies at once: one is refused', async () => {
    const lease = await timedOut()
    const [one, two] = await Promise.allSettled([receive('applied'), receive('absent')])
    const refusals = [one, two].filter((settled) => settled.status === 'rejected')
    expect(refusals).toMatchObject([{ reason: { code: 'event-id-reused' } }])
    expect(await entries(lease.operationId)).toHaveLength(2)
  })

  test.each([
    ['the timeout', uncertain, 'applied'],
    ['the answer "done"', applied, 'applied'],
    ['the answer "refused"', refused, 'applied'],
  ] as const)('applied, just before %s', async (_, answer, state) => {
    const lease = await inFlight()
    const held = await hold(lease)
    const [received] = await raceBehind(
      database,
      held,
      () => receive('applied'),
      () => tell(database, lease, key, answer),
    )
    expect(received).toMatchObject({ outcome: 'applied' })
    expect(await effect()).toMatchObject({ state })
    const opened = await cases(lease.operationId)
    expect(opened.map((found) => found.cause)).toEqual(answer === refused ? ['contradiction'] : [])
    expect(await findViolations(database)).toEqual([])
  })

  test.each([
    ['the timeout', uncertain, 'applied'],
    ['the answer "done"', applied, 'known'],
    ['the answer "refused"', refused, 'applied'],
  ] as const)('applied, just behind %s', async (_, answer, outcome) => {
    const lease = await inFlight()
    const held = await hold(lease)
    const [, received] = await raceBehind(
      database,
      held,
      () => tell(database, lease, key, answer),
      () => receive('applied'),
    )
    expect(received).toMatchObject({ outcome })
    expect(await effect()).toMatchObject({ state: 'applied' })
    expect(await findViolations(database)).toEqual([])
  })

  test.each([
    [
      'a lookup that finds it',
      (lease: ClaimedShard) => tell(database, lease, key, applied, 'lookup'),
      'contradiction',
      'applied',
    ],
    [
      'a lookup that finds nothing',
      (lease: ClaimedShard) => tell(database, lease, key, refused, 'lookup'),
      'known',
      'absent',
    ],
    [
      'a person who saw it',
      async (lease: ClaimedShard) => {
        const [open] = await cases(lease.operationId)
        return resolve(open?.id ?? '', 'applied')
      },
      'contradiction',
      'applied',
    ],
  ] as const)('absent, just behind %s', async (_, rival, outcome, state) => {
    const lease = await timedOut()
    const held = await hold(lease)
    const [, received] = await raceBehind(
      database,
      held,
      () => rival(lease),
      () => receive('absent'),
    )
    expect(received).toMatchObject({ outcome })
    expect(await effect()).toMatchObject({ state, send: 1 })
    expect(await readShard(database, lease)).toMatchObject({ retries: 0 })
    expect(await findViolations(database)).toEqual([])
  })

  test('absent, just before a person who saw it: what was seen counts, and the retry is given up', async () => {
    const lease = await timedOut()
    const [open] = await cases(lease.operationId)
    const held = await hold(lease)
    const [received] = await raceBehind(
      database,
      held,
      () => receive('absent'),
      () => resolve(open?.id ?? '', 'applied'),
    )
    expect(received).toMatchObject({ outcome: 'absent' })
    expect(await effect()).toMatchObject({ state: 'applied', send: 1 })
    expect(await readShard(database, lease)).toMatchObject({ retries: 0, waiting: 0, applied: 1 })
    expect(await findViolations(database)).toEqual([])
  })

  test('absent, just behind a cancel that it did not see: nothing is sent', async () => {
    const lease = await timedOut()
    const held = await hold(lease)
    await raceBehind(
      database,
      held,
      () => requestCancel(database, { ...lease, actor: 'tester', reason: null }),
      () => receive('absent'),
    )
    expect(await claimRetry(lease)).toBeNull()
    expect(await effect()).toMatchObject({ state: 'absent', send: 1 })
  })
})

describe('a crash', () => {
  const insertOnly = async (said: Said, lease: ClaimedShard, send = 1) => {
    const bodyHash = createHash('sha256')
      .update(JSON.stringify({ effectKey: 'key', state: said }))
      .digest('hex')
    await database.query((connection) =>
      insertCallback(connection, {
        type: 'grant',
        eventId: 'e1',
        bodyHash,
        statement: { effectKey: 'key', state: said },
        target: { ...lease, ord: 0, itemKey: 'i0', send },
      }),
    )
  }

  test.each([['applied'], ['absent']] as const)(
    'between insert and judgement, %s: a repeat judges it',
    async (said) => {
      const lease = await timedOut()
      await insertOnly(said, lease)
      expect(await receive(said)).toMatchObject({ outcome: said, duplicate: true, judged: true })
      expect(await effect()).toMatchObject({ state: said })
    },
  )

  test('between insert and judgement, and no repeat: the maintenance loop judges it', async () => {
    const lease = await timedOut()
    await insertOnly('applied', lease)
    // not at once: the receiver may be at it
    await callbacks(contextOf(), pino({ level: 'silent' })).runOnce()
    expect(await inbox()).toEqual({ outcome: null, processed: false })
    await maintain()
    expect(await inbox()).toEqual({ outcome: 'applied', processed: true })
    expect(await effect()).toMatchObject({ state: 'applied' })
  })

  test('leaves events that one loop takes at a time; one that cannot be judged stands in nobody’s way', async () => {
    await storeOperation(database, { items: items(2, (ord) => `k${ord}`) })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 2)
    for (const ord of [0, 1]) await tell(database, lease, { ord, effectKey: `k${ord}` }, uncertain)
    const insert = (ord: number, shard: number) =>
      database.query((connection) =>
        insertCallback(connection, {
          type: 'grant',
          eventId: `e${ord}`,
          bodyHash: 'h',
          statement: { effectKey: `k${ord}`, state: 'applied' },
          target: { ...lease, shard, ord, itemKey: `i${ord}`, send: 1 },
        }),
      )
    await insert(0, 7) // there is no such shard
    await insert(1, 0)
    await maintain()
    expect([await inbox('e0'), await inbox('e1')]).toEqual([
      { outcome: null, processed: false },
      { outcome: 'applied', processed: true },
    ])
    const take = () =>
      database.query((connection) =>
        takePendingCallbacks(connection, { types: ['grant', 'other'], limit: 10, holdMs: 60_000 }),
      )
    expect(await take()).toEqual([])
    await database.query(({ sql }) => sql`update callback_inbox set due_at = now() where processed_at is null`)
    const taken = (await Promise.all([take(), take(), take()])).flat()
    expect(taken.map((event) => event.eventId)).toEqual(['e0'])
  })

  test.each<[string, Said, () => Promise<ClaimedShard>, Partial<OperationType>, CallbackView['outcome']]>([
    ['applied', 'applied', timedOut, {}, 'applied'],
    ['absent', 'absent', timedOut, {}, 'absent'],
    ['noted', 'absent', timedOut, { onAbsent: 'case' }, 'noted'],
    [
      'contradiction',
      'absent',
      async () => {
        const lease = await inFlight()
        await tell(database, lease, key, applied)
        return lease
      },
      {},
      'contradiction',
    ],
  ])(
    'between act and outcome, %s: the trace says what it was, and nothing is done twice',
    async (_, said, prepare, change, outcome) => {
      const type = grant(change)
      const lease = await prepare()
      const first = await receive(said, { type })
      const written = await entries(lease.operationId)
      await database.query(
        ({ sql }) => sql`update callback_inbox set outcome = null, case_id = null, processed_at = null`,
      )
      await maintain(type)
      expect(await inbox()).toEqual({ outcome, processed: true })
      expect(await receive(said, { type })).toEqual({ ...first, duplicate: true, judged: false })
      expect(await entries(lease.operationId)).toEqual(written)
      expect(await findViolations(database)).toEqual([])
    },
  )

  test('that leaves "applied" of a send unread until the next one: a duplicate is suspected', async () => {
    const lease = await inFlight()
    await insertOnly('applied', lease)
    await tell(database, lease, key, busyAgain)
    await claimRetry(lease)
    await tell(database, lease, { ...key, send: 2 }, applied)
    await maintain()
    expect(await inbox()).toEqual({ outcome: 'duplicate_suspected', processed: true })
    expect(await cases(lease.operationId)).toMatchObject([{ cause: 'duplicate_suspected', resolution: null }])
    expect(await effect()).toMatchObject({ state: 'applied', send: 2 })
    expect(await findViolations(database)).toEqual([])
  })

  test('that loses the registry’s row (retention) leaves nothing to judge', async () => {
    const lease = await timedOut()
    await insertOnly('applied', lease)
    await database.query(({ sql }) => sql`delete from effects`)
    const stored = await database.query((connection) => readCallback(connection, { type: 'grant', eventId: 'e1' }))
    if (!stored) throw new Error('it is not there')
    expect(await judgeCallback(contextOf(), grant(), stored)).toMatchObject({
      outcome: 'unknown_effect',
      processed: true,
    })
  })
})

describe('tenants', () => {
  /** The same operation once more, of tenant 2. */
  const copyToTenant2 = () =>
    database.transaction(async ({ script }) => {
      await script(`insert into tenants (id, name) values (2, 'other') on conflict do nothing`)
      for (const table of [
        'operations',
        'operation_items',
        'operation_shards',
        'effects',
        'ledger_entries',
        'reconciliation_cases',
      ]) {
        await script(`insert into ${table} select (jsonb_populate_record(x, '{"tenant_id": 2}')).* from ${table} x`)
      }
    })

  test('that share a key must be named: nothing is kept before', async () => {
    await timedOut()
    await copyToTenant2()
    await expect(receive('applied')).rejects.toMatchObject({ code: 'callback-ambiguous' })
    expect(await inbox()).toBeNull()
    expect(await receive('applied', { tenantId: 2 })).toMatchObject({ outcome: 'applied', duplicate: false })
    expect(await effect('key', 2)).toMatchObject({ state: 'applied' })
    expect(await effect('key', 1)).toMatchObject({ state: 'uncertain' })
    // a repeat needs no name any more
    expect(await receive('applied')).toMatchObject({ outcome: 'applied', duplicate: true })
    expect(await receive('applied', { id: 'e2', tenantId: 3 })).toMatchObject({ outcome: 'unknown_effect' })
    expect(await effect('key', 1)).toMatchObject({ state: 'uncertain' })
  })

  test('are looked through by index, one probe each', async () => {
    await database.query(
      ({ sql }) =>
        sql`insert into tenants (id, name) select n, 't' || n from generate_series(3, 300) n on conflict do nothing`,
    )
    await database.query(
      ({ sql }) => sql`
        insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, send_by)
        select 1 + n % 300, 'k' || n, 'applied', 1, gen_random_uuid(), 0, n, 1, 1, 'i', 'h', now()
        from generate_series(1, 30000) n`,
    )
    await database.query(({ sql }) => sql`analyze effects`)
    const plan = await database.query(
      ({ sql }) => sql<{ 'QUERY PLAN': string }>`
        explain select 1 from tenants t cross join lateral (
          select * from effects e where e.tenant_id = t.id and e.effect_key = 'k77' offset 0) e`,
    )
    const text = plan.map((row) => row['QUERY PLAN']).join('\n')
    expect(text).toContain('effects_pkey')
    expect(text).not.toContain('Seq Scan on effects')
    const found = await database.query((connection) =>
      findCallbackTargets(connection, { type: 'grant', effectKey: 'k77', tenantId: null }),
    )
    expect(found).toEqual([])
    await database.query(({ sql }) => sql`delete from tenants where id > 1`)
  })
})

test('outcomes are forgotten after 30 days; what waits is not', async () => {
  await inFlight()
  await receive('applied', { id: 'old', key: 'nobody' })
  await receive('applied', { id: 'young', key: 'nobody' })
  await receive('absent', { id: 'waits' })
  await database.query(
    ({ sql }) => sql`update callback_inbox set processed_at = processed_at - interval '31 days' where event_id = 'old'`,
  )
  await database.query(({ sql }) => sql`update callback_inbox set received_at = received_at - interval '99 days'`)
  await database.query(forgetOldCallbacks)
  expect([await inbox('old'), await inbox('young'), await inbox('waits')]).toEqual([
    null,
    { outcome: 'unknown_effect', processed: true },
    { outcome: 'deferred', processed: false },
  ])
})
