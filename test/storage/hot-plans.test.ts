/**
 * Hot queries on large tables: those of a run, of a request and of a maintenance tick that plans.test.ts does not look at. Each is
 * run as it is, beside much history and within one large operation, and may look at so many rows of a big table and no more.
 */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { report } from '../../src/services/evidence-reports.ts'
import {
  findCallbackTargets,
  insertCallback,
  keepOutcome,
  noteAbsence,
  readCallback,
  readCallbackStanding,
  takePendingCallbacks,
} from '../../src/storage/callbacks.ts'
import { readCase } from '../../src/storage/cases.ts'
import {
  FIRST_CHECKPOINT,
  listCheckpointRows,
  readOpenCheckpoints,
  readRunners,
} from '../../src/storage/checkpoints.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { findDeadLetterRow, listDeadLetterRows } from '../../src/storage/dead-letters.ts'
import { closeDraft, readDraft } from '../../src/storage/drafts.ts'
import { listEventRows } from '../../src/storage/events.ts'
import { readOpenOperations, readTypeGauges, readWebhookDeliveries } from '../../src/storage/gauges.ts'
import {
  forgetGoneWorkers,
  forgetOldCallbacks,
  forgetOldDryRuns,
  forgetOldMinutes,
  forgetUnusedPreflights,
} from '../../src/storage/housekeeping.ts'
import { findItemPlace, listHistoryRows } from '../../src/storage/item-history.ts'
import { listItemRows } from '../../src/storage/items.ts'
import { listLedgerRows } from '../../src/storage/ledger.ts'
import { readEntries, readExtent } from '../../src/storage/ledger-export.ts'
import { closeExplainedDoubts, queueResend, scheduleLookup } from '../../src/storage/lookups.ts'
import { listOperationIds, operationExists } from '../../src/storage/operations.ts'
import { purgeRows, readMarked } from '../../src/storage/purge-rows.ts'
import { findCaseRow, listCaseRows } from '../../src/storage/reconciliation.ts'
import { markChain, readAgedChains } from '../../src/storage/retention.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { othersWait } from '../../src/storage/run/claim-shards.ts'
import { converge } from '../../src/storage/run/converge.ts'
import { endLease } from '../../src/storage/run/end-lease.ts'
import { explainStopped } from '../../src/storage/run/explain-stopped.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { acknowledgeStops, readLeases } from '../../src/storage/run/heartbeat.ts'
import { readEffects, recordObservation } from '../../src/storage/run/observations.ts'
import { takeNewEffects } from '../../src/storage/run/plain-batch.ts'
import { commitBatch, takeBatchEffects } from '../../src/storage/run/transactional.ts'
import {
  chargeSuspect,
  readItems,
  readOwnIntents,
  readPosition,
  readRetryAttempts,
  unchargeSuspect,
} from '../../src/storage/run/window.ts'
import { markStarted } from '../../src/storage/settle.ts'
import { FIRST_OPERATION, readArmedOperations } from '../../src/storage/stop-conditions.ts'
import { readPassedDeadlines, requestCancel, requestPause, resume } from '../../src/storage/stops.ts'
import { readByIdempotencyKey } from '../../src/storage/submissions.ts'
import { deleteTailSlice, readTailEnd, takeStaleUpload } from '../../src/storage/upload-tails.ts'
import { beginUpload, finishUpload, readTakenKeys, renewUpload, storeChunk } from '../../src/storage/uploads.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { CHUNK_TEXTS, EPOCH, type Planted, plantHistory, QUARTER, RETRIES_FROM } from '../support/history.ts'
import { GRANT, TENANT } from '../support/races.ts'
import { type PlanKind, type Reader, readsOf } from '../support/statement-reads.ts'
import { TENANT_TABLES } from '../support/tenant-exceptions.ts'
import { unheldTables } from '../support/tenant-predicates.ts'

let testDatabase: TestDatabase
let database: Database
let planted: Planted

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'hot plans', statementMs: 110_000 })
  planted = await plantHistory(database)
}, 120_000)
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

/** What PostgreSQL adds to the cost of a plan that it has to make anew, at most: 2.5 for each entry of its range table. */
const PLANNING_COST_MAX = 250

interface At extends Reader {
  planted: Planted
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, n) => from + n)
const keyOf = (ord: number): string => `big:${ord}`
const leaseOf = ({ big, worker }: Planted) => ({ ...big, shard: 0, workerId: worker, epoch: EPOCH })
const readGauges = async (connection: Reader['connection'], tenantId: number | null): Promise<void> => {
  await readTypeGauges(connection, tenantId)
  await readOpenOperations(connection, tenantId)
  await readWebhookDeliveries(connection, tenantId)
}
const stopOf = ({ big }: Planted) => ({ ...big, actor: 'tester', reason: null })
const by = { source: 'worker', epoch: EPOCH, actor: null, codeVersion: 'c1', lookupAfterMs: 1_000 } as const
const NO_OPERATION_FILTER = {
  ...{ status: [], type: null, requestedBy: null, labels: {} },
  ...{ createdAfter: null, createdBefore: null, replayOf: null, itemKey: null, effectKey: null },
}
const NO_CASE_FILTER = { operationId: null, type: null, status: [], itemKey: null }
const NO_LETTER_FILTER = { operationId: null, type: null, failureClass: [], fingerprint: null, status: [] }
const WAITING = range(RETRIES_FROM, 100)
const IN_FLIGHT = range(QUARTER / 2 - 100, 100)
const DOUBTFUL = { ord: 2 * QUARTER, shard: 2 }
const ANY_TIME = { from: '2020-01-01', to: '2100-01-01' }

/** A batch at the cursor. */
const window = { from: QUARTER / 2, to: QUARTER / 2 + 100 }
const batch = { items: range(window.from, 100).map((ord) => ({ ord, attempt: 1 })), range: window }
const batchOutcomes = (effectRef: string | null) =>
  batch.items.map(({ ord }) => ({
    ...({ ord, item: 'applied', failureClass: null, reasonCode: null, message: null } as const),
    ...{ effectRef, retryMs: null, fingerprint: null },
  }))
const all = { lost: new Set<number>(), codeVersion: 'c1' }

const RETRIED = {
  ...({ effect: 'absent', item: 'failed', failureClass: 'transient', reasonCode: 'HTTP_503' } as const),
  retry: { afterMs: 1_000, reason: 'failed' },
} as const
/** One each of what becomes of a call, in turn. */
const outcomes = IN_FLIGHT.map((ord, index) => {
  const effect = { ord, effectKey: keyOf(ord), send: 1 }
  switch (index % 3) {
    case 0:
      return report(effect, { effect: 'applied', item: 'applied' })
    case 1:
      return report(effect, { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' })
    default:
      return report(effect, RETRIED)
  }
})

const aCase = async ({ connection, planted: { big } }: At): Promise<{ id: string }> => {
  const [row] = await connection.sql<{ id: string }>`
    select id from reconciliation_cases where tenant_id = ${TENANT} and operation_id = ${big.operationId}::uuid
      and ord = ${DOUBTFUL.ord} and closed_at is null`
  if (!row) throw new Error('the case was not planted')
  return row
}
const aLetter = async ({ connection, planted: { big } }: At): Promise<{ id: string }> => {
  const [row] = await connection.sql<{ id: string }>`
    select id from dead_letters where tenant_id = ${TENANT} and operation_id = ${big.operationId}::uuid limit 1`
  if (!row) throw new Error('the dead letter was not planted')
  return row
}

const goes = (): { goes: boolean; reason: string } => ({ goes: true, reason: 'old' })
/** Rows of one kind that retention deletes at once here; each is looked up and then deleted. */
const PURGED = 100
/** The large operation, as it stands when its time is over. */
const endBig = ({ connection, planted: { big } }: At): Promise<unknown> =>
  connection.sql`
    update operations set status = 'succeeded', completed_at = now() - interval '10 years'
    where tenant_id = ${TENANT} and id = ${big.operationId}::uuid`

/** Those that go over all tenants on purpose (test/support/tenant-exceptions.ts). */
const OVER_ALL_TENANTS = new Set([
  'whether others wait',
  'a callback, up to its judgement',
  'callbacks that wait',
  'old callbacks',
  'passed deadlines',
  'operations with stop conditions',
  'an upload that nobody goes on with',
  'the gauges of all tenants',
  'what no worker goes on with',
  'chains that are old enough',
  'what is marked as purged',
  'what housekeeping forgets',
])

/** What it is, the rows of one big table that one statement of it may look at, and what runs it. */
test.each<[string, number, (at: At) => Promise<unknown>]>([
  // a run
  ['items by their ords', 200, ({ connection: c, planted: p }) => readItems(c, leaseOf(p), WAITING)],
  ['the intents of a lease', 200, ({ connection: c, planted: p }) => readOwnIntents(c, leaseOf(p))],
  ['where a shard stands', 10, ({ connection: c, planted: p }) => readPosition(c, leaseOf(p))],
  [
    'the charge of a suspect, and its return',
    10,
    async ({ connection: c, planted: p }) => {
      await chargeSuspect(c, leaseOf(p), 5)
      await unchargeSuspect(c, leaseOf(p), { ord: 5, before: 0 })
    },
  ],
  ['the attempts of waiting items', 400, ({ connection: c, planted: p }) => readRetryAttempts(c, leaseOf(p), WAITING)],
  [
    'the claim of retries',
    600,
    ({ database: d, planted: p }) => claimRetries(d, leaseOf(p), WAITING, { sendByMs: 1_000, resendWithinMs: 60_000 }),
  ],
  ['keys that others hold', 600, ({ database: d, planted: p }) => explainKnownKeys(d, leaseOf(p), WAITING, 'c1')],
  [
    'outcomes of 100 calls',
    700,
    ({ database: d, planted: p }) => converge(d, leaseOf(p), { ...by, workerId: p.worker, reports: outcomes }),
  ],
  [
    'a plain batch of 100',
    400,
    async ({ connection: c, planted: p }) => {
      expect(await takeNewEffects(c.sql, leaseOf(p), window)).toEqual(new Set())
      expect(await commitBatch(c.sql, leaseOf(p), { ...batch, outcomes: batchOutcomes(null), ...all })).toBe(true)
    },
  ],
  [
    'a batch of 100, of which things are told',
    400,
    async ({ connection: c, planted: p }) => {
      expect(await takeBatchEffects(c.sql, leaseOf(p), batch)).toEqual(new Set())
      expect(await commitBatch(c.sql, leaseOf(p), { ...batch, outcomes: batchOutcomes('ref'), ...all })).toBe(true)
    },
  ],
  [
    'a batch of 100 second attempts',
    400,
    async ({ connection: c, planted: p }) => {
      const items = batch.items.map(({ ord }) => ({ ord, attempt: 2 }))
      expect(await takeBatchEffects(c.sql, leaseOf(p), { items, range: null })).toEqual(new Set())
      const done = { items, range: null, outcomes: batchOutcomes('ref'), ...all }
      expect(await commitBatch(c.sql, leaseOf(p), done)).toBe(true)
    },
  ],
  [
    'the end of a run, with items that wait',
    400,
    async ({ connection: c, database: d, planted: p }) => {
      await c.sql`
        update operation_shards set in_flight = 0, cursor = to_ord
        where tenant_id = ${TENANT} and operation_id = ${p.big.operationId}::uuid and shard = 0`
      expect(await finishShard(d, leaseOf(p))).toMatchObject({ state: 'ready' })
    },
  ],
  [
    'the end of a lease',
    10,
    ({ connection: c, planted: p }) => endLease(c, leaseOf(p), { dueInMs: 0, claims: 0, charge: null }),
  ],
  ['what leases say', 10, ({ connection: c, planted: p }) => readLeases(c, [leaseOf(p)])],
  ['whether others wait', 500, ({ connection: c }) => othersWait(c, [GRANT])],
  ['effects by key', 200, ({ database: d }) => readEffects(d, TENANT, IN_FLIGHT.map(keyOf))],
  [
    'late evidence',
    20,
    ({ database: d, planted: p }) =>
      recordObservation(d, leaseOf(p), {
        ...({ cause: 'contradiction', source: 'lookup', actor: null, workerId: null, codeVersion: 'c1' } as const),
        report: report({ ord: 5, effectKey: keyOf(5), send: 1 }, { effect: 'absent', item: 'failed' }),
      }),
  ],
  // requests
  [
    'a pause, and its end',
    20,
    async ({ database: d, planted: p }) => {
      expect(await requestPause(d, stopOf(p))).toBe(true)
      expect(await resume(d, stopOf(p))).toBe(true)
    },
  ],
  [
    'a cancel, its acknowledgement, and what it stopped',
    700,
    async ({ connection: c, database: d, planted: p }) => {
      expect(await requestCancel(d, stopOf(p))).toBe(true)
      await acknowledgeStops(c, [{ ...leaseOf(p), stop: 'cancel' }])
      await explainStopped(d, p.big)
    },
  ],
  [
    'a known idempotency key',
    10,
    async ({ connection: c }) => {
      expect(await readByIdempotencyKey(c, TENANT, 'key:77')).not.toBeNull()
    },
  ],
  ['whether an operation exists', 10, ({ connection: c, planted: p }) => operationExists(c, TENANT, p.big.operationId)],
  ['the newest operations', 150, ({ connection: c }) => listOperationIds(c, TENANT, NO_OPERATION_FILTER, null, 100)],
  [
    'a further page of operations',
    150,
    ({ connection: c, planted: p }) =>
      listOperationIds(
        c,
        TENANT,
        { ...NO_OPERATION_FILTER, type: 'grant' },
        { createdAt: p.halfway, id: randomUUID() },
        100,
      ),
  ],
  [
    'the replays of an operation',
    10,
    ({ connection: c, planted: p }) =>
      listOperationIds(c, TENANT, { ...NO_OPERATION_FILTER, replayOf: p.big.operationId }, null, 100),
  ],
  [
    'operations with a rare label',
    100,
    ({ connection: c }) => listOperationIds(c, TENANT, { ...NO_OPERATION_FILTER, labels: { batch: 'b1' } }, null, 100),
  ],
  [
    'a page of items',
    150,
    ({ connection: c, planted: p }) =>
      listItemRows(c, TENANT, p.big.operationId, { state: [], failureClass: [], key: null }, 2 * QUARTER, 100),
  ],
  [
    'an item by its key',
    10,
    ({ connection: c, planted: p }) =>
      listItemRows(c, TENANT, p.big.operationId, { state: [], failureClass: [], key: 'i777' }, null, 100),
  ],
  [
    'items in doubt',
    1_500,
    ({ connection: c, planted: p }) =>
      listItemRows(c, TENANT, p.big.operationId, { state: ['uncertain'], failureClass: [], key: null }, null, 100),
  ],
  [
    'a page of the ledger',
    150,
    ({ connection: c, planted: p }) => listLedgerRows(c, TENANT, p.big.operationId, { ord: 2 * QUARTER, seq: 0 }, 100),
  ],
  [
    'a part of an export',
    1_100,
    async ({ connection: c, planted: p }) => {
      await readExtent(c, TENANT, p.big.operationId)
      const bounds = { fromOrd: 2 * QUARTER, toOrd: 3 * QUARTER, period: ANY_TIME, after: null }
      expect(await readEntries(c, p.big, bounds, 1_000)).toHaveLength(1_000)
    },
  ],
  [
    'events and checkpoints',
    50,
    async ({ connection: c, planted: p }) => {
      await listEventRows(c, TENANT, p.big.operationId, null, 100)
      await listCheckpointRows(c, TENANT, p.big.operationId, null, 100)
    },
  ],
  [
    'the history of an item, and the dead letters of its operation',
    120,
    async ({ connection: c, planted: p }) => {
      const key = { ...p.big, itemKey: 'i777' }
      expect(await findItemPlace(c, key)).toBe('found')
      expect(await listHistoryRows(c, key, null, 100)).toHaveLength(2)
    },
  ],
  [
    'open cases',
    400,
    ({ connection: c }) => listCaseRows(c, TENANT, { ...NO_CASE_FILTER, status: ['open'] }, null, 100),
  ],
  [
    'cases of an operation',
    150,
    ({ connection: c, planted: p }) =>
      listCaseRows(c, TENANT, { ...NO_CASE_FILTER, operationId: p.big.operationId }, null, 100),
  ],
  [
    'a case',
    10,
    async (at) => {
      const { id } = await aCase(at)
      await findCaseRow(at.connection, TENANT, id)
      expect(await readCase(at.connection, TENANT, id)).not.toBeNull()
    },
  ],
  [
    'open dead letters',
    300,
    ({ connection: c }) => listDeadLetterRows(c, TENANT, { ...NO_LETTER_FILTER, status: ['open'] }, null, 100),
  ],
  [
    'dead letters of an operation',
    300,
    ({ connection: c, planted: p }) =>
      listDeadLetterRows(c, TENANT, { ...NO_LETTER_FILTER, operationId: p.big.operationId }, null, 100),
  ],
  ['a dead letter', 10, async (at) => findDeadLetterRow(at.connection, TENANT, (await aLetter(at)).id)],
  [
    'an upload, up to its end',
    300,
    async ({ connection: c, database: d, planted: p }) => {
      const key = { ...p.draft, id: randomUUID() }
      const begun = await beginUpload(d, { ...key, idempotencyKey: 'u', ifMatchVersion: null, requestedBy: 'tester' })
      expect(begun.kind).toBe('begun')
      const upload = { ...key, fromOrd: 0 }
      expect(await storeChunk(c, upload, 0, CHUNK_TEXTS)).toEqual({ stored: CHUNK_TEXTS.count })
      expect(await readTakenKeys(c, upload, 0, CHUNK_TEXTS, 10)).toEqual([])
      expect(await renewUpload(c, upload)).toBe(true)
      expect(await readTailEnd(c, upload)).toBe(CHUNK_TEXTS.count - 1)
      expect(
        await finishUpload(d, { ...upload, added: CHUNK_TEXTS.count, requestHash: 'h', actor: 'tester' }),
      ).not.toBeNull()
      await readDraft(c, TENANT, p.draft.operationId)
      const closing = { itemsTotal: CHUNK_TEXTS.count, actor: 'tester', reason: null, shardEnds: [100], steps: [] }
      expect(await closeDraft(d, { ...p.draft, ...closing })).toBe(true)
    },
  ],
  [
    'a callback, up to its judgement',
    50,
    async ({ connection: c, database: d, planted: p }) => {
      const event = { type: 'grant', eventId: 'new', bodyHash: 'h' }
      const [target] = await findCallbackTargets(c, { type: 'grant', effectKey: keyOf(DOUBTFUL.ord), tenantId: null })
      if (!target) throw new Error('no effect has the key')
      const statement = { state: 'absent', effectKey: keyOf(DOUBTFUL.ord) } as const
      expect(await insertCallback(c, { ...event, statement, target })).toBe(true)
      expect(await readCallback(c, event)).not.toBeNull()
      expect(await readCallbackStanding(c, target, statement.effectKey, 'event:new')).not.toBeNull()
      const said = { effectKey: statement.effectKey, effectRef: null, evidenceRef: 'event:new', actor: 'provider' }
      await noteAbsence(d, { ...target, ...p.big }, { ...said, codeVersion: 'c1' })
      await keepOutcome(c, event, { outcome: 'noted', caseId: null, dueInMs: 0 })
    },
  ],
  // ticks
  [
    'callbacks that wait',
    200,
    ({ connection: c }) => takePendingCallbacks(c, { types: ['grant'], limit: 64, holdMs: 1_000 }),
  ],
  ['old callbacks', 10, ({ connection: c }) => forgetOldCallbacks(c)],
  ['the first claim of an operation', 10, ({ connection: c, planted: p }) => markStarted(c, TENANT, p.pending)],
  ['passed deadlines', 100, ({ connection: c }) => readPassedDeadlines(c, 100)],
  ['operations with stop conditions', 1_000, ({ connection: c }) => readArmedOperations(c, FIRST_OPERATION, 100)],
  [
    'a lookup, and the resend after it',
    20,
    async (at) => {
      const { connection: c, database: d, planted: p } = at
      const { id: caseId } = await aCase(at)
      await scheduleLookup(c, { tenantId: TENANT, caseId, nextInMs: 1_000, answer: 'unknown' })
      const send = {
        ...DOUBTFUL,
        itemKey: 'i',
        step: '',
        effectKey: keyOf(DOUBTFUL.ord),
        send: 1,
        attempt: 1,
        lookups: 1,
      }
      const rest = { input: undefined, cancelled: false, compensating: false, sinceSendByMs: 0, sinceStartMs: 0 }
      expect(await queueResend(d, { ...p.big, caseId, type: 'grant', ...send, ...rest })).toBe(true)
    },
  ],
  [
    'doubts of a shard',
    1_000,
    ({ database: d, planted: p }) => closeExplainedDoubts(d, { ...p.big, shard: 2, ords: range(2 * QUARTER, 100) }),
  ],
  [
    'an upload that nobody goes on with',
    50,
    async ({ connection: c, planted: p }) => {
      expect(await takeStaleUpload(c)).toBeNull()
      await deleteTailSlice(c, { ...p.draft, id: randomUUID(), fromOrd: 0 }, 'abandoned', 0, 10_000)
    },
  ],
  ['the gauges of all tenants', 3_000, ({ connection: c }) => readGauges(c, null)],
  ['the gauges of a tenant', 3_000, ({ connection: c }) => readGauges(c, TENANT)],
  ['the gauges of a tenant that has nothing', 0, ({ connection: c }) => readGauges(c, TENANT + 1)],
  [
    'what no worker goes on with',
    400,
    async ({ connection: c }) => {
      expect(await readOpenCheckpoints(c, FIRST_CHECKPOINT, 100, 60_000)).toHaveLength(100)
      await readRunners(c, 60_000)
    },
  ],
  [
    'what housekeeping forgets',
    10,
    async ({ connection: c }) => {
      for (const forget of [forgetGoneWorkers, forgetOldMinutes, forgetOldDryRuns, forgetUnusedPreflights])
        await forget(c)
    },
  ],
  // retention
  [
    'chains that are old enough',
    150,
    async ({ connection: c }) => {
      const asked = { type: 'grant', olderThanDays: 0, after: null, limit: 100 }
      expect(await readAgedChains(c, { ...asked, stage: 'items' })).toHaveLength(100)
      expect(await readAgedChains(c, { ...asked, stage: 'ledger' })).toEqual([])
    },
  ],
  ['what is marked as purged', 10, ({ connection: c }) => readMarked(c, 20)],
  [
    'the mark of a chain, which looks at what is special in it',
    1_000,
    async (at) => {
      await endBig(at)
      const { big } = at.planted
      expect(await markChain(at.database, big, 'items', goes)).toEqual([big.operationId])
      await at.connection
        .sql`update operations set purge_open = false where tenant_id = ${TENANT} and id = ${big.operationId}::uuid`
      expect(await markChain(at.database, big, 'ledger', goes)).toEqual([big.operationId])
    },
  ],
  [
    'the deletion of items, batch by batch',
    4 * PURGED,
    async (at) => {
      await endBig(at)
      const { big } = at.planted
      expect(await markChain(at.database, big, 'items', goes)).not.toBeNull()
      for (let batches = 0; batches < 3; batches++) {
        const batch = await purgeRows(at.database, big, PURGED)
        expect(batch).toMatchObject({ stage: 'items', done: false })
        expect(batch?.rows).toBeLessThanOrEqual(2 * PURGED)
      }
    },
  ],
  [
    'the deletion of a ledger, batch by batch',
    // cases of the operation that are open stay, and are passed over
    5 * PURGED,
    async (at) => {
      await endBig(at)
      const { big } = at.planted
      await at.connection.sql`
        update operations set items_purged_at = now(), ledger_purged_at = now(), purge_open = true
        where tenant_id = ${TENANT} and id = ${big.operationId}::uuid`
      for (let batches = 0; batches < 4; batches++) {
        const batch = await purgeRows(at.database, big, PURGED)
        expect(batch).toMatchObject({ stage: 'ledger', done: false })
        expect(batch?.rows).toBeLessThanOrEqual(3 * PURGED)
      }
    },
  ],
])('%s looks at no more than %i rows of a big table, of one tenant', async (name, rowsMax, work) => {
  const read = (kind: PlanKind) => readsOf(database, (reader) => work({ ...reader, planted }), kind)
  const statements = await read('custom')
  expect(statements).not.toEqual([])
  const isOverAll = statements.some(({ text }) => unheldTables(text, TENANT_TABLES).length > 0)
  expect(isOverAll, statements.map(({ text }) => text).join('\n')).toBe(OVER_ALL_TENANTS.has(name))
  for (const { rows, whole, plan } of statements) {
    const tooMany = [...rows].filter(([table, count]) => planted.bigTables.has(table) && count > rowsMax)
    expect(tooMany, plan).toEqual([])
    expect(
      [...whole].filter((table) => planted.bigTables.has(table)),
      plan,
    ).toEqual([])
  }
  // a prepared one's plan for any parameters is bounded too, or so dear that it is not taken
  const generics = await read('generic')
  expect(generics.map(({ text }) => text)).toEqual(statements.map(({ text }) => text))
  for (const [index, generic] of generics.entries()) {
    if (!generic.prepared || generic.cost > (statements[index]?.cost ?? Number.NaN) + PLANNING_COST_MAX) continue
    const tooMany = [...generic.rows].filter(([table, count]) => planted.bigTables.has(table) && count > rowsMax)
    expect(tooMany, `${generic.text}\n${generic.plan}`).toEqual([])
  }
})
