import { drizzle } from 'drizzle-orm/pg-proxy'
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { PURGE_STAGES, type PurgeStage } from '../../src/domain/retention.ts'
import { claimBulkTargets } from '../../src/storage/bulk-targets.ts'
import { readCompensationFacts } from '../../src/storage/compensations.ts'
import type { Connection, Parameter, Sql } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { markAwaited, readDependents, readOverdueDependents } from '../../src/storage/dependencies.ts'
import { readExplainedDoubts, takeDueLookups } from '../../src/storage/lookups.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { listOperationIds, type OperationSearch } from '../../src/storage/operations.ts'
import { purgeRows, readMarked } from '../../src/storage/purge-rows.ts'
import { markChain, readAgedChains } from '../../src/storage/retention.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { claimExpiredShards, claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { lockUndone, markCompensated } from '../../src/storage/run/compensation.ts'
import { renewLeases } from '../../src/storage/run/heartbeat.ts'
import { readDueRetries, readOrphanedIntents, readWindow } from '../../src/storage/run/window.ts'
import { readSettleFacts, readUnsettled, writeStatus } from '../../src/storage/settle.ts'
import { insertSubmissions } from '../../src/storage/submissions.ts'
import { disableSiblings, finishTry, forgetOldDeliveries, takeDueDeliveries } from '../../src/storage/webhook-outbox.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { GRANT, items, submissionOf, TENANT } from '../support/races.ts'

/** Operations, one in twenty still open; each came after the one before it, and one in a hundred still waits. Each has a ready shard and two items; one in thirty is leased, with an intent and a retry. */
const OPERATIONS = 100_000
const BIG_TABLES = [
  'operations',
  'operation_dependencies',
  'operation_shards',
  'operation_items',
  'effects',
  'bulk_action_targets',
  'item_retries',
  'ledger_entries',
  'reconciliation_cases',
  'webhook_deliveries',
  'webhook_attempts',
  'dead_letters',
  'callback_inbox',
]

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'plans', statementMs: 110_000 })
  await database.transaction(async ({ script }) => {
    await script(`
      create temp table ids on commit drop as
        select g, overlay(uuid_v7_floor(now())::text placing lpad(to_hex(g), 12, '0') from 25)::uuid as id
        from generate_series(1, ${OPERATIONS}) g;
      insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, risk, root_id,
          completed_at, after, after_when, after_open)
        select 1, id, 'grant', 1, 'c1', case g % 20 when 0 then 'pending' else 'succeeded' end, 2, 'tester', 'low', id,
          case when g % 20 > 0 then now() end, '["one"]', 'succeeded', g % 100 = 0 from ids;
      insert into operation_dependencies (tenant_id, operation_id, after_id, ended_as)
        select 1, id, lag(id, 1, uuid_v7_floor(now())) over (order by g), case when g % 100 > 0 then 'succeeded' end from ids;
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
        select 1, id, o, case o when 0 then 'i0' else 'unique:' || g end, g || ':' || o, '{}', 'h' from ids, generate_series(0, 1) o;
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state,
          lease_owner, lease_expires_at, lease_epoch, lease_ms, in_flight, waiting)
        select 1, id, 0, 'grant', 1, 0, 2, case g % 30 when 0 then 2 else 0 end, case g % 30 when 0 then 'leased' else 'ready' end,
          case g % 30 when 0 then gen_random_uuid() end, case g % 30 when 0 then now() + g % 7 * interval '1 s' end, 2, 30000,
          case g % 30 when 0 then 1 else 0 end, case g % 30 when 0 then 1 else 0 end from ids;
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, send_by)
        select 1, 'old:' || g, case g % 30 when 0 then 'uncertain' else 'applied' end, 1, id, 0, 0, 1, 1, 'i0', 'h', now() from ids
        union all
        select 1, g || ':0', 'intent', 1, id, 0, 0, 1, 1, 'i0', 'h', now() from ids where g % 30 = 0;
      insert into bulk_actions (tenant_id, id, action, status, filter, reason, rate_per_second, requested_by, requester_scopes,
          request_hash, targets, started_at, done, completed_at)
        select 1, id, 'cancel', case g % 10 when 0 then 'running' else 'finished' end, '{}', 'r', 10, 'tester', '[]', 'h', 1000,
          now(), case g % 10 when 0 then 500 else 1000 end, case g % 10 when 0 then null else now() end from ids where g <= 100;
      insert into bulk_action_targets (tenant_id, bulk_id, ord, operation_id, state, at)
        select 1, id, o, id, case when g % 10 > 0 or o < 500 then 'done' else 'pending' end,
          case when g % 10 > 0 or o < 500 then now() end from ids, generate_series(0, 999) o where g <= 100;
      insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason)
        select 1, id, 1, 0, g || ':1', 1, 'key_known' from ids where g % 30 = 0;
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source,
          code_version)
        select 1, id, 0, 'i0', 1, 'applied', 'old:' || g, 'h', 'worker', 'c1' from ids;
      insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause,
          next_lookup_at, closed_at, resolution)
        select 1, id, 0, 0, 'grant', 'i0', 'old:' || g, 1,
          case g % 100 when 0 then 'in_doubt_elsewhere' else 'send_outcome_unknown' end,
          now() + g * interval '1 s', case when g % 100 > 3 then now() end, case when g % 100 > 3 then 'applied' end from ids;
      insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url, state, next_attempt_at,
          delivered_at)
        select 1, id, 2, 'operation.settled', 'succeeded', '{}', 'https://r' || g % 50 || '.example/',
          case g % 20 when 1 then 'pending' else 'delivered' end, case g % 20 when 1 then now() + g % 100 * interval '1 min' end,
          case g % 20 when 1 then null else now() end from ids where g % 20 > 0;
      insert into webhook_attempts (tenant_id, delivery_id, attempt, status) select 1, id, 1, 204 from webhook_deliveries;
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
        select 1, id, 0, 'grant', 'i0', 'old:' || g, 'transient', 3, 'fp' || g % 100 from ids where g % 3 = 0;
      insert into callback_inbox (type, event_id, body_hash, state, effect_key, tenant_id, operation_id, shard, ord, item_key, send,
          outcome, processed_at)
        select 'grant', g, 'h', 'applied', 'old:' || g, 1, id, 0, 0, 'i0', 1, case when g % 10 > 0 then 'known' end,
          case when g % 10 > 0 then now() end from ids where g % 3 = 0`)
  })
  await database.query(({ script }) => script('analyze'))
}, 120_000)
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

/** The plan of every statement that `work` runs, each for itself and without its effect. */
const plansOf = async (work: (connection: Connection) => Promise<unknown>): Promise<string[]> => {
  const plans: string[] = []
  await database
    .transaction(async ({ sql, script }) => {
      const explaining: Sql = async <T extends object>(
        strings: TemplateStringsArray,
        ...parameters: readonly Parameter[]
      ) => {
        const [first = '', ...rest] = strings
        const rows = await sql<{ 'QUERY PLAN': string }>(
          Object.assign([`explain ${first}`, ...rest], { raw: strings.raw }) as unknown as TemplateStringsArray,
          ...parameters,
        )
        plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
        return [] as T[]
      }
      // what is composed is explained as it is sent; its parameters are numbered in order
      const db = drizzle(async (text, parameters) => {
        const strings = text.split(/\$\d+/)
        await explaining(
          Object.assign([...strings], { raw: strings }) as unknown as TemplateStringsArray,
          ...parameters,
        )
        return { rows: [] }
      })
      await work({ sql: explaining, script, db } as unknown as Connection).catch(() => {}) // it finds no row in the plan
      throw new Error('rolled back')
    })
    .catch((error: Error) => {
      if (error.message !== 'rolled back') throw error
    })
  return plans
}

/** The big tables that a plan reads from end to end. */
const readWhole = (plan: string): string[] =>
  [...plan.matchAll(/Seq Scan on (\w+)/g)]
    .map(([, table = '']) => table.replace(/_\d{6}$|_default$/, ''))
    .filter((table) => BIG_TABLES.includes(table))

const search = (change: Partial<OperationSearch>): OperationSearch => ({
  ...{ status: [], type: null, requestedBy: null, labels: {}, createdAfter: null, createdBefore: null, replayOf: null },
  ...{ itemKey: null, effectKey: null },
  ...change,
})

/** A take of webhooks as far as its statements, each of which finds nothing in a plan. */
const takeWebhooks = (connection: Connection) => {
  const sql = async <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) =>
    strings.join('').includes('pg_try_advisory_xact_lock')
      ? ([{ held: true }] as unknown as T[])
      : connection.sql<T>(strings, ...parameters)
  const isDue = async () => true
  const taking = { query: isDue, transaction: (work: (c: unknown) => unknown) => work({ sql }) } as unknown as Database
  return takeDueDeliveries(taking, { limit: 32, perOrigin: 4, afterOrigin: '', holdMs: 1_000, triesMax: 10 })
}
const webhook = { tenantId: TENANT, id: uuidv7() }

/** A transaction whose statements are explained, and answer with these rows where they contain a text. */
const answering = (connection: Connection, answers: Readonly<Record<string, object>>): Database => {
  const sql = async <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) => {
    await connection.sql<T>(strings, ...parameters)
    const text = strings.join('')
    const [, row] = Object.entries(answers).find(([part]) => text.includes(part)) ?? []
    return (row === undefined ? [] : [row]) as unknown as T[]
  }
  return { transaction: (work: (c: unknown) => unknown) => work({ sql }) } as unknown as Database
}
const chain = { tenantId: TENANT, operationId: uuidv7() }
const markIt = (connection: Connection, stage: PurgeStage) =>
  markChain(
    answering(connection, {
      'select id from operations': { id: chain.operationId },
      'from locked': { n: 1 },
      purging: { operations: 1, shards: 1, isNext: true },
    }),
    chain,
    stage,
    () => ({ goes: true, reason: '' }),
  )
const purgeIt = (connection: Connection, stage: PurgeStage) =>
  purgeRows(
    answering(connection, {
      'and purge_open': { type: 'grant', rootId: chain.operationId, stage },
      'select id from operations': { id: chain.operationId },
      'delete from ledger_entries': { effect_key: `grant:${formatId('op', chain.operationId)}:i0` },
    }),
    chain,
  )
/** Statements of each: fewer, and the plan test would look at a part of them only. */
const STATEMENTS = { mark: 4, items: 4, ledger: 8 }

const shard = { tenantId: TENANT, operationId: uuidv7(), shard: 0, workerId: crypto.randomUUID(), epoch: 2, steps: [] }
const worker = { workerId: shard.workerId, types: [GRANT] }
const undone = Array.from({ length: 100 }, (_, index) => ({
  effectKey: `old:${index}`,
  step: '',
  send: 1,
  compensationKey: `compensate:1:old:${index}`,
}))
const evidence = { source: 'worker', epoch: 2, workerId: shard.workerId, actor: null, codeVersion: 'c1' } as const

test.each<[string, (connection: Connection) => Promise<unknown>]>([
  ['the claim of a ready shard', (c) => claimReadyShards(c, { ...worker, limit: 4, perTenant: 4, afterTenant: 0 })],
  ['the claim of a lease that ran out', (c) => claimExpiredShards(c, { ...worker, limit: 4 })],
  ['the claim of a window', (c) => claimIntents(c, shard, { from: 0, to: 1, sendByMs: 1_000 })],
  ['the heartbeat', (c) => renewLeases(c, shard.workerId, [shard])],
  ['the window', (c) => readWindow(c, shard, 0, 500)],
  ['due retries', (c) => readDueRetries(c, shard, 100)],
  ['the recovery of intents', (c) => readOrphanedIntents(c, shard, 500)],
  [
    'a poll by ids',
    (c) =>
      readOperationStates(
        c,
        [1, 2, 3].map(() => ({ tenantId: TENANT, id: uuidv7() })),
      ),
  ],
  ['the list of operations', (c) => listOperationIds(c, TENANT, search({}), null, 51)],
  ['the search by an item key', (c) => listOperationIds(c, TENANT, search({ itemKey: 'unique:7' }), null, 51)],
  ['the search by an effect key', (c) => listOperationIds(c, TENANT, search({ effectKey: 'old:7' }), null, 51)],
  ['settle', (c) => readSettleFacts(c, TENANT, shard.operationId)],
  ['due lookups', (c) => takeDueLookups(c, { types: ['grant'], limit: 64, holdMs: 1_000, only: null })],
  [
    'the lookup of one case',
    (c) =>
      takeDueLookups(c, { types: ['grant'], limit: 1, holdMs: 1_000, only: { tenantId: TENANT, caseId: uuidv7() } }),
  ],
  ['doubts that are explained', (c) => readExplainedDoubts(c, 64)],
  ['the lock of what a batch takes back', (c) => lockUndone(c.sql, TENANT, undone)],
  ['the facts of a compensation', (c) => readCompensationFacts(c, { ...shard }, { itemKeys: null })],
  ['the settle sweep', (c) => readUnsettled(c, 100)],
  [
    'the write of a status, with its webhook',
    (c) =>
      writeStatus(c, {
        ...{ tenantId: TENANT, operationId: shard.operationId, seenVersion: '1' },
        ...{ status: 'succeeded', final: true, summary: null },
      }),
  ],
  ['the take of webhooks', takeWebhooks],
  [
    'the end of a try',
    (c) =>
      finishTry(c, {
        ...webhook,
        attempt: 1,
        status: 204,
        error: null,
        durationMs: 1,
        state: 'delivered',
        delayMs: null,
      }),
  ],
  ['the end of a receiver', (c) => disableSiblings(c, webhook)],
  ['the forgetting of webhooks', forgetOldDeliveries],
  ['the claim of targets of a bulk action', claimBulkTargets],
  ['a submission', (c) => insertSubmissions(c, [submissionOf({ items: items(2) })])],
  ['the mark of what is waited for', (c) => markAwaited(c, TENANT, [uuidv7(), uuidv7()])],
  ['what waits for an operation', (c) => readDependents(c, TENANT, uuidv7(), 32)],
  ['the sweep of what waits', (c) => readOverdueDependents(c, 100)],
  ['what is marked as purged', (c) => readMarked(c, 20)],
  ...PURGE_STAGES.map((stage): [string, (connection: Connection) => Promise<unknown>] => [
    `chains of some age: ${stage}`,
    (c) =>
      readAgedChains(c, {
        ...{ stage, type: 'grant', olderThanDays: 30, limit: 100 },
        after: { ...chain, endedAt: '2020-01-01 00:00:00+00' },
      }),
  ]),
])('%s reads no big table from end to end', async (_, work) => {
  const plans = await plansOf(work)
  expect(plans).not.toEqual([])
  for (const plan of plans) expect(readWhole(plan), plan).toEqual([])
})

test.each<[string, number, (connection: Connection) => Promise<unknown>]>([
  ['the mark of items', STATEMENTS.mark, (c) => markIt(c, 'items')],
  ['the mark of a ledger', STATEMENTS.mark, (c) => markIt(c, 'ledger')],
  ['the deletion of items', STATEMENTS.items, (c) => purgeIt(c, 'items')],
  ['the deletion of a ledger', STATEMENTS.ledger, (c) => purgeIt(c, 'ledger')],
])('retention: %s reads no big table from end to end', async (_, statements, work) => {
  const plans = await plansOf(work)
  expect(plans).toHaveLength(statements)
  for (const plan of plans) expect(readWhole(plan), plan).toEqual([])
})

test.each(['', 'ship'])(
  'the marking of what is compensated (last step "%s") reads nothing from end to end but months without an entry',
  async (step) => {
    const marks = undone.map((undoing) => ({ ...undoing, step }))
    const plans = await plansOf((c) => markCompensated(c.sql, shard, marks, evidence))
    expect(plans).not.toEqual([])
    const isEmpty = (table: string): boolean => table === 'ledger_entries'
    for (const plan of plans) {
      expect(
        readWhole(plan).filter((table) => !isEmpty(table)),
        plan,
      ).toEqual([])
      // the month that has entries is probed, once for each effect
      expect(plan).toMatch(/Index Scan Backward using ledger_entries_\d{6}_pkey/)
    }
  },
)
