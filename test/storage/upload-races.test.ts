/** The protocol of uploads (header of src/storage/uploads.ts): whoever loses a race, or its place, changes nothing. */
import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { uploadItems } from '../../src/services/upload-items.ts'
import type { Database } from '../../src/storage/database.ts'
import { closeDraft } from '../../src/storage/drafts.ts'
import { type ChunkTexts, ItemChunk } from '../../src/storage/item-chunk.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { deleteTailSlice, takeStaleUpload } from '../../src/storage/upload-tails.ts'
import {
  abandonUpload,
  beginUpload,
  finishUpload,
  renewUpload,
  storeChunk,
  type Upload,
} from '../../src/storage/uploads.ts'
import { plantedType } from '../support/planted-operation.ts'
import { holdOperation, raceBehind, TENANT, untilWaiting } from '../support/races.ts'
import { openTestService, principal, type TestService } from '../support/service.ts'

let service: TestService
let database: Database
let operationId: string
beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant')] })
  database = service.database
})
afterAll(() => service.close())
beforeEach(async () => {
  const draft = await service.submit('grant', [], { draft: true, body: randomUUID() })
  operationId = draft.id
})

const newUpload = () => ({
  tenantId: TENANT,
  operationId,
  id: randomUUID(),
  idempotencyKey: null,
  ifMatchVersion: null,
  requestedBy: 'tester',
})
const begin = async (): Promise<Upload> => {
  const upload = newUpload()
  const begun = await beginUpload(database, upload)
  if (begun.kind !== 'begun') throw new Error(begun.kind)
  return { ...upload, fromOrd: begun.fromOrd }
}
const rows = (count: number, prefix = 'k'): ChunkTexts => {
  const chunk = new ItemChunk()
  for (let n = 0; n < count; n++) chunk.push({ key: `${prefix}${n}`, effectKey: `e${n}`, input: '{}', inputHash: 'h' })
  return chunk.take()
}
const store = (upload: Upload, added: number, count: number, prefix?: string) =>
  database.query((connection) => storeChunk(connection, upload, added, rows(count, prefix)))
const finish = (upload: Upload, added: number) =>
  finishUpload(database, { ...upload, added, requestHash: 'h', actor: 'tester' })
const close = (itemsTotal: number) =>
  closeDraft(database, {
    tenantId: TENANT,
    operationId,
    itemsTotal,
    actor: 'tester',
    reason: null,
    shardEnds: [itemsTotal],
    steps: [],
  })
const cancel = () => requestCancel(database, { tenantId: TENANT, operationId, actor: 'tester', reason: null })
const expire = (seconds = 31) =>
  database.query(
    ({ sql }) => sql`
      update operation_uploads set last_seen_at = clock_timestamp() - ${seconds} * interval '1 second'
      where operation_id = ${operationId}::uuid and state <> 'done'`,
  )
const facts = async () => {
  const [row] = await database.query(
    ({ sql }) => sql<{ status: string; total: number; rows: number; last: number | null; shards: number }>`
      select status, items_total::int as total,
        (select count(*)::int from operation_items i where i.operation_id = o.id) as rows,
        (select max(ord) from operation_items i where i.operation_id = o.id) as last,
        (select count(*)::int from operation_shards s where s.operation_id = o.id) as shards
      from operations o where id = ${operationId}::uuid`,
  )
  return row
}

describe('who has lost its place', () => {
  test.each([
    ['to the next upload', async () => void (await begin())],
    ['to the janitor', () => expire(61).then(() => database.query(takeStaleUpload))],
    ['to a start', async () => void (await close(1))],
    ['by giving up', (upload: Upload) => database.query((connection) => abandonUpload(connection, upload))],
  ])('%s, neither adds, nor finishes, nor renews, nor deletes', async (_, lose) => {
    const first = await begin()
    await store(first, 0, 1, 'first')
    await finish(first, 1)
    const upload = await begin()
    await store(upload, 0, 5)
    await expire()
    await lose(upload)
    const before = await facts()
    expect(await store(upload, 5, 5, 'late')).toBeNull()
    expect(await finish(upload, 5)).toBeNull()
    expect(await database.query((connection) => renewUpload(connection, upload))).toBe(false)
    expect(await database.query((connection) => deleteTailSlice(connection, upload, 'live', 0, 99))).toBe(false)
    expect(await facts()).toEqual(before)
    expect(before).toMatchObject({ total: 1, rows: 6 })
  })

  test('a chunk is stored once, whoever sends it again', async () => {
    const upload = await begin()
    expect(await store(upload, 0, 5)).toEqual({ stored: 5 })
    expect(await store(upload, 0, 5, 'again')).toBeNull()
    expect(await finish(upload, 4)).toBeNull()
    expect(await finish(upload, 5)).toEqual({ total: 5 })
    expect(await finish(upload, 5)).toBeNull()
  })
})

describe('races', () => {
  test('of two that begin, one is told to wait', async () => {
    const held = await holdOperation(service.url, operationId)
    const [first, second] = await raceBehind(
      database,
      held,
      () => beginUpload(database, newUpload()),
      () => beginUpload(database, newUpload()),
    )
    expect([first.kind, second.kind]).toEqual(['begun', 'in-progress'])
  })

  test('a chunk under way proves that its upload lives: it is not replaced, though it looked expired', async () => {
    const upload = await begin()
    await expire()
    const session = postgres(service.url, { max: 1, onnotice: () => {} })
    await session.unsafe('begin')
    await session`select 1 from operation_uploads where id = ${upload.id} for no key update`
    const chunk = store(upload, 0, 3)
    await untilWaiting(database, 1)
    const rival = beginUpload(database, newUpload())
    await untilWaiting(database, 2)
    await session.unsafe('commit')
    await session.end()
    expect(await chunk).toEqual({ stored: 3 })
    expect((await rival).kind).toBe('in-progress')
  })

  test('finish before start: the start has counted too little, and looks again', async () => {
    const first = await begin()
    await store(first, 0, 2, 'first')
    await finish(first, 2)
    const upload = await begin()
    await store(upload, 0, 3)
    const held = await holdOperation(service.url, operationId)
    const [finished, closed] = await raceBehind(
      database,
      held,
      () => finish(upload, 3),
      () => close(2),
    )
    expect([finished, closed]).toEqual([{ total: 5 }, false])
    expect(await facts()).toMatchObject({ status: 'draft', total: 5, shards: 0 })
    expect(await close(5)).toBe(true)
  })

  test('start before finish, of an upload that has expired: nothing was added', async () => {
    const first = await begin()
    await store(first, 0, 2, 'first')
    await finish(first, 2)
    const upload = await begin()
    await store(upload, 0, 3)
    await expire()
    const held = await holdOperation(service.url, operationId)
    const [closed, finished] = await raceBehind(
      database,
      held,
      () => close(2),
      () => finish(upload, 3),
    )
    expect([closed, finished]).toEqual([true, null])
    expect(await facts()).toMatchObject({ status: 'pending', total: 2, shards: 1 })
  })

  test('a live upload keeps a draft from being started', async () => {
    const upload = await begin()
    expect(await close(0)).toBe(false)
    await store(upload, 0, 1)
    expect(await close(0)).toBe(false)
    expect(await facts()).toMatchObject({ status: 'draft', shards: 0 })
  })

  test('of two starts, one makes the shards', async () => {
    const upload = await begin()
    await store(upload, 0, 3)
    await finish(upload, 3)
    const held = await holdOperation(service.url, operationId)
    const start = () => close(3)
    expect(await raceBehind(database, held, start, start)).toEqual([true, false])
    expect((await facts())?.shards).toBe(1)
  })

  test('cancel before finish, and cancel before start', async () => {
    const upload = await begin()
    await store(upload, 0, 3)
    const held = await holdOperation(service.url, operationId)
    const race = await raceBehind(
      database,
      held,
      cancel,
      () => finish(upload, 3),
      () => close(0),
    )
    expect(race).toEqual([true, null, false])
    expect(await facts()).toMatchObject({ total: 0, shards: 0 })
  })
})

test('an api that died in the middle leaves a tail; the next upload removes it first', async () => {
  const dead = await begin()
  for (let added = 0; added < 25_000; added += 5_000) await store(dead, added, 5_000, `dead${added}-`)
  await expire()
  const request = {
    rows: (async function* () {
      yield [{ line: 1, key: 'dead0-0', input: {} }]
    })(),
    cells: 'json' as const,
    hash: async () => 'h',
    idempotencyKey: null,
    ifMatchVersion: null,
  }
  const added = await uploadItems(service.context, principal, operationId, request)
  expect(added).toEqual({ added: 1, total: 1, replayed: false })
  expect(await facts()).toMatchObject({ total: 1, rows: 1, last: 0 })
})
