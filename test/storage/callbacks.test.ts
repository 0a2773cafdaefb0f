import { createHash, randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { CallbackStatement, Json, OperationType } from '../../src/domain/operation-type.ts'
import { callbacks } from '../../src/maintenance/callbacks.ts'
import { judgeCallback } from '../../src/services/judge-callback.ts'
import { receiveCallback } from '../../src/services/receive-callback.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import type { CallbackView } from '../../src/services/views.ts'
import { findCallbackTargets, insertCallback, readCallback, takePendingCallbacks } from '../../src/storage/callbacks.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { forgetOldCallbacks } from '../../src/storage/housekeeping.ts'
import { claimRetries } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readDueRetries } from '../../src/storage/run/window.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType, plantedTypes } from '../support/planted-operation.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  GRANT,
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
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'callbacks' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

/** Its calls take no time, so an absence is stable as soon as the outcome is known. Signatures are another test's subject. */
const grant = (change: Partial<OperationType> = {}): OperationType =>
  plantedType('grant', {
    executor: {
      kind: 'external',
      callTimeoutMs: 0,
      send: () => Promise.reject(new Error('never sent')),
      lookup: null,
    },
    callback: { verify: () => true, read: (event) => event as CallbackStatement | (null & Json) },
    retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 },
    ...change,
  })
const contextOf = (type = grant()) => ({ database, wakeUps: NO_WAKE_UPS, types: plantedTypes(type) })

type Said = CallbackStatement['state']
const receive = (
  said: Said,
  { id = 'e1', key = 'key', type = grant(), tenantId = null as number | null, ref = null as string | null } = {},
): Promise<CallbackView> =>
  receiveCallback(contextOf(type), {
    type: type.name,
    headers: { 'webhook-id': id },
    body: Buffer.from(JSON.stringify({ effectKey: key, state: said, ...(ref === null ? {} : { effectRef: ref }) })),
    tenantId,
  })

/** One run of the loop that judges what waits, as if everything that waits were due. */
const maintain = async (type = grant()) => {
  await database.query(({ sql }) => sql`update callback_inbox set due_at = now() where processed_at is null`)
  await callbacks(contextOf(type), pino({ level: 'silent' })).runOnce()
}

const key = { ord: 0, effectKey: 'key' }
const applied = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
const uncertain = { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' } as const
const refused = { effect: 'absent', item: 'failed', failureClass: 'conflict' } as const
const busyAgain = {
  effect: 'absent',
  item: 'failed',
  failureClass: 'transient',
  retry: { afterMs: 0, reason: 'failed' },
} as const

/** An operation with one item, `key`, whose first send is in flight. */
const inFlight = async (): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(1, () => 'key') })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 1)
  return lease
}
const timedOut = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  return lease
}
const claimRetry = async (lease: ClaimedShard) => {
  await database.query(({ sql }) => sql`update item_retries set run_at = now()`)
  const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
  return claimRetries(database, lease, ords, { sendByMs: 1_000, resendWithinMs: 3_600_000 })
}
/** The first send was answered "busy", the second is in flight. */
const inFlightAgain = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, busyAgain)
  await claimRetry(lease)
  return lease
}

const effect = async (effectKey = 'key', tenantId = TENANT) => {
  const [row] = await database.query(
    ({ sql }) => sql<{ state: string; send: number; ref: string | null }>`
      select state, send, effect_ref as ref from effects where effect_key = ${effectKey} and tenant_id = ${tenantId}`,
  )
  return row
}
const cases = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{
      id: string
      cause: string
      resolution: string | null
      source: string | null
      note: string | null
    }>`
      select id, cause, resolution, resolution_source as source, note from reconciliation_cases
      where operation_id = ${operationId}::uuid order by opened_at, id`,
  )
const entries = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{ state: string | null; source: string; reason_code: string | null; evidence_ref: string | null }>`
      select state, source, reason_code, evidence_ref from ledger_entries where operation_id = ${operationId}::uuid
      order by seq`,
  )
const inbox = async (eventId = 'e1') => {
  const stored = await database.query((connection) => readCallback(connection, { type: 'grant', eventId }))
  return stored && { outcome: stored.outcome, processed: stored.processed }
}
const resolve = (id: string, resolution: 'applied' | 'not_applied') =>
  resolveCase(contextOf(), { tenantId: TENANT, name: 'operator', scopes: [] }, id, {
    resolution,
    evidenceRef: 'seen',
    effectRef: null,
    note: null,
    retry: false,
  })

describe('an event, whenever it arrives', () => {
  const resolved = (resolution: 'applied' | 'not_applied') => async () => {
    const lease = await timedOut()
    const [open] = await cases(lease.operationId)
    await resolve(open?.id ?? '', resolution)
    return lease
  }
  const told = (said: Parameters<typeof tell>[3], source?: Parameters<typeof tell>[4]) => async () => {
    const lease = await timedOut()
    await tell(database, lease, key, said, source)
    return lease
  }
  const answered = (said: Parameters<typeof tell>[3]) => async () => {
    const lease = await inFlight()
    await tell(database, lease, key, said)
    return lease
  }
  const undone = async () => {
    const lease = await answered(applied)()
    await database.query(({ sql }) => sql`update effects set state = 'compensated'`)
    return lease
  }
  const lost = async () => {
    const lease = await inFlight()
    await expireLease(database, lease)
    const [taken] = await database.query((connection) =>
      claimExpiredShards(connection, { workerId: randomUUID(), types: [GRANT], limit: 1 }),
    )
    if (!taken) throw new Error('the lease did not run out')
    await tell(database, taken, key, { ...uncertain, reasonCode: 'WORKER_LOST' }, 'recovery')
    return taken
  }

  test.each<[string, Said, CallbackView['outcome'], () => Promise<ClaimedShard>, string, number]>([
    ['during the call', 'applied', 'applied', inFlight, 'applied', 0],
    ['during the call', 'absent', 'deferred', inFlight, 'intent', 0],
    ['after the timeout', 'applied', 'applied', timedOut, 'applied', 0],
    ['after the timeout', 'absent', 'absent', timedOut, 'absent', 0],
    ['after its worker was lost', 'applied', 'applied', lost, 'applied', 0],
    // a zombie of that worker may send until its send_by
    ['after its worker was lost', 'absent', 'deferred', lost, 'uncertain', 1],
    ['after the answer "done"', 'applied', 'known', answered(applied), 'applied', 0],
    ['after the answer "done"', 'absent', 'contradiction', answered(applied), 'applied', 1],
    ['after the answer "refused"', 'applied', 'applied', answered(refused), 'applied', 0],
    ['after the answer "refused"', 'absent', 'known', answered(refused), 'absent', 0],
    ['while it waits for a retry', 'applied', 'applied', answered(busyAgain), 'applied', 0],
    ['while it waits for a retry', 'absent', 'known', answered(busyAgain), 'absent', 0],
    ['after a lookup found it', 'applied', 'known', told(applied, 'lookup'), 'applied', 0],
    ['after a lookup found it', 'absent', 'contradiction', told(applied, 'lookup'), 'applied', 1],
    ['after a lookup found nothing', 'applied', 'applied', told(refused, 'lookup'), 'applied', 0],
    ['after a lookup found nothing', 'absent', 'known', told(refused, 'lookup'), 'absent', 0],
    ['after a person saw it', 'applied', 'known', resolved('applied'), 'applied', 0],
    ['after a person saw it', 'absent', 'contradiction', resolved('applied'), 'applied', 1],
    ['after a person saw nothing', 'applied', 'applied', resolved('not_applied'), 'applied', 0],
    ['after a person saw nothing', 'absent', 'known', resolved('not_applied'), 'absent', 0],
    ['after it was undone', 'applied', 'known', undone, 'compensated', 0],
    ['after it was undone', 'absent', 'known', undone, 'compensated', 0],
    ['during the second call', 'applied', 'applied', inFlightAgain, 'applied', 0],
    ['during the second call', 'absent', 'deferred', inFlightAgain, 'intent', 0],
  ])('%s: %s is %s', async (_, said, outcome, prepare, state, open) => {
    const lease = await prepare()
    const before = await entries(lease.operationId)
    const received = await receive(said, { ref: 'theirs' })
    expect(received).toMatchObject({ eventId: 'e1', outcome, duplicate: false, operationId: lease.operationId })
    expect(await effect()).toMatchObject({ state })
    const written = (await entries(lease.operationId)).slice(before.length)
    const silent = outcome === 'known' || outcome === 'deferred'
    expect(written).toMatchObject(silent ? [] : [{ source: 'callback', evidence_ref: 'callback:e1' }])
    const stillOpen = (await cases(lease.operationId)).filter((found) => found.resolution === null)
    expect(stillOpen).toHaveLength(open)
    expect(received.caseId).toBe(outcome === 'contradiction' ? stillOpen[0]?.id : null)
    // what was established stays, with its own reference
    if (outcome === 'contradiction') expect(stillOpen[0]).toMatchObject({ cause: 'contradiction' })
    if (outcome === 'applied') expect(await effect()).toMatchObject({ ref: 'theirs' })
    // the audit counts what is applied; an undone effect is another subject's
    if (state !== 'compensated') expect(await findViolations(database)).toEqual([])

    // and once more: the same outcome, nothing written
    const repeated = await receive(said, { ref: 'theirs' })
    expect(repeated).toEqual({ ...received, duplicate: true, judged: outcome === 'deferred' })
    expect((await entries(lease.operationId)).slice(before.length)).toEqual(written)
  })

  test('an older event that says the opposite of a newer one contradicts it, in either order', async () => {
    const lease = await timedOut()
    expect(await receive('applied', { id: 'e2' })).toMatchObject({ outcome: 'applied' })
    expect(await receive('absent', { id: 'e1' })).toMatchObject({ outcome: 'contradiction' })
    expect(await receive('absent', { id: 'e0' })).toMatchObject({ outcome: 'contradiction' })
    // one item has one open case; each event is in the ledger
    expect((await cases(lease.operationId)).map((found) => [found.cause, found.resolution])).toEqual([
      ['send_outcome_unknown', 'applied'],
      ['contradiction', null],
    ])
    expect((await entries(lease.operationId)).map((entry) => entry.evidence_ref)).toEqual([
      null,
      'callback:e2',
      'callback:e1',
      'callback:e0',
    ])
    expect(await findViolations(database)).toEqual([])
  })

  test('of a key that nobody knows, or of another type, is kept and does nothing', async () => {
    await inFlight()
    expect(await receive('applied', { key: 'nobody' })).toMatchObject({
      outcome: 'unknown_effect',
      operationId: null,
      effectKey: 'nobody',
    })
    const other = { ...grant(), name: 'other' }
    expect(await receive('applied', { type: other })).toMatchObject({ outcome: 'unknown_effect', operationId: null })
    expect(await effect()).toMatchObject({ state: 'intent' })
    expect(await inbox()).toEqual({ outcome: 'unknown_effect', processed: true })
  })

  test('two types may have an event of the same id', async () => {
    await inFlight()
    await receive('applied', { type: { ...grant(), name: 'other' } })
    expect(await receive('applied')).toMatchObject({ outcome: 'applied', duplicate: false })
  })

  test('an id with another body is refused, and changes nothing', async () => {
    await timedOut()
    await receive('applied')
    await expect(receive('absent')).rejects.toMatchObject({ code: 'event-id-reused' })
    expect(await effect()).toMatchObject({ state: 'applied' })
    expect(await inbox()).toEqual({ outcome: 'applied', processed: true })
  })
})

describe('absent', () => {
  test('during the call is kept; after the timeout the item is tried again, once', async () => {
    const lease = await inFlight()
    expect(await receive('absent')).toMatchObject({ outcome: 'deferred', caseId: null })
    await maintain()
    expect(await inbox()).toEqual({ outcome: 'deferred', processed: false })
    expect(await effect()).toMatchObject({ state: 'intent', send: 1 })
    await tell(database, lease, key, uncertain)
    await maintain()
    expect(await inbox()).toEqual({ outcome: 'absent', processed: true })
    expect(await cases(lease.operationId)).toMatchObject([{ resolution: 'not_applied', source: 'callback' }])
    expect(await claimRetry(lease)).toMatchObject([{ send: 2, attempt: 2 }])
    expect(await receive('absent')).toMatchObject({ outcome: 'absent', duplicate: true, judged: false })
    await maintain()
    expect(await effect()).toMatchObject({ state: 'intent', send: 2 })
    expect(await findViolations(database)).toEqual([])
  })

  test.each([
    ['done', applied, 'contradiction', 'applied'],
    ['refused', refused, 'known', 'absent'],
  ] as const)('during the call, which is then answered "%s"', async (_, answer, outcome, state) => {
    const lease = await inFlight()
    await receive('absent')
    await tell(database, lease, key, answer)
    await maintain()
    expect(await inbox()).toEqual({ outcome, processed: true })
    expect(await effect()).toMatchObject({ state, send: 1 })
    expect(await cases(lease.operationId)).toHaveLength(outcome === 'contradiction' ? 1 : 0)
    expect(await findViolations(database)).toEqual([])
  })

  test('that was received for a send says nothing about the next one', async () => {
    const lease = await inFlight()
    await receive('absent')
    await tell(database, lease, key, busyAgain)
    await claimRetry(lease)
    await maintain()
    expect(await inbox()).toEqual({ outcome: 'known', processed: true })
    await tell(database, lease, { ...key, send: 2 }, uncertain)
    await maintain()
    expect(await effect()).toMatchObject({ state: 'uncertain', send: 2 })
  })

  test('after the timeout of a second send closes nothing: it may be about the first', async () => {
    const lease = await inFlightAgain()
    await tell(database, lease, { ...key, send: 2 }, uncertain)
    const [open] = await cases(lease.operationId)
    expect(await receive('absent')).toMatchObject({ outcome: 'noted', caseId: open?.id })
    expect(await effect()).toMatchObject({ state: 'uncertain', send: 2 })
    expect(await cases(lease.operationId)).toMatchObject([{ resolution: null, note: 'callback:e1 reported: absent' }])
    expect((await entries(lease.operationId)).at(-1)).toMatchObject({
      state: null,
      source: 'callback',
      reason_code: 'REPORTED_ABSENT',
    })
    expect(await receive('applied', { id: 'e2' })).toMatchObject({ outcome: 'applied' })
    expect(await findViolations(database)).toEqual([])
  })

  test('is noted where the type leaves it to a person, who decides', async () => {
    const type = grant({ onAbsent: 'case' })
    const lease = await timedOut()
    const [open] = await cases(lease.operationId)
    expect(await receive('absent', { type })).toMatchObject({ outcome: 'noted', caseId: open?.id })
    expect(await receive('absent', { type })).toMatchObject({ outcome: 'noted', caseId: open?.id, duplicate: true })
    expect(await entries(lease.operationId)).toHaveLength(2)
    await resolve(open?.id ?? '', 'not_applied')
    expect(await effect()).toMatchObject({ state: 'absent' })
    expect(await findViolations(database)).toEqual([])
  })

  test('brings the next lookup forward, where there is one', async () => {
    const type = grant({ onAbsent: 'case' })
    const lease = await timedOut()
    await database.query(({ sql }) => sql`update reconciliation_cases set next_lookup_at = now() + interval '1 hour'`)
    await receive('absent', { type })
    const [found] = await database.query(
      ({ sql }) =>
        sql`select next_lookup_at <= now() as due from reconciliation_cases where operation_id = ${lease.operationId}::uuid`,
    )
    expect(found).toEqual({ due: true })
  })

  test('waits until the send cannot arrive any more', async () => {
    const type = grant({
      executor: {
        kind: 'external',
        callTimeoutMs: 60_000,
        send: () => Promise.reject(new Error('never')),
        lookup: null,
      },
    })
    await timedOut()
    expect(await receive('absent', { type })).toMatchObject({ outcome: 'deferred' })
    await maintain(type)
    expect(await inbox()).toEqual({ outcome: 'deferred', processed: false })
    await database.query(({ sql }) => sql`update effects set send_by = now() - interval '2 minutes'`)
    await maintain(type)
    expect(await inbox()).toEqual({ outcome: 'absent', processed: true })
  })

  test('after a cancel is no retry', async () => {
    const lease = await timedOut()
    await requestCancel(database, { ...lease, actor: 'tester', reason: null })
    expect(await receive('absent')).toMatchObject({ outcome: 'absent' })
    expect(await readShard(database, lease)).toMatchObject({ retries: 0, waiting: 0, uncertain: 0, failed: 1 })
    expect(await findViolations(database)).toEqual([])
  })

  test('after the last attempt is a dead letter', async () => {
    const type = grant({ retry: { maxAttempts: 1, baseMs: 1, maxMs: 1 } })
    const lease = await timedOut()
    expect(await receive('absent', { type })).toMatchObject({ outcome: 'absent' })
    const letters = await database.query(
      ({ sql }) => sql`select reason_code from dead_letters where operation_id = ${lease.operationId}::uuid`,
    )
    expect(letters).toEqual([{ reason_code: 'CONFIRMED_ABSENT' }])
  })
})

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
      const held = await holdShard(testDatabase.url, lease)
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
    const held = await holdShard(testDatabase.url, lease)
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
    const held = await holdShard(testDatabase.url, lease)
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
    const held = await holdShard(testDatabase.url, lease)
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
    const held = await holdShard(testDatabase.url, lease)
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
    const held = await holdShard(testDatabase.url, lease)
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
