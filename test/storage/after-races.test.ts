/** Operations that wait for others: no wake-up is lost, and nothing runs before its time, whoever comes first. */

import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { afterSweep } from '../../src/maintenance/after-sweep.ts'
import { settleSweep } from '../../src/maintenance/settle-sweep.ts'
import { lookAt, lookBehind } from '../../src/services/dependents.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { settleStatus } from '../../src/services/settle-status.ts'
import { cancelBySystem } from '../../src/services/stop.ts'
import { approve } from '../../src/storage/approvals.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { insertDependent, lookAtDependent, markAwaited } from '../../src/storage/dependencies.ts'
import { closeDraft } from '../../src/storage/drafts.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { readUnsettled } from '../../src/storage/settle.ts'
import { requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
import type { Submission } from '../../src/storage/submissions.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  GRANT,
  holdOperation,
  items,
  NO_WAKE_UPS,
  raceBehind,
  storeOperation,
  submissionOf,
  TENANT,
  webhooksOf,
  wipe,
} from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
const log = pino({ level: 'silent' })
const context = () => ({ database, wakeUps: NO_WAKE_UPS })

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'after races' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const keyOf = (operationId: string) => ({ tenantId: TENANT, operationId })
const request = (operationId: string) => ({ ...keyOf(operationId), actor: 'tester', reason: null })
const predecessor = () => storeOperation(database, { items: items(1) })

/** Stores an operation that waits, as `submitOperation` does but for its look. */
const dependent = async (
  after: string[],
  change: { afterWhen?: 'succeeded' | 'settled'; status?: Submission['status']; callbackUrl?: string } = {},
): Promise<string> => {
  const { afterWhen = 'succeeded', status = 'pending', ...more } = change
  await database.query((connection) => markAwaited(connection, TENANT, after))
  const submission = { ...submissionOf({ items: items(2), shards: 2, status, ...more }), after, afterWhen }
  await insertDependent(database, submission)
  return submission.id
}

/** What its worker would have left behind: every item applied, or failed; then it is settled, without a look behind. */
const end = async (operationId: string, outcome: 'applied' | 'failed'): Promise<void> => {
  await database.query(
    ({ sql }) => sql`
      update operation_shards set state = 'done', cursor = to_ord,
        applied = case when ${outcome} = 'applied' then to_ord - from_ord else 0 end,
        failed = case when ${outcome} = 'failed' then to_ord - from_ord else 0 end,
        failed_conflict = case when ${outcome} = 'failed' then to_ord - from_ord else 0 end
      where operation_id = ${operationId}::uuid`,
  )
}
/** Ends it, and its worker dies before it looks behind. */
const endAndDie = async (operationId: string, outcome: 'applied' | 'failed'): Promise<void> => {
  await end(operationId, outcome)
  await settleStatus(context(), TENANT, operationId)
}
const endAndLook = async (operationId: string, outcome: 'applied' | 'failed'): Promise<void> => {
  await end(operationId, outcome)
  await settleOperation(context(), TENANT, operationId)
}

const state = async (id: string) => {
  const [found] = await database.query((connection) => readOperationStates(connection, [{ tenantId: TENANT, id }]))
  if (!found) throw new Error('there is no such operation')
  return found
}
const claimable = async (id: string): Promise<number> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ n: number }>`
      select count(*)::int as n from operation_shards where operation_id = ${id}::uuid and state = 'ready'`,
  )
  return row?.n ?? 0
}
const events = async (id: string): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ kind: string; actor: string }>`
      select kind, actor from operation_events where operation_id = ${id}::uuid order by version`,
  )
  return rows.map(({ kind, actor }) => `${kind} by ${actor}`)
}
const sweep = () => afterSweep(context(), log).runOnce()
const expectReleased = async (id: string): Promise<void> => {
  expect(await state(id)).toMatchObject({ status: 'pending', waitingFor: [] })
  expect(await claimable(id)).toBe(2)
  expect((await events(id)).filter((event) => event === 'released by system:after')).toHaveLength(1)
}
const expectWaiting = async (id: string, ...waitingFor: string[]): Promise<void> => {
  expect((await state(id)).waitingFor).toEqual(waitingFor)
  expect(await claimable(id)).toBe(0)
}

describe('while it waits', () => {
  test('nothing of it can be claimed, and no sweep takes it for unsettled', async () => {
    const first = await predecessor()
    const second = await dependent([first])
    const claimed = await database.query((connection) =>
      claimReadyShards(connection, {
        workerId: crypto.randomUUID(),
        types: [GRANT],
        limit: 8,
        perTenant: 8,
        afterTenant: 0,
      }),
    )
    expect(claimed.shards.map(({ operationId }) => operationId)).toEqual([first])
    expect(await database.query((connection) => readUnsettled(connection, 10))).toEqual([])
    await sweep()
    await settleSweep(context(), log).runOnce()
    await expectWaiting(second, first)
    expect((await state(second)).status).toBe('pending')
    expect(await events(second)).toEqual(['accepted by tester'])
  })

  test('a pause and a resume change nothing of that; the release of what is paused starts nothing', async () => {
    const first = await predecessor()
    const second = await dependent([first])
    expect(await requestPause(database, request(second))).toBe(true)
    expect(await settleOperation(context(), TENANT, second)).toBe('paused')
    expect(await resume(database, request(second))).toBe(true)
    await expectWaiting(second, first)
    expect((await state(second)).status).toBe('pending')
    await requestPause(database, request(second))
    await settleOperation(context(), TENANT, second)
    await endAndLook(first, 'applied')
    await expectWaiting(second)
    expect((await state(second)).status).toBe('paused')
    await resume(database, request(second))
    await expectReleased(second)
  })

  test('a pause whose api died before it settled is settled by the sweep', async () => {
    const second = await dependent([await predecessor()])
    await requestPause(database, request(second))
    await settleSweep(context(), log).runOnce()
    expect((await state(second)).status).toBe('paused')
  })

  test('a cancel ends it at once, and the end of the other changes nothing any more', async () => {
    const first = await predecessor()
    const second = await dependent([first])
    expect(await requestCancel(database, request(second))).toBe(true)
    expect(await settleOperation(context(), TENANT, second)).toBe('cancelled')
    const { version } = await state(second)
    await endAndLook(first, 'applied')
    await sweep()
    expect(await state(second)).toMatchObject({ status: 'cancelled', version, waitingFor: [] })
    expect(await claimable(second)).toBe(0)
  })

  test.each([
    ['approved first', true],
    ['released first', false],
  ])('one that needs an approval runs when it has both: %s', async (_, approvedFirst) => {
    const first = await predecessor()
    const second = await dependent([first], { status: 'awaiting_approval' })
    const decision = { ...keyOf(second), actor: 'boss', note: null }
    if (approvedFirst) await approve(database, decision)
    else await endAndLook(first, 'applied')
    expect(await claimable(second)).toBe(0)
    if (approvedFirst) await endAndLook(first, 'applied')
    else await approve(database, decision)
    await expectReleased(second)
  })

  test.each([
    ['started first', true],
    ['released first', false],
  ])('a draft runs when it was started and released: %s', async (_, startedFirst) => {
    const first = await predecessor()
    const second = await dependent([first], { status: 'draft' })
    const start = () => closeDraft(database, { ...request(second), itemsTotal: 2, steps: [], shardEnds: [1, 2] })
    if (startedFirst) expect(await start()).toBe(true)
    else await endAndLook(first, 'applied')
    expect(await claimable(second)).toBe(0)
    if (startedFirst) await endAndLook(first, 'applied')
    else expect(await start()).toBe(true)
    await expectReleased(second)
  })

  test('its version moves with each one that has ended, as `waiting_for` does', async () => {
    const [first, other] = [await predecessor(), await predecessor()].sort()
    if (!first || !other) throw new Error('two were stored')
    const second = await dependent([first, other])
    const { version } = await state(second)
    await endAndLook(first, 'applied')
    await expectWaiting(second, other)
    expect((await state(second)).version).toBe(version + 1)
    await lookAt(context(), keyOf(second))
    expect((await state(second)).version).toBe(version + 1)
    await endAndLook(other, 'applied')
    await expectReleased(second)
  })

  test('run_after still holds when it is released', async () => {
    const first = await predecessor()
    const second = await dependent([first])
    await database.query(
      ({ sql }) => sql`update operations set run_after = now() + interval '1 hour' where id = ${second}::uuid`,
    )
    await endAndLook(first, 'applied')
    const [row] = await database.query(
      ({ sql }) => sql<{ late: boolean }>`
        select bool_and(run_at > now() + interval '59 minutes') as late from operation_shards
        where operation_id = ${second}::uuid and state = 'ready'`,
    )
    expect(row?.late).toBe(true)
  })
})

describe('one before fails', () => {
  test('what was to start after its success is cancelled, names it, and takes those behind with it', async () => {
    const a = await predecessor()
    const b = await dependent([a])
    const c = await dependent([b])
    const d = await dependent([b], { afterWhen: 'settled' })
    await endAndLook(a, 'failed')
    expect(await state(b)).toMatchObject({ status: 'cancelled', cancelRequestedBy: 'system:after' })
    expect((await state(b)).cancelReason).toBe(
      `it was to start after op_${a.replaceAll('-', '')} had succeeded, and that one is failed`,
    )
    expect((await state(c)).cancelReason).toContain(`op_${b.replaceAll('-', '')}`)
    expect((await state(c)).status).toBe('cancelled')
    await expectReleased(d)
    expect(await claimable(b)).toBe(0)
  })

  test('a draft ends too', async () => {
    const a = await predecessor()
    const b = await dependent([a], { status: 'draft' })
    await endAndLook(a, 'failed')
    expect(await state(b)).toMatchObject({ status: 'cancelled', cancelRequestedBy: 'system:after' })
  })

  test('a chain longer than one look goes is ended by the sweep', async () => {
    const chain = [await predecessor()]
    for (let n = 0; n < 40; n++) chain.push(await dependent([chain[n] as string]))
    await endAndLook(chain[0] as string, 'failed')
    expect((await state(chain[32] as string)).status).toBe('cancelled')
    expect((await state(chain[33] as string)).status).toBe('pending')
    for (let runs = 0; (await sweep()).more; runs++) expect(runs).toBeLessThan(20)
    expect((await state(chain[40] as string)).status).toBe('cancelled')
  })
})

describe('a crash', () => {
  test.each(['applied', 'failed'] as const)(
    'between the settle of a before (%s) and the look behind it: the sweep looks',
    async (outcome) => {
      const first = await predecessor()
      const second = await dependent([first])
      await endAndDie(first, outcome)
      expect((await state(second)).waitingFor).toEqual([first])
      await sweep()
      if (outcome === 'applied') await expectReleased(second)
      else expect((await state(second)).status).toBe('cancelled')
      expect(await sweep()).toEqual({ more: false })
    },
  )

  test('between the insert of one whose before has ended and its look: the sweep looks', async () => {
    const first = await predecessor()
    await endAndLook(first, 'applied')
    const second = await dependent([first])
    await expectWaiting(second, first)
    await sweep()
    await expectReleased(second)
  })

  test('between the cancel and its settle: the settle sweep settles it, and looks behind', async () => {
    const first = await predecessor()
    const second = await dependent([first])
    const third = await dependent([second], { afterWhen: 'settled' })
    await endAndDie(first, 'failed')
    expect(await lookAtDependent(database, keyOf(second))).toMatchObject({ kind: 'cancel' })
    await requestCancel(database, { ...keyOf(second), actor: 'system:after', reason: 'r' })
    await settleSweep(context(), log).runOnce()
    expect((await state(second)).status).toBe('cancelled')
    await expectReleased(third)
  })

  test('after the mark alone costs one read and changes nothing', async () => {
    const first = await predecessor()
    await database.query((connection) => markAwaited(connection, TENANT, [first]))
    await endAndLook(first, 'applied')
    expect((await state(first)).status).toBe('succeeded')
  })
})

describe('the mark', () => {
  test("is all or nothing, and the tenant's own", async () => {
    const first = await predecessor()
    const stranger = await predecessor()
    await database.query(({ sql }) => sql`update operations set tenant_id = 2 where id = ${stranger}::uuid`)
    const found = await database.query((connection) => markAwaited(connection, TENANT, [first, stranger]))
    expect([...found]).toEqual([first])
    const [row] = await database.query(
      ({ sql }) => sql<{ n: number }>`select count(*)::int as n from operations where awaited`,
    )
    expect(row?.n).toBe(0)
  })

  test('settle first: the look of the new one sees it', async () => {
    const first = await predecessor()
    await end(first, 'applied')
    const [settled] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, first),
      () => settleStatus(context(), TENANT, first),
      () => database.query((connection) => markAwaited(connection, TENANT, [first])),
    )
    expect(settled).toEqual({ status: 'succeeded', awaited: false })
    const submission = {
      ...submissionOf({ items: items(2), shards: 2 }),
      after: [first],
      afterWhen: 'succeeded',
    } as const
    await insertDependent(database, submission)
    await lookAt(context(), keyOf(submission.id))
    await expectReleased(submission.id)
  })

  test('mark first: whoever settles is told, and finds the new one', async () => {
    const first = await predecessor()
    await end(first, 'applied')
    const [, settled] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, first),
      () => database.query((connection) => markAwaited(connection, TENANT, [first])),
      () => settleStatus(context(), TENANT, first),
    )
    expect(settled).toEqual({ status: 'succeeded', awaited: true })
    const second = await dependent([first])
    await lookBehind(context(), keyOf(first))
    await expectReleased(second)
  })

  test('two that name the same operations in other orders do not deadlock', async () => {
    const ids = [await predecessor(), await predecessor(), await predecessor()]
    const held = await holdOperation(testDatabase.url, [...ids].sort()[1] as string)
    await raceBehind(
      database,
      held,
      () => database.query((connection) => markAwaited(connection, TENANT, ids)),
      () => database.query((connection) => markAwaited(connection, TENANT, [...ids].reverse())),
    )
    const [row] = await database.query(
      ({ sql }) => sql<{ n: number }>`select count(*)::int as n from operations where awaited`,
    )
    expect(row?.n).toBe(3)
  })
})

describe('release ×', () => {
  const ready = async () => {
    const first = await predecessor()
    const second = await dependent([first])
    await endAndDie(first, 'applied')
    return second
  }

  test('another look: one release', async () => {
    const second = await ready()
    const look = () => lookAt(context(), keyOf(second))
    await raceBehind(database, await holdOperation(testDatabase.url, second), look, look)
    await expectReleased(second)
  })

  test('two sweeps: one release', async () => {
    const second = await ready()
    await raceBehind(database, await holdOperation(testDatabase.url, second), sweep, sweep)
    await expectReleased(second)
  })

  test.each(['cancel', 'release'])('a cancel, %s first', async (winner) => {
    const second = await ready()
    const look = () => lookAt(context(), keyOf(second))
    const cancel = () => cancelBySystem(context(), keyOf(second), 'system:deadline', 'late')
    const held = await holdOperation(testDatabase.url, second)
    await raceBehind(database, held, ...(winner === 'cancel' ? [cancel, look] : [look, cancel]))
    expect((await state(second)).status).toBe('cancelled')
    expect(await claimable(second)).toBe(0)
  })

  test.each(['pause', 'release'])('a pause, %s first', async (winner) => {
    const second = await ready()
    const look = () => lookAt(context(), keyOf(second))
    const pause = () => requestPause(database, request(second))
    const held = await holdOperation(testDatabase.url, second)
    await raceBehind(database, held, ...(winner === 'pause' ? [pause, look] : [look, pause]))
    await settleOperation(context(), TENANT, second)
    expect((await state(second)).status).toBe('paused')
    expect(await claimable(second)).toBe(0)
    await resume(database, request(second))
    await expectReleased(second)
  })

  test.each(['start', 'release'])('the start of a draft, %s first', async (winner) => {
    const first = await predecessor()
    const second = await dependent([first], { status: 'draft' })
    await endAndDie(first, 'applied')
    const look = () => lookAt(context(), keyOf(second))
    const start = () => closeDraft(database, { ...request(second), itemsTotal: 2, shardEnds: [1, 2], steps: [] })
    const held = await holdOperation(testDatabase.url, second)
    await raceBehind(database, held, ...(winner === 'start' ? [start, look] : [look, start]))
    await expectReleased(second)
  })

  test.each(['approve', 'release'])('an approval, %s first', async (winner) => {
    const first = await predecessor()
    const second = await dependent([first], { status: 'awaiting_approval' })
    await endAndDie(first, 'applied')
    const look = () => lookAt(context(), keyOf(second))
    const decide = () => approve(database, { ...keyOf(second), actor: 'boss', note: null })
    const held = await holdOperation(testDatabase.url, second)
    await raceBehind(database, held, ...(winner === 'approve' ? [decide, look] : [look, decide]))
    await expectReleased(second)
  })
})

test('the database refuses a wait that has ended, and one for itself', async () => {
  const first = await predecessor()
  const second = await dependent([first])
  const write = (text: string) => database.query(({ script }) => script(text))
  await expect(write(`update operations set after_open = true where id = '${first}'`)).rejects.toMatchObject({
    code: '23514',
  })
  await expect(write(`update operations set after = '[]' where id = '${second}'`)).rejects.toMatchObject({
    code: '23514',
  })
  await expect(write(`insert into operation_dependencies values (1, '${first}', '${first}')`)).rejects.toMatchObject({
    code: '23514',
  })
})

test('its webhook tells how it ended, whether it was let go or cancelled, once', async () => {
  const [first, failing] = [await predecessor(), await predecessor()]
  const callbackUrl = 'https://receiver.example/'
  const released = await dependent([first], { callbackUrl })
  const cancelled = await dependent([failing], { callbackUrl })
  const behind = await dependent([cancelled], { callbackUrl })
  await endAndLook(first, 'applied')
  await endAndLook(failing, 'failed')
  await sweep()
  await expectReleased(released)
  expect(await webhooksOf(database, released)).toEqual([])
  for (const id of [cancelled, behind]) {
    expect((await state(id)).cancelRequestedBy).toBe('system:after')
    expect(await webhooksOf(database, id)).toEqual(['operation.settled cancelled'])
  }
  await endAndLook(released, 'applied')
  expect(await webhooksOf(database, released)).toEqual(['operation.settled succeeded'])
})
