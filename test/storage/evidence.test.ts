import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { reconciler } from '../../src/maintenance/reconciler.ts'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { resolveCase } from '../../src/services/resolve-case.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { closeExplainedDoubts, readExplainedDoubts } from '../../src/storage/lookups.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { findCaseRow } from '../../src/storage/reconciliation.ts'
import { claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards } from '../../src/storage/run/claim-shards.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import type { ClaimedShard } from '../../src/storage/run/lease.ts'
import { readDueRetries } from '../../src/storage/run/window.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedTypes } from '../support/planted-operation.ts'
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
  database = openDatabase({ url: testDatabase.url, size: 6, name: 'evidence' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const key = { ord: 0, effectKey: 'key' }
const applied = { effect: 'applied', item: 'applied', effectRef: 'ref' } as const
const uncertain = { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' } as const
const busy = { effect: 'absent', item: 'failed', failureClass: 'transient' } as const
const busyAgain = { ...busy, retry: { afterMs: 0, reason: 'failed' } } as const

/** An operation with one item, `key`, whose first send is in flight. */
const inFlight = async (): Promise<ClaimedShard> => {
  await storeOperation(database, { items: items(1, () => 'key') })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 1)
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

const claimRetry = async (lease: ClaimedShard) => {
  const ords = await database.query((connection) => readDueRetries(connection, lease, 10))
  return claimRetries(database, lease, ords, { sendByMs: 1_000, resendWithinMs: 3_600_000 })
}

const end = async (lease: ClaimedShard) => {
  await finishShard(database, lease)
  return settleOperation({ database, wakeUps: NO_WAKE_UPS }, TENANT, lease.operationId)
}

const cases = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{
      id: string
      cause: string
      resolution: string | null
      source: string | null
      note: string | null
    }>`
      select id, cause, resolution, resolution_source as source, note from reconciliation_cases
      where operation_id = ${operationId}::uuid order by opened_at, id`,
  )
const entries = (operationId: string) =>
  database.query(
    ({ sql }) => sql<{ state: string | null; source: string; reason_code: string | null }>`
      select state, source, reason_code from ledger_entries where operation_id = ${operationId}::uuid order by seq`,
  )
const state = async (operationId: string) => {
  const [found] = await database.query((connection) =>
    readOperationStates(connection, [{ tenantId: TENANT, id: operationId }]),
  )
  if (!found) throw new Error('there is no such operation')
  return found
}
const queueResend = (lease: ClaimedShard) =>
  database.query(
    ({ sql }) => sql`
      with r as (
        insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason, prior_state)
        values (1, ${lease.operationId}::uuid, 0, 0, 'key', 2, 'idempotent_resend', 'uncertain') returning 1)
      update operation_shards set waiting = waiting + 1 where operation_id = ${lease.operationId}::uuid`,
  )
const resolve = (id: string, resolution: 'applied' | 'not_applied', retry = false, send?: number) =>
  resolveCase(
    { database, wakeUps: NO_WAKE_UPS, types: plantedTypes() },
    { tenantId: TENANT, name: 'operator', scopes: [] },
    id,
    { resolution, evidenceRef: 'seen', effectRef: null, note: null, retry, send },
  )

test('what a worker saw before it lost its lease is kept, as evidence of a late worker', async () => {
  const zombie = await inFlight()
  const lease = await takeOver(zombie)
  const converged = await tell(database, zombie, key, applied)
  expect(converged).toMatchObject({ mine: false, moved: new Set([0]) })
  expect(await entries(lease.operationId)).toMatchObject([{ state: 'applied', source: 'late_worker' }])
  expect(await readShard(database, lease)).toMatchObject({ lease_epoch: 2, state: 'leased', in_flight: 0, applied: 1 })
  expect(await end(lease)).toBe('succeeded')
})

test('a takeover calls what was in flight uncertain, and the late answer closes the case', async () => {
  const zombie = await inFlight()
  const lease = await takeOver(zombie)
  await tell(database, lease, key, { ...uncertain, reasonCode: 'WORKER_LOST' }, 'recovery')
  expect(await cases(lease.operationId)).toMatchObject([{ cause: 'worker_lost', resolution: null }])
  expect(await end(lease)).toBe('reconciliation_required')
  await tell(database, zombie, key, applied)
  expect(await cases(lease.operationId)).toMatchObject([{ resolution: 'applied', source: 'worker' }])
  expect(await entries(lease.operationId)).toMatchObject([
    { state: 'uncertain', source: 'recovery' },
    { state: 'applied', source: 'late_worker' },
  ])
  expect((await state(lease.operationId)).status).toBe('succeeded')
})

test('the same evidence twice moves nothing and writes nothing', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, applied)
  const before = await readShard(database, lease)
  expect((await tell(database, lease, key, applied)).moved.size).toBe(0)
  expect(await readShard(database, lease)).toEqual(before)
})

test('two reports on one send at once: the first moves it, the second changes nothing', async () => {
  const lease = await inFlight()
  const [first, second] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () => tell(database, lease, key, applied),
    () => tell(database, lease, key, applied, 'lookup'),
  )
  expect([first.moved.size, second.moved.size]).toEqual([1, 0])
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, applied: 1, entries: 1 })
  expect(await cases(lease.operationId)).toEqual([])
})

test('positive evidence after the final state moves counters and version, and leaves the status', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, busy)
  expect(await end(lease)).toBe('failed')
  const before = await state(lease.operationId)
  expect(before).toMatchObject({ status: 'failed', failed: 1, failedTransient: 1, applied: 0 })
  await tell(database, lease, key, applied)
  const after = await state(lease.operationId)
  expect(after).toMatchObject({
    status: 'failed',
    failed: 0,
    failedTransient: 0,
    applied: 1,
    completedAt: before.completedAt,
  })
  expect(after.version).toBeGreaterThan(before.version)
  expect(await findViolations(database)).toEqual([])
})

test('a contradiction is written down, opens a case and overwrites nothing', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, applied)
  const before = await readShard(database, lease)
  await tell(database, lease, key, busy, 'lookup')
  const found = await cases(lease.operationId)
  expect(found).toMatchObject([{ cause: 'contradiction', resolution: null }])
  expect(await entries(lease.operationId)).toMatchObject([
    { state: 'applied' },
    { state: null, source: 'lookup', reason_code: 'CONTRADICTS_EARLIER_EVIDENCE' },
  ])
  expect(await readShard(database, lease)).toMatchObject({ applied: 1, failed: 0, entries: before.entries + 1 })
  expect(await end(lease)).toBe('succeeded')
  await resolve(found[0]?.id ?? '', 'applied')
  expect(await findViolations(database)).toEqual([])
})

/** The first send was called absent and the second is in flight when the first turns out to be applied. */
const duplicateSuspected = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, busyAgain)
  expect(await claimRetry(lease)).toMatchObject([{ send: 2, attempt: 2 }])
  await tell(database, lease, key, applied)
  return lease
}

test('evidence for an older send is written down and opens a case, and the newer send decides', async () => {
  const lease = await duplicateSuspected()
  expect(await cases(lease.operationId)).toMatchObject([{ cause: 'duplicate_suspected', resolution: null }])
  expect((await entries(lease.operationId)).at(-1)).toMatchObject({
    state: null,
    reason_code: 'EVIDENCE_FOR_EARLIER_SEND',
  })
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 1, intents: 1, failed: 1, applied: 0 })
  await tell(database, lease, { ...key, send: 2 }, applied)
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, failed: 0, applied: 1 })
  expect(await end(lease)).toBe('succeeded')
})

test('a send in doubt has a case that closes with it, also where a duplicate was suspected before', async () => {
  const lease = await duplicateSuspected()
  await tell(database, lease, { ...key, send: 2 }, uncertain)
  expect(await findViolations(database)).toEqual([])
  expect(await end(lease)).toBe('reconciliation_required')
  const open = (await cases(lease.operationId)).filter((one) => one.resolution === null)
  expect(open).toHaveLength(1)
  expect(open[0]?.note).toContain('duplicate_suspected')
  await resolve(open[0]?.id ?? '', 'applied')
  expect(await state(lease.operationId)).toMatchObject({ status: 'succeeded', uncertain: 0, applied: 1 })
})

test('a duplicate that is suspected while the item is in doubt stays with the open case', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, busyAgain)
  await claimRetry(lease)
  await tell(database, lease, { ...key, send: 2 }, uncertain)
  await tell(database, lease, key, applied)
  const found = await cases(lease.operationId)
  expect(found).toMatchObject([{ cause: 'send_outcome_unknown', resolution: null }])
  expect(found[0]?.note).toContain('duplicate_suspected')
})

test('a case that comes to hold its item back while it is being resolved stays open', async () => {
  const lease = await duplicateSuspected()
  const [found] = await cases(lease.operationId)
  const held = await holdShard(testDatabase.url, lease)
  await held.sql`update reconciliation_cases set cause = 'send_outcome_unknown' where id = ${found?.id ?? ''}`
  const [refused] = await raceBehind(database, held, () =>
    resolve(found?.id ?? '', 'applied').catch((error: unknown) => error),
  )
  expect(refused).toMatchObject({ code: 'resend-in-progress' })
  expect(await cases(lease.operationId)).toMatchObject([{ cause: 'send_outcome_unknown', resolution: null }])
})

test('two people who resolve one case at once: one decides, the other is told the outcome', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  const [found] = await cases(lease.operationId)
  const [first, second] = await raceBehind(
    database,
    await holdShard(testDatabase.url, lease),
    () => resolve(found?.id ?? '', 'applied'),
    () => resolve(found?.id ?? '', 'not_applied', true).catch((error: unknown) => error),
  )
  expect(first).toBeUndefined()
  expect(second).toMatchObject({ code: 'case-already-resolved', extra: { resolution: 'applied' } })
  expect(await readShard(database, lease)).toMatchObject({
    applied: 1,
    failed: 0,
    uncertain: 0,
    waiting: 0,
    entries: 2,
  })
})

test('nobody resolves a case while its effect is being sent again: it is still open, and can be resolved afterwards', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  const [found] = await cases(lease.operationId)
  await database.query(({ sql }) => sql`update effects set state = 'intent', send = 2, was = 'uncertain'`)
  await database.query(({ sql }) => sql`update operation_shards set in_flight = 1`)
  const refusal = await resolve(found?.id ?? '', 'applied').catch((error: unknown) => error)
  expect(refusal).toMatchObject({ code: 'resend-in-progress' })
  expect(await cases(lease.operationId)).toMatchObject([{ resolution: null }])
  await tell(database, lease, { ...key, send: 2 }, { effect: 'uncertain', item: null })
  await resolve(found?.id ?? '', 'applied')
  expect(await cases(lease.operationId)).toMatchObject([{ resolution: 'applied' }])
})

/** Two operations want `key`; the first one's send is in doubt, and so is the second one's item. */
const doubtElsewhere = async () => {
  const owner = await inFlight()
  await storeOperation(database, { items: items(1, () => 'key') })
  const other = await claimOne(database)
  await claimWindow(database, other, 0, 1)
  await tell(database, owner, key, uncertain)
  expect(await claimRetry(other)).toEqual([])
  expect(await explainKnownKeys(database, other, [0], 'c1')).toBe(1)
  expect(await cases(other.operationId)).toMatchObject([{ cause: 'in_doubt_elsewhere', resolution: null }])
  expect(await readShard(database, other)).toMatchObject({ uncertain: 1, waiting: 0, retries: 0 })
  return { owner, other }
}
/** All that maintenance does about them; a case of `broken` cannot be changed. */
const reconcileAround = async (broken: string): Promise<string[]> => {
  const logged: string[] = []
  const log = pino({ base: null }, { write: (line) => logged.push(JSON.parse(line).operation) })
  await database.transaction(({ script }) =>
    script(`create function refuse_broken() returns trigger language plpgsql as $$
        begin raise exception 'broken on purpose'; end $$;
      create trigger refuse_broken before update on reconciliation_cases for each row
        when (new.operation_id = '${broken}') execute function refuse_broken()`),
  )
  await reconciler({ database, wakeUps: NO_WAKE_UPS, types: plantedTypes() }, log).runOnce()
  await database.transaction(({ script }) => script('drop function refuse_broken cascade'))
  return logged
}

test('a doubt that cannot be closed keeps no other one open', async () => {
  const { owner, other } = await doubtElsewhere()
  await storeOperation(database, { items: items(1, () => 'key') })
  const third = await claimOne(database)
  await claimWindow(database, third, 0, 1)
  expect(await explainKnownKeys(database, third, [0], 'c1')).toBe(1)
  await tell(database, owner, key, applied, 'lookup')
  expect(await reconcileAround(other.operationId)).toEqual([other.operationId])
  expect(await cases(other.operationId)).toMatchObject([{ resolution: null }])
  expect(await cases(third.operationId)).toMatchObject([{ resolution: 'applied' }])
})

const closeDoubts = async () => {
  const doubts = await database.query((connection) => readExplainedDoubts(connection, 10))
  for (const doubt of doubts) await closeExplainedDoubts(database, doubt)
  return doubts.length
}

test('an item in doubt elsewhere is skipped when that effect turns out to be applied', async () => {
  const { owner, other } = await doubtElsewhere()
  expect(await closeDoubts()).toBe(0)
  await tell(database, owner, key, applied, 'lookup')
  expect(await closeDoubts()).toBe(1)
  expect(await cases(other.operationId)).toMatchObject([{ resolution: 'applied' }])
  expect(await readShard(database, other)).toMatchObject({ uncertain: 0, skipped: 1 })
  expect(await end(other)).toBe('succeeded')
  expect(await findViolations(database)).toEqual([])
})

describe('a person who says what became of an effect in doubt elsewhere', () => {
  const resolutionsTold = () =>
    database.query(
      ({ sql }) => sql`select details ->> 'resolution' as said from audit_entries where action = 'case.resolve'`,
    )
  beforeEach(() =>
    database.query(({ script }) =>
      script(`alter table audit_entries disable trigger audit_append_only; truncate audit_entries;
        alter table audit_entries enable trigger audit_append_only`),
    ),
  )

  test.each([
    ['applied', 'not_applied', applied],
    ['not_applied', 'applied', busy],
  ] as const)(
    'just after it became %s: who says %s is told so, and the audit tells of nothing',
    async (became, said, evidence) => {
      const { owner, other } = await doubtElsewhere()
      const [found] = await cases(other.operationId)
      await tell(database, owner, key, evidence, 'lookup')
      const refusal = await resolve(found?.id ?? '', said).catch((error: unknown) => error)
      expect(refusal).toMatchObject({ code: 'case-already-resolved', extra: { resolution: became } })
      expect(await cases(other.operationId)).toMatchObject([{ resolution: became }])
      expect(await resolutionsTold()).toEqual([])
      expect(await readShard(database, other)).toMatchObject({ uncertain: 0 })
    },
  )

  test.each([
    ['applied', applied],
    ['not_applied', busy],
  ] as const)('just after it became %s: who says the same is told of in the audit', async (said, evidence) => {
    const { owner, other } = await doubtElsewhere()
    const [found] = await cases(other.operationId)
    await tell(database, owner, key, evidence, 'lookup')
    await resolve(found?.id ?? '', said)
    expect(await cases(other.operationId)).toMatchObject([{ resolution: said }])
    expect(await resolutionsTold()).toEqual([{ said }])
  })

  test.each(['applied', 'not_applied'] as const)('while it is in doubt decides it: %s, told of once', async (said) => {
    const { owner, other } = await doubtElsewhere()
    const [found] = await cases(other.operationId)
    await resolve(found?.id ?? '', said)
    for (const { operationId } of [owner, other]) expect(await cases(operationId)).toMatchObject([{ resolution: said }])
    expect(await resolutionsTold()).toEqual([{ said }])
  })
})

test('an item in doubt elsewhere gets its own try, uncharged, when that effect turns out to be absent', async () => {
  const { owner, other } = await doubtElsewhere()
  await tell(database, owner, key, busy, 'lookup')
  expect(await closeDoubts()).toBe(1)
  expect(await readShard(database, other)).toMatchObject({ uncertain: 0, failed: 1, waiting: 1, retries: 1 })
  expect(await claimRetry(other)).toMatchObject([{ send: 2, attempt: 1, resend: false }])
  await tell(database, other, { ...key, send: 2 }, applied)
  expect(await readShard(database, other)).toMatchObject({ failed: 0, applied: 1, waiting: 0 })
  expect(await findViolations(database)).toEqual([])
})

test('an item in doubt elsewhere of a cancelled operation gets no try of its own', async () => {
  const { owner, other } = await doubtElsewhere()
  await requestCancel(database, { tenantId: TENANT, operationId: other.operationId, actor: 'tester', reason: null })
  await tell(database, owner, key, busy, 'lookup')
  await closeDoubts()
  expect(await end(other)).toBe('cancelled')
  expect(await readShard(database, other)).toMatchObject({ state: 'done', failed: 1, uncertain: 0, in_flight: 0 })
})

test('an intent that was never sent goes back uncharged, and is claimed with the next send', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, { effect: 'absent', item: null, retry: { afterMs: 0, reason: 'unsent' } })
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, waiting: 1, failed: 0, entries: 0 })
  expect(await claimRetry(lease)).toMatchObject([{ send: 2, attempt: 1 }])
})

/** `key` is in doubt, and was sent again since its case was opened: of that send nobody knows either. */
const resentSince = async (): Promise<ClaimedShard> => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  await queueResend(lease)
  expect(await claimRetry(lease)).toMatchObject([{ send: 2, attempt: 2, resend: true }])
  return lease
}

test('"not applied" is about the send that the case showed: after a resend it is refused, until the person names that one', async () => {
  const lease = await resentSince()
  const [found] = await cases(lease.operationId)
  const shown = () => database.query((connection) => findCaseRow(connection, TENANT, found?.id ?? ''))
  // what is in flight is nothing that anybody can have evidence of
  expect(await shown()).toMatchObject({ send: 1 })
  expect(await resolve(found?.id ?? '', 'not_applied', true, 2).catch((error: unknown) => error)).toMatchObject({
    code: 'resend-in-progress',
  })
  await tell(database, lease, { ...key, send: 2 }, { ...uncertain, reasonCode: 'RESEND_UNANSWERED' })

  for (const about of [undefined, 1, 3]) {
    const refusal = await resolve(found?.id ?? '', 'not_applied', true, about).catch((error: unknown) => error)
    expect(refusal).toMatchObject({ code: 'case-changed', extra: { send: 2 } })
  }
  expect(await readShard(database, lease)).toMatchObject({ uncertain: 1, failed: 0, waiting: 0 })
  expect(await shown()).toMatchObject({ send: 2, resolution: null })
  await resolve(found?.id ?? '', 'not_applied', true, 2)
  expect(await readShard(database, lease)).toMatchObject({ uncertain: 0, failed: 1, waiting: 1 })
  expect(await shown()).toMatchObject({ resolution: 'not_applied' })
  expect(await findViolations(database)).toEqual([])
})

test('"applied" is about the effect: whichever send it was, it has happened', async () => {
  const lease = await resentSince()
  const [found] = await cases(lease.operationId)
  await tell(database, lease, { ...key, send: 2 }, { ...uncertain, reasonCode: 'RESEND_UNANSWERED' })
  await resolve(found?.id ?? '', 'applied')
  expect(await cases(lease.operationId)).toMatchObject([{ resolution: 'applied' }])
})

test('"not applied" of an effect elsewhere is about the send that the doubt began with, too', async () => {
  const { owner, other } = await doubtElsewhere()
  await queueResend(owner)
  expect(await claimRetry(owner)).toMatchObject([{ send: 2, resend: true }])
  await tell(database, owner, { ...key, send: 2 }, { ...uncertain, reasonCode: 'RESEND_UNANSWERED' })
  const [doubt] = await cases(other.operationId)
  const refusal = await resolve(doubt?.id ?? '', 'not_applied').catch((error: unknown) => error)
  expect(refusal).toMatchObject({ code: 'case-changed', extra: { send: 2 } })
  await resolve(doubt?.id ?? '', 'not_applied', false, 2)
  expect(await cases(other.operationId)).toMatchObject([{ resolution: 'not_applied' }])
})

test('case 41: a resend that is not answered with "applied" leaves the item uncertain', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  await queueResend(lease)
  expect(await claimRetry(lease)).toMatchObject([{ send: 2, attempt: 2, resend: true }])
  await tell(database, lease, { ...key, send: 2 }, { ...uncertain, reasonCode: 'RESEND_UNANSWERED' })
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, uncertain: 1, failed: 0, waiting: 0 })
  expect(await findViolations(database)).toEqual([])
})

test('an unsent resend changes nothing but the send number', async () => {
  const lease = await inFlight()
  await tell(database, lease, key, uncertain)
  await database.query(({ sql }) => sql`update effects set state = 'intent', send = 2, was = 'uncertain'`)
  await database.query(({ sql }) => sql`update operation_shards set in_flight = 1`)
  await tell(database, lease, { ...key, send: 2 }, { effect: 'uncertain', item: null })
  expect(await readShard(database, lease)).toMatchObject({ in_flight: 0, uncertain: 1, entries: 1 })
  expect(await findViolations(database)).toEqual([])
})

test('many reports in one statement: each ends up in its own count', async () => {
  await storeOperation(database, { items: items(5, (ord) => `k${ord}`) })
  const lease = await claimOne(database)
  await claimWindow(database, lease, 0, 5)
  const said = [
    applied,
    uncertain,
    busyAgain,
    { ...busy, failureClass: 'conflict' },
    { ...applied, item: 'skipped' },
  ] as const
  await convergeEvidence({ database, wakeUps: NO_WAKE_UPS }, lease, {
    source: 'worker',
    epoch: lease.epoch,
    workerId: lease.workerId,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: null,
    reports: said.map((one, ord) => report({ ord, effectKey: `k${ord}`, send: 1 }, one)),
  })
  expect(await readShard(database, lease)).toMatchObject({
    in_flight: 0,
    waiting: 1,
    applied: 1,
    uncertain: 1,
    failed: 2,
    skipped: 1,
  })
  expect(await findViolations(database)).toEqual([])
})
