import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import type { CallbackView } from '../../src/services/views.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import {
  applied,
  busyAgain,
  cases,
  claimRetry,
  database,
  effect,
  entries,
  grant,
  inbox,
  inFlight,
  inFlightAgain,
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
import { claimOne, claimWindow, expireLease, GRANT, items, readShard, storeOperation, tell } from '../support/races.ts'
import { findViolations } from '../support/storm-audit.ts'

useCallbackDatabase()

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

  test('about a step is noted with the step', async () => {
    const type = grant({ onAbsent: 'case', steps: ['reserve', 'pay'] })
    await storeOperation(database, { items: items(1, () => 'key'), steps: type.steps })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    await tell(database, lease, { ord: 0, effectKey: 'key/reserve' }, uncertain)
    expect(await receive('absent', { key: 'key/reserve', type })).toMatchObject({ outcome: 'noted' })
    const steps = await database.query(
      ({ sql }) =>
        sql`select step, reason_code from ledger_entries where operation_id = ${lease.operationId}::uuid order by seq`,
    )
    expect(steps).toEqual([
      { step: 'reserve', reason_code: 'TIMEOUT' },
      { step: 'reserve', reason_code: 'REPORTED_ABSENT' },
    ])
    expect(await findViolations(database)).toEqual([])
  })

  test('applied of a step that is not the last lets the item go on', async () => {
    const type = grant({ steps: ['reserve', 'pay'] })
    await storeOperation(database, { items: items(1, () => 'key'), steps: type.steps })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    await tell(database, lease, { ord: 0, effectKey: 'key/reserve' }, uncertain)
    expect(await receive('applied', { key: 'key/reserve', type })).toMatchObject({ outcome: 'applied' })
    expect(await receive('applied', { key: 'key', type, id: 'e2' })).toMatchObject({ outcome: 'unknown_effect' })
    const [retry] = await database.query(
      ({ sql }) =>
        sql`select step, effect_key, reason from item_retries where operation_id = ${lease.operationId}::uuid`,
    )
    expect(retry).toEqual({ step: 'pay', effect_key: 'key/pay', reason: 'next_step' })
    expect(await findViolations(database)).toEqual([])
  })

  test('of two steps that are applied stands on the one case of the item, with both', async () => {
    const type = grant({ steps: ['reserve', 'pay'] })
    await storeOperation(database, { items: items(1, () => 'key'), steps: type.steps })
    const lease = await claimOne(database)
    await claimWindow(database, lease, 0, 1)
    await tell(database, lease, { ord: 0, effectKey: 'key/reserve' }, applied)
    await claimRetry(lease)
    await tell(database, lease, { ord: 0, effectKey: 'key/pay' }, applied)
    const contradicts = (step: string, id: string) => receive('absent', { key: `key/${step}`, type, id })
    expect(await contradicts('pay', 'e1')).toMatchObject({ outcome: 'contradiction' })
    for (const id of ['e2', 'e3']) {
      expect(await contradicts('reserve', id)).toMatchObject({ outcome: 'contradiction' })
    }
    expect(await contradicts('pay', 'e4')).toMatchObject({ outcome: 'contradiction' })
    expect(await cases(lease.operationId)).toMatchObject([
      { cause: 'contradiction', note: 'reported: absent; contradiction: reserve: reported: absent' },
    ])
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
