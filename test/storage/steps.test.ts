import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { stopConditions } from '../../src/maintenance/stop-conditions.ts'
import { lookUp } from '../../src/services/lookup-case.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { replayOperation } from '../../src/services/replay.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { closeExplainedDoubts, queueResend, readExplainedDoubts, takeDueLookups } from '../../src/storage/lookups.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { explainStopped } from '../../src/storage/run/explain-stopped.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readDueRetries, readOrphanedIntents } from '../../src/storage/run/window.ts'
import { markStarted, readUnsettled } from '../../src/storage/settle.ts'
import { requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
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
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'steps' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const STEPS = ['reserve', 'pay', 'ship']
const applied = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
const uncertain = { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' } as const
const unsent = { effect: 'absent', item: null, retry: { afterMs: 0, reason: 'unsent' } } as const
const busy = { effect: 'absent', item: 'failed', failureClass: 'transient', reasonCode: 'BUSY' } as const
const busyAgain = { ...busy, retry: { afterMs: 0, reason: 'failed' } } as const

const at = (step: string, send = 1, ord = 0) => ({ ord, effectKey: `key${ord === 0 ? '' : ord}/${step}`, send })

const start = async (count = 1): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(count, (ord) => `key${ord === 0 ? '' : ord}`), steps: STEPS })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, count)
  return lease
}

const claimDue = async (lease: ClaimedShard) => {
  const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
  return claimRetries(database, lease, ords, { sendByMs: 1_000, resendWithinMs: 3_600_000 })
}

const explainDue = async (lease: ClaimedShard): Promise<number> => {
  const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
  return explainKnownKeys(database, lease, ords, 'c1')
}

/** One item whose step `step` is in flight, those before it applied. */
const inFlightAt = async (step: string): Promise<ClaimedShard> => {
  const lease = await start()
  for (const earlier of STEPS.slice(0, STEPS.indexOf(step))) {
    await tell(database, lease, at(earlier), applied)
    expect(await claimDue(lease)).toMatchObject([{ ord: 0, resend: false, attempt: 1 }])
  }
  return lease
}

const takeOver = async (lease: ClaimedShard): Promise<ClaimedShard> => {
  await expireLease(database, lease)
  const [taken] = await database.query((connection) =>
    claimExpiredShards(connection, { workerId: crypto.randomUUID(), types: [GRANT], limit: 1 }),
  )
  if (!taken) throw new Error('the lease did not run out')
  return taken
}

const settle = (operationId: string) => settleOperation({ database, wakeUps: NO_WAKE_UPS }, TENANT, operationId)
const end = async (lease: ClaimedShard) => {
  await finishShard(database, lease)
  return settle(lease.operationId)
}
const request = (operationId: string) => ({ tenantId: TENANT, operationId, actor: 'tester', reason: null })
const cancel = (lease: ClaimedShard) => requestCancel(database, request(lease.operationId))

const entries = (operationId: string, ord = 0) =>
  database
    .query(
      ({ sql }) => sql<{ step: string; state: string | null; reason: string | null; message: string | null }>`
        select step, state, reason_code as reason, message from ledger_entries
        where operation_id = ${operationId}::uuid and ord = ${ord} order by seq`,
    )
    .then((rows) => rows.map(({ step, state, reason }) => `${step} ${state} ${reason}`))
const lastMessage = async (operationId: string) => {
  const [row] = await database.query(
    ({ sql }) => sql<{ message: string | null }>`
      select message from ledger_entries where operation_id = ${operationId}::uuid order by seq desc limit 1`,
  )
  return row?.message
}
const waiting = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{ step: string; effect_key: string; reason: string; attempt: number; prior: string | null }>`
      select step, effect_key, reason, attempt, prior_state as prior from item_retries
      where operation_id = ${operationId}::uuid order by ord`,
  )
const effects = async () => {
  const rows = await database.query(
    ({ sql }) => sql<{ key: string; state: string; step: string }>`
      select effect_key as key, state, step from effects order by effect_key`,
  )
  return Object.fromEntries(rows.map(({ key, state }) => [key, state]))
}
const cases = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{ id: string; cause: string; step: string; resolution: string | null }>`
      select id, cause, step, resolution from reconciliation_cases where operation_id = ${operationId}::uuid
      order by opened_at, id`,
  )
const context = () => ({ database, wakeUps: NO_WAKE_UPS, types: plantedTypes() })
const resolve = (id: string, resolution: 'applied' | 'not_applied', retry = false) =>
  resolveCase(context(), { tenantId: TENANT, name: 'operator', scopes: [] }, id, {
    resolution,
    evidenceRef: 'seen',
    effectRef: null,
    note: null,
    retry,
  })
const openCase = async (operationId: string): Promise<string> => {
  const found = (await cases(operationId)).find((one) => one.resolution === null)
  if (!found) throw new Error('there is no open case')
  return found.id
}

/** Whatever was done: what the shard claims to know is what the rows say. */
const expectSound = async (): Promise<void> => expect(await findViolations(database)).toEqual([])

describe('an item with steps', () => {
  test('is claimed at its first step, with the key of that step', async () => {
    const lease = await start()
    expect(lease.steps).toEqual(STEPS)
    expect(await effects()).toEqual({ 'key/reserve': 'intent' })
    await expectSound()
  })

  test('goes on step by step, and is applied when its last step is', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), applied)
    expect(await waiting(lease.operationId)).toEqual([
      { step: 'pay', effect_key: 'key/pay', reason: 'next_step', attempt: 1, prior: null },
    ])
    expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, waiting: 1, applied: 0 })
    await expectSound()
    expect(await claimDue(lease)).toEqual([
      { ord: 0, step: 'pay', effectKey: 'key/pay', send: 1, attempt: 1, resend: false, explained: false },
    ])
    await tell(database, lease, at('pay'), { ...applied, item: 'skipped', reasonCode: 'ALREADY_PAID' })
    expect(await lastMessage(lease.operationId)).toBe('skipped: ALREADY_PAID')
    await claimDue(lease)
    await tell(database, lease, at('ship'), applied)
    expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, waiting: 0, applied: 1 })
    expect(await entries(lease.operationId)).toEqual([
      'reserve null STEP_APPLIED',
      'pay null STEP_APPLIED',
      'ship applied null',
    ])
    expect(await end(lease)).toBe('succeeded')
    await expectSound()
  })

  test('is unprocessed between two steps: the operation runs, and the shard is due at once', async () => {
    const lease = await start()
    await database.query((connection) => markStarted(connection, TENANT, lease.operationId))
    await tell(database, lease, at('reserve'), applied)
    expect(await finishShard(database, lease)).toMatchObject({ state: 'ready', dueInMs: 0 })
    expect(await settle(lease.operationId)).toBe('running')
    const again = await claimOne(database)
    expect(await claimDue(again)).toMatchObject([{ step: 'pay' }])
    await expectSound()
  })

  test('starts the attempts of each step anew, and keeps failed as its state while it goes on', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), busyAgain)
    expect(await claimDue(lease)).toMatchObject([{ step: 'reserve', send: 2, attempt: 2 }])
    await tell(database, lease, at('reserve', 2), applied)
    expect(await waiting(lease.operationId)).toMatchObject([{ step: 'pay', attempt: 1, prior: 'failed' }])
    expect(await readShard(database, lease)).toMatchObject({ failed: 1, waiting: 1 })
    await expectSound()
    await claimDue(lease)
    await expectSound()
    await tell(database, lease, at('pay'), applied)
    await claimDue(lease)
    await tell(database, lease, at('ship'), applied)
    expect(await readShard(database, lease)).toMatchObject({ failed: 0, applied: 1 })
    await expectSound()
  })

  test('gives a step that was not sent back, uncharged, and fails at the step that failed', async () => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), unsent)
    expect(await waiting(lease.operationId)).toMatchObject([{ step: 'pay', reason: 'unsent', attempt: 1 }])
    expect(await claimDue(lease)).toMatchObject([{ step: 'pay', send: 2, attempt: 1 }])
    await tell(database, lease, at('pay', 2), { ...busy, fingerprint: 'f' })
    expect(await entries(lease.operationId)).toEqual(['reserve null STEP_APPLIED', 'pay failed BUSY'])
    const [letter] = await database.query(
      ({ sql }) => sql<{ step: string; effect_key: string }>`select step, effect_key from dead_letters`,
    )
    expect(letter).toEqual({ step: 'pay', effect_key: 'key/pay' })
    expect(await end(lease)).toBe('failed')
    await expectSound()
  })
})

describe('doubt about a step that is not the last', () => {
  const doubtful = async (): Promise<ClaimedShard> => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), uncertain)
    expect(await cases(lease.operationId)).toMatchObject([{ step: 'pay', resolution: null }])
    expect(await end(lease)).toBe('reconciliation_required')
    await expectSound()
    return lease
  }

  test('is closed by a person, and the item goes on: the doubt is taken back in the ledger', async () => {
    const lease = await doubtful()
    await resolve(await openCase(lease.operationId), 'applied')
    expect(await entries(lease.operationId)).toEqual([
      'reserve null STEP_APPLIED',
      'pay uncertain TIMEOUT',
      'pay failed NEXT_STEP_DUE',
    ])
    expect(await readShard(database, lease)).toMatchObject({ state: 'ready', uncertain: 0, failed: 1, waiting: 1 })
    await expectSound()
    const again = await claimOne(database)
    expect(await claimDue(again)).toMatchObject([{ step: 'ship', send: 1 }])
    await tell(database, again, at('ship'), applied)
    expect(await end(again)).toBe('succeeded')
    await expectSound()
  })

  test('is closed by a person who found nothing: the same step is tried again', async () => {
    const lease = await doubtful()
    await resolve(await openCase(lease.operationId), 'not_applied', true)
    const again = await claimOne(database)
    expect(await claimDue(again)).toMatchObject([{ step: 'pay', send: 2, attempt: 2 }])
    await expectSound()
  })

  test('is closed by a lookup of that step; a step without a lookup is left to a person', async () => {
    const asked: string[] = []
    const type = plantedType(GRANT.name, {
      steps: STEPS,
      executor: {
        kind: 'external',
        callTimeoutMs: 100,
        send: () => Promise.reject(new Error('never')),
        lookup: null,
        stepLookups: new Map([
          [
            'pay',
            {
              afterMs: 0,
              timeoutMs: 100,
              find: async ({ step, effectKey }) => {
                asked.push(`${step} ${effectKey}`)
                return { state: 'applied', evidenceRef: 'found' }
              },
            },
          ],
        ]),
      },
    })
    const types = plantedTypes(type)
    const due = async () => {
      const [lookup] = await database.query(async (connection) => {
        await connection.sql`update reconciliation_cases set next_lookup_at = now() where closed_at is null`
        return takeDueLookups(connection, { types: [GRANT.name], limit: 1, holdMs: 1_000, only: null })
      })
      if (!lookup) throw new Error('no lookup is due')
      return lookup
    }
    const lease = await doubtful()
    const lookup = await due()
    expect(lookup).toMatchObject({ step: 'pay', effectKey: 'key/pay', send: 1 })
    await lookUp({ ...context(), types }, lookup, null)
    expect(asked).toEqual(['pay key/pay'])
    const again = await claimOne(database)
    expect(await claimDue(again)).toMatchObject([{ step: 'ship' }])
    await tell(database, again, at('ship'), uncertain)
    await lookUp({ ...context(), types }, await due(), null)
    expect(asked).toHaveLength(1)
    const [open] = await database.query(
      ({ sql }) => sql<{ next: string | null }>`
        select next_lookup_at as next from reconciliation_cases
        where operation_id = ${lease.operationId}::uuid and closed_at is null`,
    )
    expect(open?.next).toBeNull()
    await expectSound()
  })

  test('is closed by the late answer of the worker that was taken for dead', async () => {
    const zombie = await inFlightAt('pay')
    const lease = await takeOver(zombie)
    const orphans = await database.query((connection) => readOrphanedIntents(connection, lease, 10))
    expect(orphans).toEqual([at('pay')])
    await tell(database, lease, at('pay'), { ...uncertain, reasonCode: 'WORKER_LOST' }, 'recovery')
    expect(await cases(lease.operationId)).toMatchObject([{ cause: 'worker_lost', step: 'pay' }])
    await expectSound()
    await tell(database, zombie, at('pay'), applied)
    expect(await cases(lease.operationId)).toMatchObject([{ resolution: 'applied' }])
    expect(await claimDue(lease)).toMatchObject([{ step: 'ship' }])
    await expectSound()
  })

  test('a repeat that the provider deduplicates moves the item on', async () => {
    const lease = await doubtful()
    const [due] = await database.query(async (connection) => {
      await connection.sql`update reconciliation_cases set next_lookup_at = now()`
      return takeDueLookups(connection, { types: [GRANT.name], limit: 1, holdMs: 1_000, only: null })
    })
    if (!due) throw new Error('no lookup is due')
    expect(await queueResend(database, due)).toBe(true)
    const again = await claimOne(database)
    expect(await claimDue(again)).toMatchObject([{ step: 'pay', send: 2, resend: true }])
    await expectSound()
    await tell(database, again, at('pay', 2), applied)
    expect(await readShard(database, lease)).toMatchObject({ uncertain: 0, failed: 1, waiting: 1 })
    expect(await claimDue(again)).toMatchObject([{ step: 'ship' }])
    await expectSound()
  })
})

describe('evidence that comes late', () => {
  test('for a step that waits for a retry: the item goes on with the next one', async () => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), busyAgain)
    await tell(database, lease, at('pay'), applied)
    expect(await waiting(lease.operationId)).toMatchObject([{ step: 'ship', reason: 'next_step', prior: 'failed' }])
    expect(await readShard(database, lease)).toMatchObject({ waiting: 1, failed: 1 })
    await expectSound()
  })

  test('for a step that had failed for good: the item stays failed, and says that its next step is due', async () => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), { ...busy, failureClass: 'conflict' })
    expect(await end(lease)).toBe('failed')
    await tell(database, lease, at('pay'), applied)
    expect(await waiting(lease.operationId)).toEqual([])
    expect(await entries(lease.operationId)).toEqual([
      'reserve null STEP_APPLIED',
      'pay failed BUSY',
      'pay failed NEXT_STEP_DUE',
    ])
    expect(await readShard(database, lease)).toMatchObject({ state: 'done', failed: 1, waiting: 0 })
    const [state] = await database.query((c) => readOperationStates(c, [{ tenantId: TENANT, id: lease.operationId }]))
    expect(state).toMatchObject({ status: 'failed', failedTransient: 1, failedConflict: 0 })
    await expectSound()
  })

  test('twice, or against what is known: moves nothing, and names the step', async () => {
    const lease = await inFlightAt('ship')
    const before = await readShard(database, lease)
    expect((await tell(database, lease, at('reserve'), applied)).moved.size).toBe(0)
    expect(await readShard(database, lease)).toEqual(before)
    await tell(database, lease, at('reserve'), busy, 'lookup')
    expect(await cases(lease.operationId)).toMatchObject([{ cause: 'contradiction', step: 'reserve' }])
    expect((await entries(lease.operationId)).at(-1)).toBe('reserve null CONTRADICTS_EARLIER_EVIDENCE')
    // the step in flight becomes uncertain: the one case of the item is the one that holds it back
    await tell(database, lease, at('ship'), uncertain)
    expect(await cases(lease.operationId)).toMatchObject([{ cause: 'send_outcome_unknown', step: 'ship' }])
    await expectSound()
  })
})

describe('a cancel between two steps says what was applied', () => {
  const stopped = 'failed STOPPED_BETWEEN_STEPS'
  const expectStopped = async (lease: ClaimedShard, step: string, message: string) => {
    expect((await entries(lease.operationId)).at(-1)).toBe(`${step} ${stopped}`)
    expect(await lastMessage(lease.operationId)).toBe(message)
    expect(await readShard(database, lease)).toMatchObject({ state: 'done', failed: 1, waiting: 1, in_flight: 0 })
    await expectSound()
  }

  test('while the shard waits to be claimed', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), applied)
    await finishShard(database, lease)
    await cancel(lease)
    expect(await settle(lease.operationId)).toBe('cancelled')
    await expectStopped(lease, 'pay', 'applied: reserve; cancelled before: pay')
  })

  test('while the step before is in flight, and answers after the cancel', async () => {
    const lease = await inFlightAt('pay')
    await cancel(lease)
    expect(await settle(lease.operationId)).toBe('cancel_requested')
    expect(await tell(database, lease, at('pay'), applied)).toMatchObject({ stopRequested: 'cancel' })
    expect(await claimDue(lease)).toBeNull()
    expect(await end(lease)).toBe('cancelled')
    await expectStopped(lease, 'ship', 'applied: reserve, pay; cancelled before: ship')
  })

  test('while the next step is claimed and not sent', async () => {
    const lease = await inFlightAt('ship')
    await cancel(lease)
    await tell(database, lease, at('ship'), unsent)
    expect(await end(lease)).toBe('cancelled')
    await expectStopped(lease, 'ship', 'applied: reserve, pay; cancelled before: ship')
    // the request was sent after all: the item is applied, and the counters are still the ledger's
    await tell(database, lease, at('ship'), applied)
    expect(await readShard(database, lease)).toMatchObject({ failed: 0, applied: 1, waiting: 0 })
    await expectSound()
  })

  test('while it is paused', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), applied)
    await requestPause(database, request(lease.operationId))
    expect(await end(lease)).toBe('paused')
    expect(await entries(lease.operationId)).toEqual(['reserve null STEP_APPLIED'])
    await expectSound()
    await cancel(lease)
    expect(await settle(lease.operationId)).toBe('cancelled')
    await expectStopped(lease, 'pay', 'applied: reserve; cancelled before: pay')
  })

  test('while a step is in doubt: the doubt is closed first', async () => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), uncertain)
    await cancel(lease)
    expect(await end(lease)).toBe('reconciliation_required')
    await resolve(await openCase(lease.operationId), 'applied')
    const [state] = await database.query((c) => readOperationStates(c, [{ tenantId: TENANT, id: lease.operationId }]))
    expect(state?.status).toBe('cancelled')
    await expectStopped(lease, 'ship', 'applied: reserve, pay; cancelled before: ship')
  })

  test('while a step waits for a retry, it keeps the outcome that it has', async () => {
    const lease = await inFlightAt('pay')
    await tell(database, lease, at('pay'), busyAgain)
    await cancel(lease)
    expect(await end(lease)).toBe('cancelled')
    expect(await entries(lease.operationId)).toEqual(['reserve null STEP_APPLIED', 'pay failed BUSY'])
    await expectSound()
  })

  test('and nothing of an item whose first step was never sent', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), unsent)
    await cancel(lease)
    expect(await end(lease)).toBe('cancelled')
    expect(await entries(lease.operationId)).toEqual([])
    await expectSound()
  })

  test('after a crash between the last finish and the explanation, or between that and the final status', async () => {
    const lease = await start(3)
    for (const ord of [0, 1, 2]) await tell(database, lease, at('reserve', 1, ord), applied)
    await cancel(lease)
    await finishShard(database, lease)
    expect(await database.query((connection) => readUnsettled(connection, 10))).toHaveLength(1)
    await explainStopped(database, lease)
    const explained = await readShard(database, lease)
    expect(explained).toMatchObject({ failed: 3, waiting: 3, entries: 6 })
    await explainStopped(database, lease)
    expect(await readShard(database, lease)).toEqual(explained)
    expect(await database.query((connection) => readUnsettled(connection, 10))).toHaveLength(1)
    expect(await settle(lease.operationId)).toBe('cancelled')
    await expectSound()
  })

  test('when two settle at once, it is said once', async () => {
    const lease = await start()
    await tell(database, lease, at('reserve'), applied)
    await cancel(lease)
    await finishShard(database, lease)
    const statuses = await raceBehind(
      database,
      await holdShard(testDatabase.url, lease),
      () => settle(lease.operationId),
      () => settle(lease.operationId),
    )
    expect(statuses).toEqual(['cancelled', 'cancelled'])
    expect(await entries(lease.operationId)).toEqual(['reserve null STEP_APPLIED', `pay ${stopped}`])
    await expectSound()
  })
})

test('a pause between two steps needs no entry: the item goes on where it was', async () => {
  const lease = await start()
  await requestPause(database, request(lease.operationId))
  await tell(database, lease, at('reserve'), applied)
  expect(await end(lease)).toBe('paused')
  await resume(database, request(lease.operationId))
  const again = await claimOne(database)
  expect(await claimDue(again)).toMatchObject([{ step: 'pay' }])
  await expectSound()
})

describe('a worker that dies', () => {
  test('case 13: after a step and before the claim of the next: the item goes on under the next lease', async () => {
    const dead = await start()
    await tell(database, dead, at('reserve'), applied)
    const lease = await takeOver(dead)
    expect(await database.query((connection) => readOrphanedIntents(connection, lease, 10))).toEqual([])
    expect(await claimDue(dead)).toBeNull()
    expect(await claimDue(lease)).toMatchObject([{ step: 'pay', send: 1 }])
    await expectSound()
  })

  test('between the claim of a step and its send: that step is uncertain, the one before stays applied', async () => {
    const lease = await takeOver(await inFlightAt('pay'))
    await tell(database, lease, at('pay'), { ...uncertain, reasonCode: 'WORKER_LOST' }, 'recovery')
    expect(await effects()).toEqual({ 'key/reserve': 'applied', 'key/pay': 'uncertain' })
    expect(await claimDue(lease)).toEqual([])
    await resolve(await openCase(lease.operationId), 'not_applied', true)
    expect(await claimDue(lease)).toMatchObject([{ step: 'pay', send: 2 }])
    await expectSound()
  })
})

describe('another operation with the same keys', () => {
  /** The second operation, whose item found the key of its first step taken. */
  const second = async (): Promise<ClaimedShard> => {
    await storeOperation(database, { items: items(1, () => 'key'), steps: STEPS })
    const lease = await claimOne(database)
    expect(await claimWindow(database, lease, 0, 1)).toEqual(new Set())
    return lease
  }

  test('a replay walks over what is applied and sends the first step that is not', async () => {
    const lease = await inFlightAt('ship')
    await tell(database, lease, at('ship'), { ...busy, failureClass: 'conflict' })
    await end(lease)
    const replay = await second()
    expect(await explainDue(replay)).toBe(1)
    expect(await explainDue(replay)).toBe(1)
    expect(await explainDue(replay)).toBe(0)
    expect(await claimDue(replay)).toMatchObject([{ step: 'ship', send: 2, attempt: 1 }])
    await expectSound()
    await tell(database, replay, at('ship', 2), applied)
    expect(await entries(replay.operationId)).toEqual([
      'reserve null STEP_ALREADY_APPLIED',
      'pay null STEP_ALREADY_APPLIED',
      'ship applied null',
    ])
    expect(await end(replay)).toBe('succeeded')
    await expectSound()
  })

  test('a step in flight elsewhere is waited for; one that is applied there is not sent here', async () => {
    const first = await start()
    const other = await second()
    expect(await explainDue(other)).toBe(0)
    await tell(database, first, at('reserve'), applied)
    await database.query(({ sql }) => sql`update item_retries set run_at = now()`)
    expect(await explainDue(other)).toBe(1)
    // both wait for the second step: the row of the registry lets one of them through
    const [mine, theirs] = await Promise.all([claimDue(first), claimDue(other)])
    expect([...(mine ?? []), ...(theirs ?? [])]).toMatchObject([{ step: 'pay', send: 1 }])
    const [winner, loser] = mine?.length === 1 ? [first, other] : [other, first]
    await tell(database, winner, at('pay'), applied)
    await explainDue(loser)
    await database.query(({ sql }) => sql`update item_retries set run_at = now()`)
    await explainDue(loser)
    expect(await claimDue(loser)).toMatchObject([{ step: 'ship' }])
    await tell(database, loser, at('ship'), applied)
    expect(await explainDue(winner)).toBe(1)
    expect((await entries(winner.operationId)).at(-1)).toBe('ship skipped EFFECT_ALREADY_APPLIED')
    expect([await end(winner), await end(loser)]).toEqual(['succeeded', 'succeeded'])
    expect(await effects()).toEqual({ 'key/reserve': 'applied', 'key/pay': 'applied', 'key/ship': 'applied' })
    await expectSound()
  })

  test.each([
    ['applied', 'NEXT_STEP_DUE', 'pay'],
    ['not_applied', 'FREED_ELSEWHERE', 'reserve'],
  ] as const)('a step in doubt elsewhere that turns out %s', async (resolution, reason, step) => {
    const first = await start()
    const other = await second()
    await tell(database, first, at('reserve'), uncertain)
    expect(await explainDue(other)).toBe(1)
    expect(await cases(other.operationId)).toMatchObject([{ cause: 'in_doubt_elsewhere', step: 'reserve' }])
    await expectSound()
    await resolve(await openCase(first.operationId), resolution)
    for (const doubt of await database.query((connection) => readExplainedDoubts(connection, 10))) {
      expect(await closeExplainedDoubts(database, doubt)).toBe(1)
    }
    expect(await entries(other.operationId)).toEqual([
      'reserve uncertain IN_DOUBT_ELSEWHERE',
      `reserve failed ${reason}`,
    ])
    expect(await waiting(other.operationId)).toMatchObject([{ step, effect_key: `key/${step}`, prior: 'failed' }])
    await expectSound()
    expect(await claimDue(other)).toMatchObject([{ step }])
  })
})

test('a replay is paused by a stop condition at any of its steps, and goes on where it stood', async () => {
  const first = await inFlightAt('pay')
  await tell(database, first, at('pay'), busy)
  expect(await end(first)).toBe('failed')
  const type = plantedType('grant', { steps: STEPS, stopIf: ['ambiguous_effect_targets > 0'] })
  const stepped = { database, wakeUps: NO_WAKE_UPS, types: plantedTypes(type) }
  const operator = { tenantId: TENANT, name: 'operator', scopes: [] }
  const { id: preflightId } = await preflightReplay(stepped, operator, first.operationId, { scope: null })
  const again = { preflightId, reason: 'again', force: [], ifMatchVersion: null }
  const { id } = await replayOperation(stepped, operator, first.operationId, again)
  const lease = await claimOne(database)
  await database.query((connection) => markStarted(connection, TENANT, id))
  await claimWindow(database, lease, 0, 1)
  await explainDue(lease)
  expect(await claimDue(lease)).toMatchObject([{ step: 'pay', send: 2 }])
  const look = () => stopConditions(stepped, pino({ level: 'silent' })).runOnce()
  const status = async () =>
    (await database.query((c) => readOperationStates(c, [{ tenantId: TENANT, id }])))[0]?.status
  await look()
  expect(await status()).toBe('running')
  await tell(database, lease, at('pay', 2), uncertain)
  await look()
  expect(await status()).toBe('pause_requested')
  expect(await end(lease)).toBe('reconciliation_required')
  await resolve(await openCase(id), 'applied')
  expect(await status()).toBe('paused')
  await resume(database, request(id))
  await look()
  const next = await claimOne(database)
  expect(await claimDue(next)).toMatchObject([{ step: 'ship', send: 1 }])
  await tell(database, next, at('ship'), applied)
  expect(await end(next)).toBe('succeeded')
  await expectSound()
})

test('items without steps have none anywhere', async () => {
  await storeOperation(database, { items: items(1, () => 'plain') })
  const lease = await claimOne(database)
  expect(lease.steps).toEqual([])
  await claimWindow(database, lease, 0, 1)
  await tell(database, lease, { ord: 0, effectKey: 'plain' }, applied)
  expect(await entries(lease.operationId)).toEqual([' applied null'])
  await expectSound()
})
