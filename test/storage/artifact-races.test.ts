/** The publish of an artifact against everything that may come between: each order, decided by a held lock. */
import { randomUUID } from 'node:crypto'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { publishArtifact } from '../../src/services/publish-artifact.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { claimExpiredShards, type RunnableType } from '../../src/storage/run/claim-shards.ts'
import type { Evidence } from '../../src/storage/run/evidence.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readChunkRefs, readPublishPosition } from '../../src/storage/run/publish.ts'
import { requestCancel, requestPause } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  claimOne,
  claimWindow,
  expireLease,
  type Hold,
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

const REPORT: RunnableType = {
  name: 'report',
  version: 1,
  leaseMs: 30_000,
  windowMax: 2,
  compensates: false,
  codeVersion: 'c1',
}

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'artifact races' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

interface Ready {
  lease: ClaimedShard
  keys: string[]
}

/** An operation of two chunks and a publish: the chunks are written, the publish is claimed. */
const ready = async (): Promise<Ready> => {
  const keys = [randomUUID(), randomUUID(), randomUUID()]
  await storeOperation(database, { type: REPORT.name, items: items(3, (ord) => keys[ord] ?? '') })
  const lease = await claimOne(database, REPORT)
  await claimWindow(database, lease, 0, 3)
  for (const ord of [0, 1]) {
    const effectRef = `tmp/1/x/${ord}-1 size=4 sha256=${'0'.repeat(64)}`
    await tell(database, lease, { ord, effectKey: keys[ord] ?? '' }, { effect: 'applied', item: 'applied', effectRef })
  }
  return { lease, keys }
}

const evidenceOf = ({ lease, keys }: Ready): Evidence => ({
  source: 'worker',
  epoch: lease.epoch,
  workerId: lease.workerId,
  actor: null,
  codeVersion: 'c1',
  lookupAfterMs: null,
  reports: [report({ ord: 2, effectKey: keys[2] ?? '', send: 1 }, { effect: 'applied', item: 'applied' })],
})

const publishing =
  (of: Ready, { key = 'k', id = randomUUID() as string } = {}) =>
  (): Promise<boolean> =>
    publishArtifact({ database, wakeUps: NO_WAKE_UPS }, of.lease, evidenceOf(of), {
      id,
      type: REPORT.name,
      artifactKey: key,
      name: 'report.txt',
      contentType: 'text/plain',
      object: `artifacts/1/${of.lease.operationId}/${id}`,
      sizeBytes: 8,
      sha256: '0'.repeat(64),
      keepDays: 7,
    })

const cancelling =
  ({ lease }: Ready) =>
  () =>
    requestCancel(database, { tenantId: TENANT, operationId: lease.operationId, actor: 'tester', reason: null })

const artifacts = () =>
  database.query(
    ({ sql }) => sql<{ id: string; operation: string; by: string | null; reason: string | null; current: boolean }>`
      select id, operation_id as operation, superseded_by as by, supersede_reason as reason,
        superseded_at is null as current
      from artifacts order by published_at`,
  )
const publishState = async ({ keys }: Ready): Promise<string | undefined> => {
  const [row] = await database.query(
    ({ sql }) => sql<{ state: string }>`select state from effects where effect_key = ${keys[2] ?? ''}`,
  )
  return row?.state
}
const settled = async ({ lease }: Ready) => {
  await finishShard(database, lease)
  return settleOperation({ database, wakeUps: NO_WAKE_UPS }, TENANT, lease.operationId)
}

describe('publish against cancel', () => {
  test('the publish comes first: it is published, and the cancel supersedes it in its own commit', async () => {
    const of = await ready()
    const raced = await raceBehind(
      database,
      await holdShard(testDatabase.url, of.lease),
      publishing(of),
      cancelling(of),
    )
    expect(raced).toEqual([true, true])
    expect(await artifacts()).toMatchObject([{ current: false, reason: 'cancel', by: null }])
    expect(await publishState(of)).toBe('applied')
    expect(await settled(of)).toBe('completed_after_cancel')
  })

  test('the cancel comes first: nothing is published', async () => {
    const of = await ready()
    const raced = await raceBehind(
      database,
      await holdShard(testDatabase.url, of.lease),
      cancelling(of),
      publishing(of),
    )
    expect(raced).toEqual([true, false])
    expect(await artifacts()).toEqual([])
    expect(await publishState(of)).toBe('intent')
    await tell(
      database,
      of.lease,
      { ord: 2, effectKey: of.keys[2] ?? '' },
      {
        effect: 'absent',
        item: null,
        retry: { afterMs: 0, reason: 'unsent' },
      },
    )
    expect(await settled(of)).toBe('cancelled')
  })

  test('a pause that comes first holds it back; after the resume it may be tried again', async () => {
    const of = await ready()
    const { operationId } = of.lease
    await requestPause(database, { tenantId: TENANT, operationId, actor: 'tester', reason: null })
    expect(await publishing(of)()).toBe(false)
    expect(await artifacts()).toEqual([])
    expect(await readShard(database, of.lease)).toMatchObject({ in_flight: 1, applied: 2 })
  })
})

describe('two publishes with one artifact key', () => {
  const holdKey = async (key: string): Promise<Hold> => {
    const sql = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
    await sql.unsafe('begin')
    await sql`select pg_advisory_xact_lock(hashtextextended(${`${TENANT}:${REPORT.name}:${key}`}, 0))`
    return {
      sql,
      async commit() {
        await sql.unsafe('commit')
        await sql.end()
      },
    }
  }

  test('come in a row: the later one supersedes the earlier one', async () => {
    const [one, two] = [await ready(), await ready()]
    expect(await raceBehind(database, await holdKey('k'), publishing(one), publishing(two))).toEqual([true, true])
    const [older, newer] = await artifacts()
    expect(older).toMatchObject({ operation: one.lease.operationId, current: false, by: newer?.id, reason: 'newer' })
    expect(newer).toMatchObject({ operation: two.lease.operationId, current: true })
  })

  test('of different keys do not wait for each other', async () => {
    const [one, two] = [await ready(), await ready()]
    const held = await holdKey('other')
    expect(await publishing(one, { key: 'mine' })()).toBe(true)
    await held.commit()
    expect(await publishing(two, { key: 'other' })()).toBe(true)
    expect((await artifacts()).map(({ current }) => current)).toEqual([true, true])
  })

  test('a try that is repeated because its reply was lost takes no place back', async () => {
    const [one, two] = [await ready(), await ready()]
    const first = publishing(one)
    expect([await first(), await publishing(two)(), await first()]).toEqual([true, true, true])
    expect((await artifacts()).map(({ operation, current }) => [operation, current])).toEqual([
      [one.lease.operationId, false],
      [two.lease.operationId, true],
    ])
    expect(await readShard(database, one.lease)).toMatchObject({ applied: 3, in_flight: 0, entries: 3 })
  })

  test('of one operation: the second finds the first', async () => {
    const of = await ready()
    expect([await publishing(of)(), await publishing(of)()]).toEqual([true, false])
    expect(await artifacts()).toHaveLength(1)
  })
})

test('case 17: a worker that lost its lease publishes nothing, also when its successor has not come far', async () => {
  const of = await ready()
  await expireLease(database, of.lease)
  const [successor] = await database.query((connection) =>
    claimExpiredShards(connection, { workerId: randomUUID(), types: [REPORT], limit: 1 }),
  )
  expect(successor?.epoch).toBe(2)
  expect(await publishing(of)()).toBe(false)
  expect(await artifacts()).toEqual([])
  expect(await publishState(of)).toBe('intent')
  await tell(
    database,
    successor ?? of.lease,
    { ord: 2, effectKey: of.keys[2] ?? '' },
    { effect: 'absent', item: null, retry: { afterMs: 0, reason: 'unsent' } },
    'recovery',
  )
  expect(await publishing(of)()).toBe(false)
  expect([await publishState(of), await artifacts()]).toEqual(['absent', []])
})

test('a chunk that was written twice opens no case', async () => {
  const of = await ready()
  await database.query(({ sql }) => sql`update effects set send = 2 where effect_key = ${of.keys[0] ?? ''}`)
  const late = report({ ord: 0, effectKey: of.keys[0] ?? '', send: 1 }, { effect: 'applied', item: 'applied' })
  await convergeEvidence(
    { database, wakeUps: NO_WAKE_UPS },
    of.lease,
    { ...evidenceOf(of), reports: [late] },
    { doublesMatter: false },
  )
  expect(await database.query(({ sql }) => sql`select 1 from reconciliation_cases`)).toEqual([])
})

describe('where the shard stands before its last item', () => {
  test('is told chunk by chunk, and a shard whose chunks wait is due with them', async () => {
    const keys = [randomUUID(), randomUUID(), randomUUID()]
    await storeOperation(database, { type: REPORT.name, items: items(3, (ord) => keys[ord] ?? '') })
    const lease = await claimOne(database, REPORT)
    const position = () => database.query((connection) => readPublishPosition(connection, lease))
    expect(await position()).toEqual({ unclaimed: 2, inFlight: 0, waiting: 0, claimed: false })
    await claimWindow(database, lease, 0, 2)
    expect(await position()).toEqual({ unclaimed: 0, inFlight: 2, waiting: 0, claimed: false })
    const effectRef = 'an object'
    await tell(database, lease, { ord: 0, effectKey: keys[0] ?? '' }, { effect: 'applied', item: 'applied', effectRef })
    await tell(
      database,
      lease,
      { ord: 1, effectKey: keys[1] ?? '' },
      {
        effect: 'absent',
        item: 'failed',
        failureClass: 'transient',
        retry: { afterMs: 60_000, reason: 'failed' },
      },
    )
    expect(await position()).toEqual({ unclaimed: 0, inFlight: 0, waiting: 1, claimed: false })
    expect(await database.query((connection) => readChunkRefs(connection, lease))).toEqual(['an object', null])
    const finished = await finishShard(database, lease, { lastWaits: true })
    expect(finished?.state).toBe('ready')
    expect(finished?.dueInMs).toBeGreaterThan(30_000)
    expect(await position()).toBeNull()
  })
})
