/** The copy of a replay: in how many statements, and what may happen to the operation meanwhile. */
import { randomUUID } from 'node:crypto'
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { insertReplay, readPreflight } from '../../src/storage/replays.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type PlantedItem, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'
import { holdShard, raceBehind, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'replay' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const failed: PlantedItem['entries'] = [{ state: 'failed', failureClass: 'transient' }]
const applied: PlantedItem['entries'] = [...failed, { state: 'applied' }]
/** Failed, applied, unprocessed, and so on; every statement of two finds another number of targets. */
const ITEMS: PlantedItem[] = [
  { key: 'a', entries: failed },
  { key: 'b', entries: failed },
  { key: 'c', entries: applied },
  { key: 'd', entries: applied },
  { key: 'e', entries: applied },
  { key: 'f', entries: failed },
  { key: 'g' },
]
const TARGETS = ['a', 'b', 'f', 'g']

const plant = async () => {
  const of = await plantOperation(database, { type: 'grant', status: 'partially_succeeded', items: ITEMS })
  const asked = await preflightReplay(
    { database, types: plantedTypes(plantedType('grant')) },
    { tenantId: 1, name: 'operator', scopes: [] },
    of,
    { scope: null },
  )
  const recorded = await database.query((connection) => readPreflight(connection, 1, asked.id))
  if (recorded?.kind !== 'replay') throw new Error('the preflight was not recorded')
  const id = uuidv7()
  return {
    of,
    id,
    replay: {
      tenantId: 1,
      id,
      preflightId: asked.id,
      of,
      seenVersion: recorded.version,
      scope: recorded.scope,
      targets: asked.replayTargets,
      typeVersion: 1,
      codeVersion: 'c1',
      requestedBy: 'operator',
      reason: 'again',
      approvalRequired: null,
      shardEnds: [asked.replayTargets],
      steps: [],
      effectKeyPrefix: null,
    },
  }
}
const itemsOf = (id: string) =>
  database.query(
    ({ sql }) => sql<{ ord: number; item_key: string; effect_key: string }>`
      select ord, item_key, effect_key from operation_items where operation_id = ${id}::uuid order by ord`,
  )
/** Nothing of the replay is there, and its preflight can still be used. */
const expectNoTrace = async (id: string, preflightId: string): Promise<void> => {
  const [left] = await database.query(
    ({ sql }) => sql`
      select (select count(*)::int from operations where id = ${id}::uuid) as operations,
        (select count(*)::int from operation_items where operation_id = ${id}::uuid) as items,
        (select used_by from replay_preflights where id = ${preflightId}::uuid) as used_by`,
  )
  expect(left).toEqual({ operations: 0, items: 0, used_by: null })
}

test.each([1, 2, 3, 7, 50_000])('copies the targets in their order, %i items a statement', async (perStatement) => {
  const { of, id, replay } = await plant()
  expect(await insertReplay(database, replay, perStatement)).toEqual({ kind: 'made' })
  expect(await itemsOf(id)).toEqual(TARGETS.map((key, ord) => ({ ord, item_key: key, effect_key: `${of}:${key}` })))
  expect(await insertReplay(database, { ...replay, id: randomUUID() }, perStatement)).toEqual({ kind: 'used', by: id })
})

test('other targets than were judged make it outdated, and leave no trace', async () => {
  const { id, replay } = await plant()
  expect(await insertReplay(database, { ...replay, targets: 3, shardEnds: [3] }, 2)).toEqual({ kind: 'outdated' })
  await expectNoTrace(id, replay.preflightId)
})

test('an outcome that is written while it waits for the shard makes it outdated', async () => {
  const { of, id, replay } = await plant()
  const held = await holdShard(testDatabase.url, { tenantId: 1, operationId: of, shard: 0 })
  await held.sql`update operation_shards set version = version + 1 where operation_id = ${of}`
  const [made] = await raceBehind(database, held, () => insertReplay(database, replay))
  expect(made).toEqual({ kind: 'outdated' })
  await expectNoTrace(id, replay.preflightId)
})
