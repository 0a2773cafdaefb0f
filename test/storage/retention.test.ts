/** What retention takes of a chain of operations, what it leaves, and what keeps it from taking anything. */
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { compensationKey } from '../../src/domain/compensation.ts'
import { formatId } from '../../src/domain/ids.ts'
import { isFinal, OPERATION_STATUSES } from '../../src/domain/operation.ts'
import { type ChainFacts, keptBecause, PURGE_STAGES, type PurgeStage } from '../../src/domain/retention.ts'
import { texts } from '../../src/storage/array-literal.ts'
import type { Connection } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { purgeRows, readMarked } from '../../src/storage/purge-rows.ts'
import { markChain, readAgedChains } from '../../src/storage/retention.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type PlantedItem, plantEffects, plantOperation } from '../support/planted-operation.ts'
import { wipe } from '../support/races.ts'
import { age, purgeMarked } from '../support/retention.ts'

const POLICY = { itemsDays: 30, ledgerDays: 90 }
const OLD_DAYS = 4_000

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'retention' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const query = <T>(work: (connection: Connection) => Promise<T>): Promise<T> => database.query(work)
const script = (text: string) => query((connection) => connection.script(text))

const ITEMS: PlantedItem[] = [
  { key: 'a', entries: [{ state: 'failed', failureClass: 'transient' }, { state: 'applied' }] },
  { key: 's', entries: [{ state: 'skipped' }] },
  { key: 'f', entries: [{ state: 'failed', failureClass: 'conflict' }] },
]
type Planted = Partial<Parameters<typeof plantOperation>[1]>
const boundKey = ({ id, key }: { id: string; key: string }): string => `grant:${formatId('op', id)}:${key}`
const plant = async (planted: Planted = {}): Promise<string> => {
  const id = await plantOperation(database, {
    type: 'grant',
    status: 'partially_succeeded',
    items: ITEMS,
    effectKey: boundKey,
    ...planted,
  })
  await plantEffects(database, id)
  return id
}
/** An old one. */
const plantOld = async (planted: Planted = {}): Promise<string> => {
  const id = await plant(planted)
  await age(database, [id], OLD_DAYS)
  return id
}

const mark = (id: string, stage: PurgeStage): Promise<string[] | null> =>
  markChain(database, { tenantId: 1, operationId: id }, stage, (facts) => ({
    goes: keptBecause(stage, facts, POLICY).length === 0,
    reason: 'old',
  }))
const purge = async (id: string, stage: PurgeStage): Promise<boolean> => {
  const marked = await mark(id, stage)
  await purgeMarked(database)
  return marked !== null
}
const factsOf = async (id: string, stage: PurgeStage = 'items'): Promise<ChainFacts> => {
  let found: ChainFacts | undefined
  await markChain(database, { tenantId: 1, operationId: id }, stage, (facts) => {
    found = facts
    return { goes: false, reason: '' }
  })
  if (!found) throw new Error('nobody was asked')
  return found
}

/** Rows of these operations in each table. */
const rowsOf = async (ids: readonly string[]): Promise<Record<string, number>> => {
  const [row] = await query(
    ({ sql }) => sql<Record<string, number>>`
      with id as (select unnest(${texts(ids)}::uuid[]) as id)
      select (select count(*)::int from operations where id in (select id from id)) as operations,
        (select count(*)::int from operation_shards where operation_id in (select id from id)) as shards,
        (select count(*)::int from operation_items where operation_id in (select id from id)) as items,
        (select count(*)::int from item_retries where operation_id in (select id from id)) as retries,
        (select count(*)::int from ledger_entries where operation_id in (select id from id)) as entries,
        (select count(*)::int from effects where operation_id in (select id from id)) as effects,
        (select count(*)::int from dead_letters where operation_id in (select id from id)) as letters,
        (select count(*)::int from reconciliation_cases where operation_id in (select id from id)) as cases`,
  )
  return row ?? {}
}
const stateOf = async (id: string) => {
  const [state] = await query((connection) => readOperationStates(connection, [{ tenantId: 1, id }]))
  if (!state) throw new Error('there is no such operation')
  return state
}
const openLetters = async (): Promise<number> => {
  const [row] = await query(
    ({ sql }) => sql<{ n: number }>`select count(*)::int as n from dead_letter_standings where status = 'open'`,
  )
  return row?.n ?? -1
}
const letter = (id: string, key: string, effectKey: string, closed = false): Promise<void> =>
  script(`insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint
      ${closed ? ', closed_at, closed_by, close_reason, closed_as' : ''})
    values (1, '${id}', (select count(*) from dead_letters), 'grant', '${key}', '${effectKey}', 'transient', 3, 'fp' ${closed ? ", now(), 'p', 'r', 'discarded'" : ''})`)
const case_ = (id: string, closed: boolean): Promise<void> =>
  script(`insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause
      ${closed ? ', closed_at, resolution' : ''})
    values (1, '${id}', 0, 0, 'grant', 'a', 'k', 1, 'contradiction' ${closed ? ", now(), 'applied'" : ''})`)
const bulk = (id: string, status: 'running' | 'dry_run', expires: string): Promise<void> =>
  script(`with b as (
      insert into bulk_actions (tenant_id, id, action, status, filter, reason, rate_per_second, requested_by, requester_scopes,
        request_hash, targets, started_at, expires_at)
      values (1, gen_random_uuid(), 'replay', '${status}', '{}', 'r', 1, 'tester', '[]', 'h', 1,
        ${status === 'running' ? 'now()' : 'null'}, ${expires}) returning tenant_id, id)
    insert into bulk_action_targets (tenant_id, bulk_id, ord, operation_id) select tenant_id, id, 0, '${id}' from b`)

describe('of an operation that is over', () => {
  test('items go first, the ledger later, the summary never (case 53)', async () => {
    const id = await plant()
    await script(`insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason)
      values (1, '${id}', 2, 0, 'k', 2, 'failed')`)
    await letter(id, 'f', 'k', true)
    await case_(id, true)
    await script(`update operations set idempotency_key = 'one', request_hash = 'h' where id = '${id}'`)
    const all = { operations: 1, shards: 1, items: 3, retries: 1, entries: 4, effects: 1, letters: 1, cases: 1 }

    expect(await purge(id, 'items')).toBe(false)
    expect(await rowsOf([id])).toEqual(all)

    await age(database, [id], POLICY.itemsDays)
    const before = await stateOf(id)
    expect(await purge(id, 'ledger')).toBe(false)
    expect(await purge(id, 'items')).toBe(true)
    expect(await rowsOf([id])).toEqual({ ...all, items: 0, retries: 0 })

    await age(database, [id], POLICY.ledgerDays - POLICY.itemsDays)
    expect(await purge(id, 'ledger')).toBe(true)
    expect(await rowsOf([id])).toEqual({ ...all, items: 0, retries: 0, entries: 0, effects: 0, letters: 0, cases: 0 })

    const { now: _now, sinceProgressMs: _since, ...after } = await stateOf(id)
    expect(after).toMatchObject({
      status: before.status,
      version: before.version + 2,
      itemsTotal: 3,
      applied: 1,
      skipped: 1,
      failed: 1,
      failedConflict: 1,
      itemsPurgedAt: expect.any(String),
      ledgerPurgedAt: expect.any(String),
    })
    const events = await query(
      ({ sql }) =>
        sql`select kind, status, actor, reason from operation_events where operation_id = ${id}::uuid order by version`,
    )
    expect(events).toEqual(
      ['items_purged', 'ledger_purged'].map((kind) => ({
        kind,
        status: before.status,
        actor: 'system:retention',
        reason: 'old',
      })),
    )
    const [key] = await query(({ sql }) => sql`select idempotency_key from operations where id = ${id}::uuid`)
    expect(key).toEqual({ idempotency_key: 'one' })
  })

  test('what goes is found from the oldest on, behind the last one looked at, and nothing twice', async () => {
    const ids = [await plant(), await plant(), await plant(), await plant({ type: 'other' })]
    for (const [index, id] of ids.entries()) await age(database, [id], 40 - index)
    const read = (stage: PurgeStage, after: Parameters<typeof readAgedChains>[1]['after'] = null, limit = 2) =>
      query((connection) => readAgedChains(connection, { stage, type: 'grant', olderThanDays: 30, after, limit }))
    const first = await read('items')
    expect(first.map(({ operationId }) => operationId)).toEqual(ids.slice(0, 2))
    const rest = await read('items', first.at(-1) ?? null)
    expect(rest.map(({ operationId }) => operationId)).toEqual(ids.slice(2, 3))
    expect(await read('items', rest.at(-1) ?? null)).toEqual([])
    expect(await read('ledger')).toEqual([])
    await purge(ids[0] ?? '', 'items')
    expect((await read('items', null, 9)).map(({ operationId }) => operationId)).toEqual(ids.slice(1, 3))
    expect((await read('ledger')).map(({ operationId }) => operationId)).toEqual(ids.slice(0, 1))
  })

  test('a janitor whose list is old marks nothing again, and brings no ledger back', async () => {
    const id = await plantOld()
    expect(await mark(id, 'ledger')).toBeNull() // the items are first
    for (const stage of PURGE_STAGES) {
      expect(await purge(id, stage)).toBe(true)
      for (const late of PURGE_STAGES.slice(0, PURGE_STAGES.indexOf(stage) + 1))
        expect(await purge(id, late)).toBe(false)
    }
    const [row] = await query(
      ({ sql }) => sql<{ purged: boolean; events: number }>`
        select ledger_purged_at is not null as purged, (select count(*)::int from operation_events where operation_id = o.id) as events
        from operations o where id = ${id}::uuid`,
    )
    expect(row).toEqual({ purged: true, events: 2 })
  })

  test('rows go in batches; who comes after a crash between two goes on, and takes nothing of another operation', async () => {
    const [id, bystander] = [await plantOld(), await plantOld()]
    const key = { tenantId: 1, operationId: id }
    expect(await purgeRows(database, key)).toBeNull()
    await mark(id, 'items')
    expect(await purgeRows(database, key, 2)).toEqual({ stage: 'items', rows: 2, done: false })
    expect(await query((connection) => readMarked(connection, 9))).toEqual([key])
    expect(await factsOf(id, 'ledger')).toMatchObject({ purging: true })
    expect(await mark(id, 'ledger')).toBeNull()
    expect(await purgeRows(database, key, 2)).toEqual({ stage: 'items', rows: 1, done: true })
    expect(await query((connection) => readMarked(connection, 9))).toEqual([])
    await mark(id, 'ledger')
    // an item's entries go together
    expect(await purgeRows(database, key, 1)).toEqual({ stage: 'ledger', rows: 2, done: false })
    expect(await purgeMarked(database, 1)).toBe(3)
    expect(await rowsOf([id])).toMatchObject({ items: 0, entries: 0, effects: 0 })
    expect(await rowsOf([bystander])).toMatchObject({ items: 3, entries: 4, effects: 1 })
  })
})

describe('nothing goes, however old', () => {
  const flags = (status: string) => ({
    cancelled: ['cancel_requested', 'cancelled', 'completed_after_cancel'].includes(status),
    paused: ['pause_requested', 'paused'].includes(status),
  })

  test.each(OPERATION_STATUSES.map((status) => [status, isFinal(status)] as const))(
    'of an operation that is %s, unless that is final: %s (case 53)',
    async (status, final) => {
      const id = await plantOld({ status, ...flags(status) })
      await script(`update operations set created_at = created_at - interval '10 years' where id = '${id}'`)
      expect(await purge(id, 'items')).toBe(final)
      expect((await rowsOf([id])).items).toBe(final ? 0 : 3)
    },
  )

  const holds: [
    string,
    (id: string) => Promise<unknown>,
    Partial<ChainFacts>,
    lift: (id: string) => Promise<unknown>,
  ][] = [
    [
      'a case is open',
      (id) => case_(id, false),
      { openCases: true },
      () => script(`update reconciliation_cases set closed_at = now() - interval '99 days', resolution = 'applied'`),
    ],
    [
      'a dead letter is open',
      (id) => letter(id, 'f', 'k'),
      { activeDeadLetters: true },
      () =>
        script(
          `update dead_letters set closed_at = now() - interval '99 days', closed_by = 'p', close_reason = 'r', closed_as = 'discarded'`,
        ),
    ],
    [
      'a dead letter has not recovered',
      (id) => letter(id, 'a', boundKey({ id, key: 'none' })),
      { activeDeadLetters: true },
      (id) => script(`update dead_letters set effect_key = '${boundKey({ id, key: 'a' })}'`),
    ],
    [
      'an event of the provider is not judged',
      (id) =>
        script(`insert into callback_inbox (type, event_id, body_hash, state, effect_key, tenant_id, operation_id, shard, ord,
            item_key, send, outcome)
          values ('grant', '${uuidv7()}', 'h', 'applied', 'k', 1, '${id}', 0, 0, 'a', 1, 'deferred')`),
      { callbacksPending: true },
      () => script(`update callback_inbox set outcome = 'known', processed_at = now()`),
    ],
    [
      'a bulk action runs',
      (id) => bulk(id, 'running', 'null'),
      { bulkPending: true },
      () => script(`update bulk_action_targets set state = 'skipped', at = now()`),
    ],
    [
      'a bulk action can be started',
      (id) => bulk(id, 'dry_run', `now() + interval '1 hour'`),
      { bulkPending: true },
      () => script(`update bulk_actions set expires_at = now()`),
    ],
    [
      'an item is in doubt',
      (id) => script(`update operation_shards set uncertain = 1, applied = 0 where operation_id = '${id}'`),
      { unexplained: 1 },
      (id) => script(`update operation_shards set uncertain = 0, applied = 1 where operation_id = '${id}'`),
    ],
    [
      'a case was closed a moment ago',
      (id) => case_(id, true),
      { openCases: false },
      (id) => age(database, [id], OLD_DAYS),
    ],
    [
      'a dead letter was discarded a moment ago',
      (id) => letter(id, 'f', 'k', true),
      { activeDeadLetters: false },
      (id) => age(database, [id], OLD_DAYS),
    ],
    [
      'evidence came a moment ago',
      (id) => script(`update operation_shards set last_progress_at = now() where operation_id = '${id}'`),
      {},
      (id) => age(database, [id], OLD_DAYS),
    ],
    [
      'a replay waits',
      async (id) => plant({ status: 'awaiting_approval', replayOf: id, rootId: id }),
      { open: 1 },
      () =>
        script(`update operations set status = 'cancelled', cancel_requested_at = now(), completed_at = now() - interval '99 days'
            where completed_at is null;
          update operation_shards set last_progress_at = last_progress_at - interval '99 days'`),
    ],
    [
      'a compensation ended a moment ago',
      async (id) => plant({ status: 'succeeded', compensates: id, rootId: id }),
      {},
      async () =>
        script(`update operations set completed_at = now() - interval '99 days';
          update operation_shards set last_progress_at = last_progress_at - interval '99 days'`),
    ],
  ]
  test.each(holds)('while %s; and it goes when that is over (case 53)', async (_, hold, facts, lift) => {
    const id = await plantOld()
    await hold(id)
    expect(await factsOf(id)).toMatchObject(facts)
    expect(await purge(id, 'items')).toBe(false)
    expect((await rowsOf([id])).items).toBe(3)
    await lift(id)
    expect(await purge(id, 'items')).toBe(true)
    await hold(id)
    expect(await purge(id, 'ledger')).toBe(false)
    expect((await rowsOf([id])).entries).toBe(4)
  })
})

describe('an effect', () => {
  /** One effect that is an entry's, in this state. */
  const plantEffect = async (id: string, effectKey: string, state: string): Promise<void> => {
    await script(`insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, send_by)
        values (1, '${effectKey}', '${state}', 1, '${id}', 0, 2, 1, 1, 'f', 'h', now());
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, effect_key, input_hash, source, code_version)
        values (1, '${id}', 2, 'f', 1, null, '${effectKey}', 'h', 'worker', 'c1')`)
  }
  const goes = async (id: string, effectKey: string, state: string): Promise<boolean> => {
    await plantEffect(id, effectKey, state)
    await age(database, [id], OLD_DAYS)
    expect(await purge(id, 'items')).toBe(true)
    expect(await purge(id, 'ledger')).toBe(true)
    const rows = await query(({ sql }) => sql`select 1 from effects where effect_key = ${effectKey}`)
    return rows.length === 0
  }

  test.each(['applied', 'absent', 'compensated'])(
    'that is %s goes when its key is bound to the chain',
    async (state) => {
      const id = await plant()
      expect(await goes(id, boundKey({ id, key: 'x' }), state)).toBe(true)
    },
  )

  test.each(['applied', 'absent', 'compensated'])(
    'that is %s stays when another operation may have its key: it would be made again',
    async (state) => {
      const id = await plant()
      expect(await goes(id, 'grant:admin:ada', state)).toBe(false)
    },
  )

  test.each(['intent', 'uncertain'])('that is %s stays, whatever its key', async (state) => {
    const id = await plant()
    expect(await goes(id, boundKey({ id, key: 'x' }), state)).toBe(false)
  })

  test('of an undoing goes with what it undid', async () => {
    const id = await plant()
    const undoing = compensationKey({ effectKey: boundKey({ id, key: 'a' }), step: '', send: 1 })
    expect(await goes(id, undoing, 'applied')).toBe(true)
  })

  test('that another chain owns stays, whatever it is called', async () => {
    const [id, other] = [await plant(), await plant()]
    const key = boundKey({ id, key: 'x' })
    await plantEffect(id, key, 'applied')
    await script(`update effects set operation_id = '${other}' where effect_key = '${key}'`)
    await age(database, [id], OLD_DAYS)
    await purge(id, 'items')
    await purge(id, 'ledger')
    expect(await query(({ sql }) => sql`select 1 from effects where effect_key = ${key}`)).toHaveLength(1)
  })
})

describe('a chain', () => {
  test('goes as one: a dead letter that has recovered does not come back while it goes', async () => {
    const root = await plant()
    const replay = await plant({
      replayOf: root,
      rootId: root,
      effectKey: ({ key }) => boundKey({ id: root, key: `${key}'` }),
    })
    const last = await plant({
      replayOf: replay,
      rootId: root,
      effectKey: ({ key }) => boundKey({ id: root, key: `${key}"` }),
    })
    const ids = [root, replay, last]
    await letter(root, 'a', boundKey({ id: root, key: 'a"' }))
    await letter(replay, 'a', boundKey({ id: root, key: 'a"' }))
    await age(database, ids, OLD_DAYS)
    expect(await openLetters()).toBe(0)
    for (const stage of ['items', 'ledger'] as const) {
      expect(await mark(root, stage)).toEqual([...ids].sort())
      let marked = await query((connection) => readMarked(connection, 9))
      expect(marked).toHaveLength(3)
      while (marked.length > 0) {
        // the last ones first: what they know goes before those that need it
        for (const operation of marked.reverse()) {
          await purgeRows(database, operation, 1)
          expect(await openLetters()).toBe(0)
        }
        marked = await query((connection) => readMarked(connection, 9))
      }
    }
    expect(await rowsOf(ids)).toEqual({
      operations: 3,
      shards: 3,
      items: 0,
      retries: 0,
      entries: 0,
      effects: 0,
      letters: 0,
      cases: 0,
    })
  })

  test('is of one tenant', async () => {
    const root = await plantOld()
    const foreign = await plantOld({ tenantId: 2, rootId: root })
    expect(await mark(root, 'items')).toEqual([root])
    expect(
      await markChain(database, { tenantId: 2, operationId: root }, 'items', () => ({ goes: true, reason: '' })),
    ).toEqual([foreign])
  })
})
