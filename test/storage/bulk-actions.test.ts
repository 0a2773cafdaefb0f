/** Bulk actions: the frozen set, the rate, aborts, several workers, and a death at every line. */
import { pino } from 'pino'
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { BULK_CLAIMS_MAX, BULK_TARGETS_MAX, type BulkActionKind } from '../../src/domain/bulk-action.ts'
import { formatId } from '../../src/domain/ids.ts'
import type { OperationStatus } from '../../src/domain/operation.ts'
import { bulkActions } from '../../src/maintenance/bulk-actions.ts'
import type { BulkTargetView } from '../../src/services/bulk-action-views.ts'
import { abortBulk, getBulkAction, listBulkTargets, startBulk } from '../../src/services/bulk-actions.ts'
import { createBulkAction } from '../../src/services/create-bulk-action.ts'
import { decideApproval } from '../../src/services/decide-approval.ts'
import { openStateReader } from '../../src/services/get-operation.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import type { Principal } from '../../src/services/principal.ts'
import { replayOperation } from '../../src/services/replay.ts'
import type { OperationFilters } from '../../src/services/requests.ts'
import { cancelOperation } from '../../src/services/stop.ts'
import { workOnTarget } from '../../src/services/work-bulk-target.ts'
import { beginTarget, type ClaimedTarget, claimBulkTargets, recordOutcome } from '../../src/storage/bulk-targets.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { forgetOldDryRuns } from '../../src/storage/housekeeping.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { mortalDatabase } from '../support/mortal-database.ts'
import { type PlantedItem, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'
import { holdBulkAction, NO_WAKE_UPS, raceBehind, webhooksOf, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
let logged: string[]
const log = pino({ base: null }, { write: (line) => logged.push(JSON.parse(line).msg) })
const types = plantedTypes(plantedType('grant'), plantedType('reviewed', { approval: 'replay' }), plantedType('other'))

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 12, name: 'bulk actions' })
  await database.transaction(({ script }) =>
    script(`create table broken (id uuid);
      create function refuse_broken() returns trigger language plpgsql as $$
        begin
          if exists (select from broken where id = new.id) then raise exception 'broken on purpose'; end if;
          return new;
        end $$;
      create trigger refuse_broken before update on operations for each row execute function refuse_broken()`),
  )
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(async () => {
  logged = []
  await wipe(database)
  await database.query(({ sql }) => sql`delete from broken`)
})

const operator: Principal = { tenantId: 1, name: 'operator', scopes: ['operations:read', 'operations:write', 'replay'] }
const workerContext = (through: Database = database) => ({
  database: through,
  types,
  wakeUps: NO_WAKE_UPS,
  readState: openStateReader({ database: through }),
})
const EVERYTHING: OperationFilters = {
  status: [],
  type: null,
  requestedBy: null,
  labels: {},
  createdAfter: null,
  createdBefore: null,
  replayOf: null,
}
const create = async (
  action: BulkActionKind,
  filter: Partial<OperationFilters> = { type: 'grant' },
  change: Partial<Parameters<typeof createBulkAction>[2]> = {},
) => {
  const { action: made } = await createBulkAction({ database }, operator, {
    action,
    filter: { ...EVERYTHING, ...filter },
    scope: null,
    reason: 'incident 7',
    dryRun: false,
    ratePerSecond: 100,
    idempotencyKey: null,
    body: {},
    ...change,
  })
  return made
}
const open: PlantedItem[] = [{ key: 'a' }]
const failed: PlantedItem[] = [{ key: 'a', entries: [{ state: 'failed', failureClass: 'transient' }] }]
const plant = (status: OperationStatus, items = open, type = 'grant') =>
  plantOperation(database, {
    type,
    status,
    items,
    cancelled: ['cancel_requested', 'cancelled', 'completed_after_cancel'].includes(status),
  })
const plantMany = async (count: number, status: OperationStatus, items = open): Promise<string[]> => {
  const ids: string[] = []
  for (let n = 0; n < count; n++) ids.push(await plant(status, items))
  return ids
}
const targets = async (id: string): Promise<BulkTargetView[]> => {
  const page = await listBulkTargets({ database }, operator, id, [], { limit: 500, position: null })
  return page?.items ?? []
}
const read = async (id: string) => {
  const found = await getBulkAction({ database }, operator, id)
  if (!found) throw new Error('there is no such bulk action')
  return found
}
const statusOf = async (id: string): Promise<string> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ status: string }>`select status from operations where id = ${id}::uuid`,
  )
  return row?.status ?? ''
}
const replaysOf = async (id: string): Promise<string[]> => {
  const rows = await database.query(
    ({ sql }) => sql<{ id: string }>`select id from operations where replay_of = ${id}::uuid`,
  )
  return rows.map((row) => row.id)
}
const cancelsOf = async (id: string): Promise<number> => {
  const rows = await database.query(
    ({ sql }) => sql`select 1 from operation_events where operation_id = ${id}::uuid and kind = 'cancel_requested'`,
  )
  return rows.length
}
/** Time passes: what was claimed is claimed no more, and the rate allows the next. */
const pass = () =>
  database.transaction(async ({ sql }) => {
    await sql`update bulk_action_targets set due_at = clock_timestamp() where state = 'pending'`
    await sql`update bulk_actions set next_at = clock_timestamp() - interval '1 second'`
  })
const claim = (): Promise<ClaimedTarget[]> => database.query(claimBulkTargets)
const claimOne = async (): Promise<ClaimedTarget> => {
  await pass()
  const [target] = await claim()
  if (!target) throw new Error('no target is due')
  return target
}
/** Until it is over: the runs of a worker, with all waits passed over. */
const work = async (id: string, through: Database = database): Promise<void> => {
  const service = bulkActions({ database: through, types, wakeUps: NO_WAKE_UPS }, log)
  for (let runs = 0; (await read(id)).completedAt === null; runs++) {
    expect(runs).toBeLessThan(200)
    await pass()
    await service.runOnce()
  }
}

describe('the targets', () => {
  test('are what matched and made sense at creation, oldest first; what comes later is none of it', async () => {
    const [first, second] = await plantMany(2, 'running')
    for (const status of ['succeeded', 'cancel_requested', 'cancelled'] as const) await plant(status)
    await plant('running', open, 'other')
    const made = await create('cancel', { type: 'grant' }, { dryRun: true })
    const late = await plant('running')
    expect(made).toMatchObject({ status: 'dry_run', counts: { total: 2, pending: 2 } })
    expect((await targets(made.id)).map(({ operationId }) => operationId)).toEqual([first, second])
    await startBulk({ database }, operator, made.id, { reason: 'looks right' })
    await work(made.id)
    expect(await read(made.id)).toMatchObject({
      status: 'finished',
      counts: { total: 2, done: 2 },
      started: { by: 'operator', reason: 'looks right' },
      expiresAt: null,
    })
    expect(await statusOf(late)).toBe('running')
  })

  test.each<[string, (ids: string[]) => Partial<OperationFilters>, number]>([
    ['statuses', () => ({ status: ['paused', 'failed'] }), 1],
    ['labels', () => ({ labels: { run: '7' } }), 1],
    ['a requester', () => ({ requestedBy: 'nobody' }), 0],
    ['a time', () => ({ createdAfter: '2999-01-01T00:00:00Z' }), 0],
    ['what they replay', ([first]) => ({ replayOf: first ?? '' }), 1],
  ])('are filtered by %s', async (_, filter, count) => {
    const ids = await plantMany(2, 'running')
    await database.query(
      ({ sql }) => sql`
        insert into operations (tenant_id, id, type, type_version, code_version, status, requested_by, risk, root_id, labels,
          pause_requested_at, replay_of)
        select 1, ${uuidv7()}::uuid, 'grant', 1, 'c1', 'paused', 'tester', 'low', id, '{"run": "7", "x": "y"}', now(), id
        from operations where id = ${ids[0] ?? ''}::uuid`,
    )
    expect((await create('cancel', filter(ids))).counts.total).toBe(count)
  })

  test('are at most 10,000: of more nothing is stored', async () => {
    await database.query(
      ({ sql }) => sql`
        insert into operations (tenant_id, id, type, type_version, code_version, status, requested_by, risk, root_id)
        select 1, gen_random_uuid(), 'grant', 1, 'c1', 'draft', 'tester', 'low', gen_random_uuid()
        from generate_series(1, ${BULK_TARGETS_MAX + 1})`,
    )
    await expect(create('cancel')).rejects.toMatchObject({ code: 'bulk-too-large' })
    const [left] = await database.query(
      ({ sql }) => sql`
        select (select count(*)::int from bulk_actions) as actions, (select count(*)::int from bulk_action_targets) as targets`,
    )
    expect(left).toEqual({ actions: 0, targets: 0 })
    await database.query(({ sql }) => sql`delete from operations where id = (select id from operations limit 1)`)
    expect((await create('cancel')).counts.total).toBe(BULK_TARGETS_MAX)
  })

  test('may be none: then it is over at once', async () => {
    expect(await create('cancel')).toMatchObject({ status: 'finished', counts: { total: 0 } })
    const dry = await create('replay', { type: 'grant' }, { dryRun: true })
    expect(await startBulk({ database }, operator, dry.id, { reason: null })).toMatchObject({ status: 'finished' })
  })
})

describe('a cancel', () => {
  test('is each one in the name of whoever asked, and of the others each refusal', async () => {
    const [waiting, ended, gone] = await plantMany(3, 'pending')
    if (!waiting || !ended || !gone) throw new Error('three were planted')
    const made = await create('cancel')
    await database.query(
      ({ sql }) => sql`
        update operations set status = 'succeeded', completed_at = clock_timestamp() where id = ${ended}::uuid`,
    )
    await cancelOperation(workerContext(), operator, gone, { reason: 'by hand', ifMatchVersion: null })
    await work(made.id)
    expect(await targets(made.id)).toMatchObject([
      { operationId: waiting, state: 'done', code: null },
      { operationId: ended, state: 'refused', code: 'operation-already-final' },
      { operationId: gone, state: 'done' },
    ])
    expect(await read(made.id)).toMatchObject({
      status: 'finished',
      counts: { total: 3, done: 2, refused: 1, pending: 0 },
    })
    const [row] = await database.query(
      ({ sql }) => sql`
        select status, cancel_requested_by as by, cancel_reason as reason from operations where id = ${waiting}::uuid`,
    )
    expect(row).toEqual({
      status: 'cancelled',
      by: 'operator',
      reason: `incident 7 (bulk_${made.id.replaceAll('-', '')})`,
    })
    expect(await cancelsOf(gone)).toBe(1)
  })

  test('that cannot be done is given up after some attempts, and takes no other one with it', async () => {
    const [first, second] = await plantMany(2, 'pending')
    await database.query(({ sql }) => sql`insert into broken values (${first ?? ''}::uuid)`)
    const made = await create('cancel')
    await work(made.id)
    expect(await targets(made.id)).toMatchObject([
      { operationId: first, state: 'failed', code: 'attempts-used' },
      { operationId: second, state: 'done' },
    ])
    expect(logged).toHaveLength(BULK_CLAIMS_MAX)
    expect((await read(made.id)).counts).toMatchObject({ failed: 1, done: 1, pending: 0 })
  })
})

describe('a replay', () => {
  test('is preflighted: what is blocked is refused with its codes, what needs an approval waits for it', async () => {
    const good = await plant('failed', failed)
    const nothing = await plant('succeeded', [{ key: 'a', entries: [{ state: 'applied' }] }])
    const unclear = await plant('reconciliation_required', [
      { key: 'a', entries: [{ state: 'uncertain' }] },
      ...open.map(() => ({ key: 'b' })),
    ])
    const foreign = await plant('failed', failed, 'gone')
    const reviewed = await plant('failed', failed, 'reviewed')
    const made = await create('replay', { requestedBy: 'tester' })
    await work(made.id)
    expect(await targets(made.id)).toMatchObject([
      { operationId: good, state: 'done', blockedBy: [] },
      { operationId: nothing, state: 'refused', code: 'replay-blocked', blockedBy: ['nothing-to-replay'] },
      { operationId: unclear, state: 'refused', blockedBy: ['ambiguous_effect_targets > 0'] },
      { operationId: foreign, state: 'refused', code: 'unknown-operation-type' },
      { operationId: reviewed, state: 'done' },
    ])
    const results = (await targets(made.id)).map(({ resultOperationId }) => resultOperationId)
    expect([results[0]]).toEqual(await replaysOf(good))
    expect(await statusOf(results[4] ?? '')).toBe('awaiting_approval')
    expect(await statusOf(results[0] ?? '')).toBe('pending')
  })

  test('is approved neither by whoever asked for it nor by whoever started it', async () => {
    await plant('failed', failed, 'reviewed')
    const made = await create('replay', { type: 'reviewed' }, { dryRun: true })
    await startBulk({ database }, { ...operator, name: 'starter' }, made.id, { reason: null })
    await work(made.id)
    const [replay = ''] = (await targets(made.id)).map(({ resultOperationId }) => resultOperationId ?? '')
    expect(await statusOf(replay)).toBe('awaiting_approval')
    const decide = (id: string, name: string) =>
      decideApproval(workerContext(), { tenantId: 1, name, scopes: ['approve'] }, id, {
        decision: 'approve',
        note: null,
        ifMatchVersion: null,
      })
    for (const name of ['operator', 'starter'])
      await expect(decide(replay, name)).rejects.toMatchObject({ code: 'self-approval' })
    // a reason that only looks like one of the bulk action's keeps nobody out
    const source = await plant('failed', failed, 'reviewed')
    const forger: Principal = { ...operator, name: 'forger' }
    const { id: preflightId } = await preflightReplay(workerContext(), forger, source, { scope: null })
    const reason = `mine (${formatId('bulk', made.id)})`
    const forged = await replayOperation(workerContext(), forger, source, {
      preflightId,
      reason,
      force: [],
      ifMatchVersion: null,
    })
    await decide(forged.id, 'starter')
    expect(await statusOf(forged.id)).toBe('pending')
    await decide(replay, 'stranger')
    expect(await statusOf(replay)).toBe('pending')
  })

  test('keeps to its scope, which is checked at creation', async () => {
    const good = await plant('cancelled', [
      { key: 'x', entries: [{ state: 'failed', failureClass: 'transient' }] },
      { key: 'y' },
    ])
    const scope = { states: ['unprocessed'], failureClasses: null, itemKeys: null }
    const made = await create('replay', { type: 'grant' }, { scope })
    await work(made.id)
    const [replay] = await replaysOf(good)
    const items = await database.query(
      ({ sql }) => sql`select item_key from operation_items where operation_id = ${replay ?? ''}::uuid`,
    )
    expect(items).toEqual([{ item_key: 'y' }])
    for (const [action, wrong] of [
      ['replay', { states: ['applied'], failureClasses: null, itemKeys: null }],
      ['cancel', scope],
    ] as const) {
      await expect(
        create(action, { type: 'grant' }, { scope: { ...wrong, states: [...wrong.states] } }),
      ).rejects.toMatchObject({ code: 'invalid-request' })
    }
  })
})

/** Every call that a worker makes for one target, and what is true whenever it dies there. */
describe('a worker that dies', () => {
  const lives = async (action: BulkActionKind, when: 'before' | 'after'): Promise<number> => {
    for (let calls = 1; ; calls++) {
      await wipe(database)
      const id = action === 'cancel' ? await plant('pending') : await plant('failed', failed)
      const made = await create(action)
      const target = await claimOne()
      const mortal = mortalDatabase(database, { calls, when })
      const lived = await workOnTarget(workerContext(mortal.database), target).then(
        () => true,
        () => false,
      )
      await work(made.id)
      expect((await read(made.id)).counts, `${when} call ${calls}`).toMatchObject({ done: 1, pending: 0 })
      if (action === 'cancel') expect(await cancelsOf(id)).toBe(1)
      else {
        const replays = await replaysOf(id)
        expect(replays, `${when} call ${calls}`).toHaveLength(1)
        expect((await targets(made.id))[0]).toMatchObject({ resultOperationId: replays[0] })
      }
      if (lived && !mortal.died()) return calls - 1
    }
  }

  test.each([
    ['cancel', 'before'],
    ['cancel', 'after'],
    ['replay', 'before'],
    ['replay', 'after'],
  ] as const)('%s: %s any of its calls, leaves one effect and one outcome', async (action, when) => {
    // begin, what the single route does, record
    expect(await lives(action, when)).toBeGreaterThanOrEqual(5)
  })

  test('each time is given up, unless what it did is found', async () => {
    const [first, second] = await plantMany(2, 'pending')
    const made = await create('cancel')
    for (let claims = 0; claims < BULK_CLAIMS_MAX; claims++) {
      await pass()
      for (const target of await claim()) {
        await beginTarget(database, target)
        if (claims > 0 || target.operationId !== second) continue
        await cancelOperation(workerContext(), operator, target.operationId, {
          reason: `${target.reason} (bulk_${made.id.replaceAll('-', '')})`,
          ifMatchVersion: null,
        })
      }
    }
    await work(made.id)
    expect(await targets(made.id)).toMatchObject([
      { operationId: first, state: 'failed', code: 'attempts-used' },
      { operationId: second, state: 'done' },
    ])
    expect(await statusOf(first ?? '')).toBe('pending')
  })

  test('and comes back after its claim was lost, writes nothing', async () => {
    await plant('pending')
    const made = await create('cancel')
    const lost = await claimOne()
    const held = await claimOne()
    expect(held.claims).toBe(lost.claims + 1)
    expect(await beginTarget(database, lost)).toBe(false)
    const said = { state: 'failed', code: 'x', detail: null, blockedBy: [], resultOperationId: null } as const
    expect(await recordOutcome(database, lost, said)).toBe(false)
    await workOnTarget(workerContext(), held)
    expect(await recordOutcome(database, lost, said)).toBe(false)
    expect((await read(made.id)).counts).toMatchObject({ done: 1, failed: 0 })
  })

  test('while another has its replay in hand: one replay, whoever was first', async () => {
    const id = await plant('failed', failed)
    const made = await create('replay')
    const [slow, quick] = [await claimOne(), await claimOne()]
    const through = [slow, quick].map((target) => workOnTarget(workerContext(), target).catch(() => {}))
    await Promise.all(through)
    await work(made.id)
    expect(await replaysOf(id)).toHaveLength(1)
    expect((await read(made.id)).counts).toMatchObject({ done: 1 })
  })
})

describe('the rate', () => {
  test('holds over all workers, however often they ask', async () => {
    const RATE = 20
    await plantMany(24, 'pending')
    const made = await create('cancel', { type: 'grant' }, { ratePerSecond: RATE })
    const claimedAt: number[] = []
    while (claimedAt.length < 24) {
      const rounds = await Promise.all([claim(), claim(), claim()])
      const [now] = await database.query(
        ({ sql }) => sql<{ s: number }>`select extract(epoch from clock_timestamp())::float8 as s`,
      )
      for (const _ of rounds.flat()) claimedAt.push(now?.s ?? 0)
    }
    const started = Date.parse(`${made.started?.at.replace(' ', 'T').replace('+00', 'Z')}`) / 1000
    // what was not used for a quarter of a second is made up for, and a quarter of a second comes at once
    for (const [n, at] of claimedAt.entries()) expect(at - started).toBeGreaterThanOrEqual((n + 1) / RATE - 0.5 - 0.01)
    expect(claimedAt).toHaveLength(24)
  })

  test('of one action leaves room for the next one', async () => {
    await plantMany(2, 'pending')
    const [first, second] = [
      await create('cancel', { type: 'grant' }, { ratePerSecond: 1 }),
      await create('cancel', { requestedBy: 'tester' }, { ratePerSecond: 1 }),
    ]
    expect([...(await claim()), ...(await claim())].map(({ bulkId }) => bulkId)).toEqual([first.id, second.id])
    expect(await claim()).toEqual([])
  })
})

test('two workers on one bulk action: each target is claimed once, and done once', async () => {
  const ids = await plantMany(60, 'failed', failed)
  const made = await create('replay')
  const services = [1, 2].map(() => bulkActions({ database, types, wakeUps: NO_WAKE_UPS }, log))
  for (let runs = 0; (await read(made.id)).completedAt === null; runs++) {
    expect(runs).toBeLessThan(500)
    // the rate is passed over, the claims are not
    await database.query(({ sql }) => sql`update bulk_actions set next_at = clock_timestamp()`)
    await Promise.all(services.map((service) => service.runOnce()))
  }
  expect((await read(made.id)).counts).toMatchObject({ total: 60, done: 60 })
  for (const id of ids) expect(await replaysOf(id)).toHaveLength(1)
  const rows = await database.query(({ sql }) => sql`select 1 from bulk_action_targets where claims <> 1`)
  expect(rows).toEqual([])
})

describe('an abort', () => {
  const abort = (id: string) => abortBulk({ database }, operator, id, { reason: 'wrong filter' })

  test('skips what nobody has begun, and leaves what is done', async () => {
    const ids = await plantMany(3, 'pending')
    const made = await create('cancel')
    await workOnTarget(workerContext(), await claimOne())
    expect(await abort(made.id)).toMatchObject({
      status: 'aborted',
      counts: { total: 3, done: 1, skipped: 2, pending: 0 },
      aborted: { by: 'operator', reason: 'wrong filter' },
      completedAt: expect.any(String),
    })
    await pass()
    expect(await claim()).toEqual([])
    expect(await abort(made.id)).toMatchObject({ status: 'aborted', counts: { skipped: 2 } })
    expect(await Promise.all(ids.map(statusOf))).toEqual(['cancelled', 'pending', 'pending'])
  })

  test('of a dry run ends it', async () => {
    await plant('pending')
    const made = await create('cancel', { type: 'grant' }, { dryRun: true })
    expect(await abort(made.id)).toMatchObject({ status: 'aborted', counts: { skipped: 1 } })
    await expect(startBulk({ database }, operator, made.id, { reason: null })).rejects.toMatchObject({
      code: 'bulk-action-not-startable',
    })
  })

  test('of one that has finished is refused', async () => {
    await plant('pending')
    const made = await create('cancel')
    await work(made.id)
    await expect(abort(made.id)).rejects.toMatchObject({ code: 'bulk-action-not-abortable' })
  })

  test('before the begin of a target: it wins, and the operation is left alone', async () => {
    const id = await plant('pending')
    const made = await create('cancel')
    const target = await claimOne()
    await raceBehind(
      database,
      await holdBulkAction(testDatabase.url, made.id),
      () => abort(made.id),
      () => workOnTarget(workerContext(), target),
    )
    expect(await targets(made.id)).toMatchObject([{ state: 'skipped', code: 'aborted' }])
    expect(await statusOf(id)).toBe('pending')
  })

  test('between the claim of a target that a dead worker had begun and its own begin: it is not acted on any more', async () => {
    const id = await plant('pending')
    const made = await create('cancel')
    await beginTarget(database, await claimOne())
    const again = await claimOne()
    expect(again).toMatchObject({ begun: true, aborted: false })
    await abort(made.id)
    await workOnTarget(workerContext(), again)
    expect(await statusOf(id)).toBe('pending')
    await work(made.id)
    expect(await targets(made.id)).toMatchObject([{ state: 'skipped', code: 'aborted' }])
    expect(await statusOf(id)).toBe('pending')
  })

  test('behind the begin of a target: it gets its outcome, and the account adds up', async () => {
    const id = await plant('pending')
    const made = await create('cancel')
    const target = await claimOne()
    const [, aborted] = await raceBehind(
      database,
      await holdBulkAction(testDatabase.url, made.id),
      () => beginTarget(database, target),
      () => abort(made.id),
    )
    expect(aborted).toMatchObject({ status: 'aborted', counts: { pending: 1, skipped: 0 }, completedAt: null })
    await cancelOperation(workerContext(), operator, id, { reason: 'r', ifMatchVersion: null })
    await recordOutcome(database, target, {
      state: 'done',
      code: null,
      detail: null,
      blockedBy: [],
      resultOperationId: null,
    })
    expect(await read(made.id)).toMatchObject({ status: 'aborted', counts: { done: 1, pending: 0 } })
    expect((await read(made.id)).completedAt).not.toBeNull()
  })

  test.each(['cancel', 'replay'] as const)(
    'while the worker of a begun target is dead (%s): what it did is found, what it did not do is not done',
    async (action) => {
      const [did, didNot] = await plantMany(
        2,
        action === 'cancel' ? 'pending' : 'failed',
        action === 'cancel' ? open : failed,
      )
      const made = await create(action)
      await pass()
      const claimed = await claim()
      for (const target of claimed) {
        if (target.operationId === didNot) await beginTarget(database, target)
        else {
          // dies when it would record: the calls before that are counted by a run of another one
          const mortal = mortalDatabase(database, { calls: await callsUntilRecord(action), when: 'before' })
          await expect(workOnTarget(workerContext(mortal.database), target)).rejects.toThrow()
        }
      }
      expect((await abort(made.id)).counts).toMatchObject({ pending: 2 })
      await work(made.id)
      expect(await targets(made.id)).toMatchObject([
        { operationId: did, state: 'done' },
        { operationId: didNot, state: 'skipped', code: 'aborted' },
      ])
      if (action === 'replay') {
        expect(await replaysOf(did ?? '')).toHaveLength(1)
        expect(await replaysOf(didNot ?? '')).toEqual([])
      } else expect(await statusOf(didNot ?? '')).toBe('pending')
    },
  )

  /** Which call of a worker is the one that records the outcome: its last. */
  const callsUntilRecord = async (action: BulkActionKind): Promise<number> => {
    let calls = 0
    const counting: Database = {
      query: (run) => {
        calls++
        return database.query(run)
      },
      transaction: (run) => {
        calls++
        return database.transaction(run)
      },
      lockThenWork: (steps) => {
        calls++
        return database.lockThenWork(steps)
      },
      queuedMs: () => 0,
      close: async () => {},
    }
    await plant(action === 'cancel' ? 'pending' : 'failed', action === 'cancel' ? open : failed, 'other')
    const made = await create(action, { type: 'other' })
    // only this one is due
    await database.query(
      ({ sql }) =>
        sql`update bulk_actions set next_at = case id when ${made.id}::uuid then now() - interval '1 hour' else now() + interval '1 hour' end`,
    )
    const [target] = await claim()
    if (!target) throw new Error('no target is due')
    await workOnTarget(workerContext(counting), target)
    return calls
  }
})

test('a dry run expires, and is forgotten with its targets long after', async () => {
  await plant('pending')
  const dry = await create('cancel', { type: 'grant' }, { dryRun: true })
  const running = await create('cancel')
  await database.query(
    ({ sql }) => sql`update bulk_actions set expires_at = now() - interval '1 second' where id = ${dry.id}::uuid`,
  )
  await expect(startBulk({ database }, operator, dry.id, { reason: null })).rejects.toMatchObject({
    code: 'bulk-action-expired',
  })
  await database.query(forgetOldDryRuns)
  expect((await read(dry.id)).status).toBe('dry_run')
  await database.query(
    ({ sql }) => sql`update bulk_actions set expires_at = now() - interval '31 days' where id = ${dry.id}::uuid`,
  )
  await database.query(forgetOldDryRuns)
  expect(await getBulkAction({ database }, operator, dry.id)).toBeNull()
  expect(await database.query(({ sql }) => sql`select distinct bulk_id from bulk_action_targets`)).toEqual([
    { bulk_id: running.id },
  ])
})

test('two starts of one dry run: one starts it', async () => {
  await plant('pending')
  const dry = await create('cancel', { type: 'grant' }, { dryRun: true })
  const start = () => startBulk({ database }, operator, dry.id, { reason: null })
  const results = await Promise.allSettled([start(), start(), start()])
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
})

test('a cancel of many tells of each one by its webhook', async () => {
  const ids = [...(await plantMany(3, 'pending')), await plant('awaiting_approval')]
  await database.query(({ sql }) => sql`update operations set callback_url = 'https://receiver.example/'`)
  const { id } = await create('cancel')
  await work(id)
  for (const operation of ids) expect(await webhooksOf(database, operation)).toEqual(['operation.settled cancelled'])
})
