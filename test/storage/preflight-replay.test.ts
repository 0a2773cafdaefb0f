import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { OperationType } from '../../src/domain/operation-type.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import type { PreflightRequest } from '../../src/services/requests.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { addTypeMinutes, emptyDelta } from '../../src/storage/type-minutes.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type PlantedItem, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'test' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => database.query(({ sql }) => sql`delete from type_minutes`))

const grant = plantedType('grant')
const principal = { tenantId: 1, name: 'operator', scopes: [] }
const everything: PreflightRequest = { scope: null }

const scoped = (scope: Partial<NonNullable<PreflightRequest['scope']>>): PreflightRequest => ({
  scope: { states: null, failureClasses: null, itemKeys: null, ...scope },
})
const preflight = (id: string, request = everything, type: OperationType = grant) =>
  preflightReplay({ database, types: plantedTypes(type) }, principal, id, request)

const applied = { state: 'applied' } as const
const transient = { state: 'failed', failureClass: 'transient' } as const
const conflict = { state: 'failed', failureClass: 'conflict' } as const

/** One item of each kind; the latest entry counts. */
const oneOfEach: PlantedItem[] = [
  { key: 'applied', entries: [transient, applied] },
  { key: 'skipped', entries: [{ state: 'skipped' }] },
  { key: 'transient', entries: [transient, transient] },
  { key: 'conflict', entries: [conflict] },
  { key: 'rejected', entries: [{ state: 'failed', failureClass: 'validation_rejected' }] },
  { key: 'bug', entries: [{ state: 'failed', failureClass: 'bug_suspected' }] },
  { key: 'late "one"' },
]
const plantOneOfEach = () =>
  plantOperation(database, { type: 'grant', status: 'partially_succeeded', items: oneOfEach })

test('describes the whole operation, whatever the scope, and is recorded', async () => {
  const id = await plantOneOfEach()
  await database.query(
    ({ sql }) => sql`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
      select 1, ${id}::uuid, ord, 'grant', 'k', 'e', 'transient', 3, 'f' from unnest('{0,2}'::int[]) as o (ord)`,
  )
  const view = await preflight(id)
  expect(view).toMatchObject({
    operationId: id,
    scope: { states: ['failed', 'unprocessed'], failureClasses: ['transient'], itemKeys: null },
    replayTargets: 2,
    failedTargets: 4,
    confirmedTargets: 2,
    ambiguousEffectTargets: 0,
    validationRejectedTargets: 1,
    unprocessedTargets: 1,
    deadLetterTargets: 1,
    lastCheckpointAgeSeconds: expect.toSatisfy((age: number) => age >= 0 && age < 60),
    downstreamErrorRate5m: 0,
    codeVersionChanged: false,
    codeVersionThen: '1',
    codeVersionNow: '1',
    requiresApproval: false,
    compensation: 'none',
    allowed: true,
    blockedBy: [],
  })
  expect(view.factsHash).toMatch(/^[0-9a-f]{64}$/)
  expect(view.stopIf.map((one) => one.condition)).toEqual([
    'ambiguous_effect_targets > 0',
    'downstream_error_rate_5m > 5%',
    'replay_reject_rate > 10%',
  ])
  const [row] = await database.query(
    ({ sql }) => sql`
      select facts_hash, requested_by, scope, facts ->> 'replayTargets' as targets,
        expires_at between now() + interval '14 minutes' and now() + interval '15 minutes' as lives
      from replay_preflights where tenant_id = 1 and id = ${view.id}::uuid and operation_id = ${id}::uuid`,
  )
  expect(row).toEqual({
    facts_hash: view.factsHash,
    requested_by: 'operator',
    scope: view.scope,
    targets: '2',
    lives: true,
  })
})

describe('the scope', () => {
  test.each([
    ['failure classes alone speak of failed items', scoped({ failureClasses: ['conflict'] }), 1],
    ['a state alone takes all its classes', scoped({ states: ['failed'] }), 4],
    ['unprocessed only', scoped({ states: ['unprocessed'] }), 1],
    ['states and classes', scoped({ states: ['failed', 'unprocessed'], failureClasses: ['conflict', 'conflict'] }), 2],
    ['keys, where there is something to do', scoped({ itemKeys: ['late "one"', 'conflict', 'applied'] }), 2],
    ['keys and classes', scoped({ itemKeys: ['late "one"', 'conflict'], failureClasses: ['conflict'] }), 1],
    ['no keys', scoped({ itemKeys: [] }), 0],
    ['nothing named is the default', scoped({}), 2],
  ])('%s', async (_name, request, targets) => {
    const view = await preflight(await plantOneOfEach(), request)
    expect(view.replayTargets).toBe(targets)
    expect(view.blockedBy.includes('nothing-to-replay')).toBe(targets === 0)
  })

  test.each([
    ['a state that is not replayed', scoped({ states: ['failed', 'uncertain'] }), '/scope/states/1'],
    ['an unknown state', scoped({ states: ['lost'] }), '/scope/states/0'],
    ['the uncertain class', scoped({ failureClasses: ['ambiguous_effect'] }), '/scope/failure_classes/0'],
    ['an unknown class', scoped({ failureClasses: ['transient', 'odd'] }), '/scope/failure_classes/1'],
    [
      'classes without failed items',
      scoped({ states: ['unprocessed'], failureClasses: ['transient'] }),
      '/scope/failure_classes',
    ],
    ['a key that no item has', scoped({ itemKeys: ['conflict', 'nobody'] }), '/scope/item_keys/1'],
    ['too many keys', scoped({ itemKeys: Array.from({ length: 10_001 }, () => 'conflict') }), '/scope/item_keys'],
  ])('refuses %s', async (_name, request, pointer) => {
    const refusal = await preflight(await plantOneOfEach(), request).catch((error: unknown) => error)
    expect(refusal).toMatchObject({ code: 'invalid-request', errors: [{ pointer, detail: expect.any(String) }] })
  })
})

describe('what forbids a replay', () => {
  test('an uncertain item, even where the type has no condition for it', async () => {
    const id = await plantOperation(database, {
      type: 'grant',
      status: 'reconciliation_required',
      items: [
        { key: 'maybe', entries: [{ state: 'uncertain' }] },
        { key: 'bad', entries: [conflict] },
      ],
    })
    const view = await preflight(id, scoped({ failureClasses: ['conflict'] }), {
      ...grant,
      stopIf: ['replay_reject_rate > 10%'],
    })
    expect(view).toMatchObject({ replayTargets: 1, ambiguousEffectTargets: 1, allowed: false })
    expect(view.blockedBy).toEqual(['ambiguous_effect_targets > 0'])
    expect(view.stopIf).toEqual([
      { condition: 'ambiguous_effect_targets > 0', actual: 1, tripped: true },
      { condition: 'replay_reject_rate > 10%', actual: 0, tripped: false },
    ])
  })

  test('an operation that still runs; nothing was checkpointed yet', async () => {
    const id = await plantOperation(database, { type: 'grant', status: 'running', items: [{ key: 'a' }] })
    expect(await preflight(id)).toMatchObject({ blockedBy: ['not-settled'], lastCheckpointAgeSeconds: null })
  })

  test('another replay that is not final', async () => {
    const id = await plantOneOfEach()
    await plantOperation(database, { type: 'grant', status: 'failed', items: [], replayOf: id })
    expect((await preflight(id)).allowed).toBe(true)
    await plantOperation(database, { type: 'grant', status: 'pending', items: [], replayOf: id })
    expect((await preflight(id)).blockedBy).toEqual(['replay-in-progress'])
  })

  test('a suspected bug, until the code is another one', async () => {
    const id = await plantOneOfEach()
    const bugs = scoped({ failureClasses: ['bug_suspected'] })
    expect((await preflight(id, bugs)).blockedBy).toEqual(['bug-suspected'])
    expect(await preflight(id, bugs, { ...grant, version: 2, codeVersion: 'c2' })).toMatchObject({
      allowed: true,
      codeVersionChanged: true,
      codeVersionThen: '1',
      codeVersionNow: '2',
    })
    // the same version of the type, built anew: the fix may be in it
    expect(await preflight(id, bugs, { ...grant, codeVersion: 'c2' })).toMatchObject({
      allowed: true,
      codeVersionChanged: false,
      codeVersionThen: '1',
      codeVersionNow: '1',
    })
    expect((await preflight(id, bugs, { ...grant, version: 2 })).allowed).toBe(true)
  })

  test('purged items, and no complaint about keys that are gone with them', async () => {
    const id = await plantOneOfEach()
    await database.query(({ sql }) => sql`update operations set items_purged_at = now() where id = ${id}::uuid`)
    await database.query(({ sql }) => sql`delete from operation_items where operation_id = ${id}::uuid`)
    const view = await preflight(id, scoped({ itemKeys: ['conflict'] }))
    expect(view).toMatchObject({ failedTargets: 4, unprocessedTargets: 1, replayTargets: 1 })
    expect(view.blockedBy).toEqual(['items-purged'])
  })

  test("downstream errors, by the operation's own stricter condition", async () => {
    const id = await plantOperation(database, {
      type: 'grant',
      status: 'failed',
      items: [{ key: 'a', entries: [transient] }],
      stopIf: ['downstream_error_rate_5m > 1%'],
    })
    await database.query((connection) =>
      addTypeMinutes(connection, randomUUID(), [{ ...emptyDelta('grant'), calls: 50, errors: 2 }]),
    )
    const view = await preflight(id)
    expect(view.downstreamErrorRate5m).toBe(0.04)
    expect(view.blockedBy).toEqual(['downstream_error_rate_5m > 1%'])
  })
})

test('the hash stands still while the facts do, and moves with each of them', async () => {
  const id = await plantOneOfEach()
  const hashOf = async (request = everything, type = grant) => (await preflight(id, request, type)).factsHash
  const first = await hashOf()
  expect(await hashOf()).toBe(first)
  const keys = scoped({ itemKeys: ['bug', 'conflict'] })
  expect(await hashOf(keys)).toBe(await hashOf(scoped({ itemKeys: ['conflict', 'bug', 'bug'] })))
  const others = [
    await hashOf(keys),
    await hashOf(everything, { ...grant, version: 2 }),
    await hashOf(everything, { ...grant, codeVersion: 'c2' }),
  ]
  await plantOperation(database, { type: 'grant', status: 'pending', items: [], replayOf: id })
  others.push(await hashOf())
  await database.query(
    ({ sql }) => sql`update operation_shards set version = version + 1 where operation_id = ${id}::uuid`,
  )
  others.push(await hashOf())
  expect(new Set([first, ...others]).size).toBe(6)
})

test('approval and compensation come from the type', async () => {
  const view = await preflight(await plantOneOfEach(), everything, {
    ...grant,
    approval: 'replay',
    compensation: 'available',
  })
  expect(view).toMatchObject({ requiresApproval: true, compensation: 'available' })
})

test("another tenant's operation does not exist, and a type that is gone is named", async () => {
  const id = await plantOneOfEach()
  const stranger = preflightReplay(
    { database, types: plantedTypes(grant) },
    { ...principal, tenantId: 2 },
    id,
    everything,
  )
  await expect(stranger).rejects.toMatchObject({ code: 'operation-not-found' })
  await expect(preflight(id, everything, plantedType('other'))).rejects.toMatchObject({
    code: 'unknown-operation-type',
  })
})
