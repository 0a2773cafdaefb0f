/** Replays and approvals that meet: with each other, with a cancel, and with evidence that arrives meanwhile. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { decideApproval } from '../../src/services/decide-approval.ts'
import { openStateReader } from '../../src/services/get-operation.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { replayOperation } from '../../src/services/replay.ts'
import { cancelOperation } from '../../src/services/stop.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type PlantedItem, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'
import { type Hold, holdOperation, NO_WAKE_UPS, raceBehind, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'replay races' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const types = plantedTypes(plantedType('grant'), plantedType('reviewed', { approval: 'replay' }))
const principal = { tenantId: 1, name: 'operator', scopes: [] }
const approver = { ...principal, name: 'approver' }
const context = () => {
  const base = { database, types, wakeUps: NO_WAKE_UPS }
  return { ...base, readState: openStateReader(base) }
}
const FAILED: PlantedItem[] = [{ key: 'a', entries: [{ state: 'failed', failureClass: 'transient' }] }]
const plantFailed = (type: string) => plantOperation(database, { type, status: 'failed', items: FAILED })
const preflight = async (id: string): Promise<string> =>
  (await preflightReplay(context(), principal, id, { scope: null })).id
/** What a call came to: its answer, or the code of its refusal. */
const outcome = <T>(call: Promise<T>): Promise<T | string> =>
  call.catch((error: { code?: string }) => error.code ?? String(error))
const replay = (id: string, preflightId: string) =>
  outcome(replayOperation(context(), principal, id, { preflightId, reason: 'again', force: [], ifMatchVersion: null }))
const replaysOf = async (id: string): Promise<{ id: string; status: string }[]> =>
  database.query(
    ({ sql }) => sql<{ id: string; status: string }>`
      select id, status from operations where replay_of = ${id}::uuid order by id`,
  )
const holdPreflight = async (id: string): Promise<Hold> => {
  const held = await holdOperation(testDatabase.url, id)
  await held.sql`select 1 from replay_preflights where operation_id = ${id} for no key update`
  return held
}

describe('two replays', () => {
  test('of one preflight at once are one, and both callers get it', async () => {
    const id = await plantFailed('grant')
    const asked = await preflight(id)
    const answers = await raceBehind(
      database,
      await holdPreflight(id),
      () => replay(id, asked),
      () => replay(id, asked),
    )
    const made = await replaysOf(id)
    expect(made).toHaveLength(1)
    expect(answers).toEqual([
      { id: made[0]?.id, replayed: false },
      { id: made[0]?.id, replayed: true },
    ])
  })

  test('of two preflights at once: the second is refused, for the first has changed the facts', async () => {
    const id = await plantFailed('grant')
    const [first, second] = [await preflight(id), await preflight(id)]
    const answers = await raceBehind(
      database,
      await holdOperation(testDatabase.url, id),
      () => replay(id, first),
      () => replay(id, second),
    )
    expect(answers[0]).toMatchObject({ replayed: false })
    expect(answers[1]).toBe('preflight-outdated')
    expect(await replaysOf(id)).toHaveLength(1)
    // asked again, the reason is the replay that runs
    expect(await replay(id, await preflight(id))).toBe('replay-blocked')
  })
})

describe('an approval', () => {
  const waiting = async (): Promise<{ of: string; id: string }> => {
    const of = await plantFailed('reviewed')
    await replay(of, await preflight(of))
    const [made] = await replaysOf(of)
    expect(made?.status).toBe('awaiting_approval')
    return { of, id: made?.id ?? '' }
  }
  const decide = (id: string, decision: 'approve' | 'reject') =>
    outcome(decideApproval(context(), approver, id, { decision, note: 'seen', ifMatchVersion: null }))
  const cancel = (id: string) =>
    outcome(cancelOperation(context(), principal, id, { reason: 'not now', ifMatchVersion: null }))
  const standing = async (id: string) => {
    const [row] = await database.query(
      ({ sql }) => sql`
        select o.status, o.approval_decision, s.state, s.stop_requested,
          (select jsonb_agg(e.kind order by e.version) from operation_events e where e.operation_id = o.id) as events
        from operations o join operation_shards s on s.operation_id = o.id where o.id = ${id}::uuid`,
    )
    return row
  }

  test('before a cancel lets it run, and the cancel stops it before anything was claimed', async () => {
    const { id } = await waiting()
    const [approved, cancelled] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, id),
      () => decide(id, 'approve'),
      () => cancel(id),
    )
    expect(approved).toBeUndefined()
    expect(cancelled).toMatchObject({ status: 200 })
    expect(await standing(id)).toEqual({
      status: 'cancelled',
      approval_decision: 'approved',
      state: 'done',
      stop_requested: 'cancel',
      events: ['accepted', 'approved', 'cancel_requested', 'settled'],
    })
  })

  test('behind a cancel is refused, and nothing becomes claimable', async () => {
    const { id } = await waiting()
    const [cancelled, approved] = await raceBehind(
      database,
      await holdOperation(testDatabase.url, id),
      () => cancel(id),
      () => decide(id, 'approve'),
    )
    expect(cancelled).toMatchObject({ status: 200 })
    expect(approved).toBe('not-awaiting-approval')
    expect(await standing(id)).toMatchObject({
      status: 'cancelled',
      approval_decision: null,
      state: 'done',
      stop_requested: 'cancel',
    })
  })

  test.each([
    ['approve', 'reject', 'pending', 'approved'],
    ['reject', 'approve', 'cancelled', 'rejected'],
  ] as const)('%s and %s at once: the first one stands', async (first, second, status, decision) => {
    const { id } = await waiting()
    const answers = await raceBehind(
      database,
      await holdOperation(testDatabase.url, id),
      () => decide(id, first),
      () => decide(id, second),
    )
    expect(answers).toEqual([undefined, 'not-awaiting-approval'])
    expect(await standing(id)).toMatchObject({ status, approval_decision: decision })
  })

  test('is bound to the facts of the preflight: when evidence has changed them, only a refusal is left', async () => {
    const { of, id } = await waiting()
    await database.query(
      ({ sql }) => sql`
        insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source,
          code_version)
        values (1, ${of}::uuid, 0, 'a', 1, 'applied', ${`${of}:a`}, 'h', 'late_worker', 'c1')`,
    )
    expect(await decide(id, 'approve')).toBe('preflight-outdated')
    expect(await standing(id)).toMatchObject({ status: 'awaiting_approval', state: 'done' })
    expect(await decide(id, 'reject')).toBeUndefined()
    expect(await standing(id)).toMatchObject({ status: 'cancelled', approval_decision: 'rejected' })
  })
})
