/** Retention beside everything else: replays, compensations, readers, evidence, other janitors, at any line of theirs. */
import { pino } from 'pino'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { keptBecause, PURGE_STAGES, type PurgeStage } from '../../src/domain/retention.ts'
import { retention } from '../../src/maintenance/retention.ts'
import { compensateOperation } from '../../src/services/compensate.ts'
import { listItemHistory } from '../../src/services/item-history.ts'
import { ledgerSource } from '../../src/services/ledger-source.ts'
import { listItems, listLedger, streamItems, streamLedger } from '../../src/services/list-outcomes.ts'
import { preflightReplay } from '../../src/services/preflight-replay.ts'
import { replayOperation } from '../../src/services/replay.ts'
import type { Parameter, Sql, TransactionConnection } from '../../src/storage/connection.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { purgeRows, readMarked } from '../../src/storage/purge-rows.ts'
import { markChain } from '../../src/storage/retention.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  type PlantedItem,
  plantEffects,
  plantedType,
  plantedTypes,
  plantOperation,
} from '../support/planted-operation.ts'
import { holdOperation, holdShard, NO_WAKE_UPS, tell, wipe } from '../support/races.ts'
import { age, purgeMarked } from '../support/retention.ts'

const OLD_DAYS = 4_000
const ITEMS: PlantedItem[] = [
  { key: 'a', entries: [{ state: 'applied' }] },
  { key: 'b', entries: [{ state: 'applied' }] },
  { key: 'f', entries: [{ state: 'failed', failureClass: 'transient' }] },
]
/** More than any of these requests needs. */
const STATEMENTS_MAX = 40
/** A test that interrupts each statement in turn plants and purges some thirty times: a minute and more on a busy machine. */
const TURNS_MS = 300_000

let testDatabase: TestDatabase
let database: Database
let others: Database
let plain: postgres.Sql
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'requests' })
  others = openDatabase({ url: testDatabase.url, size: 8, name: 'janitors' })
  plain = postgres(testDatabase.url, { max: 2, onnotice: () => {} })
})
afterAll(async () => {
  await database.close()
  await others.close()
  await plain.end()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

const grant = plantedType('grant', {
  compensator: {
    kind: 'external',
    callTimeoutMs: 5_000,
    send: () => Promise.reject(new Error('a planted type is never run')),
    lookup: null,
  },
  compensation: 'available',
})
const types = plantedTypes(grant)
const principal = { tenantId: 1, name: 'operator', scopes: [] }
const contextOn = (through: Database) => ({ database: through, types, wakeUps: NO_WAKE_UPS })

const boundKey = ({ id, key }: { id: string; key: string }): string => `grant:${formatId('op', id)}:${key}`
const plantOld = async (effectKey = boundKey): Promise<string> => {
  const id = await plantOperation(database, { type: 'grant', status: 'partially_succeeded', items: ITEMS, effectKey })
  await plantEffects(database, id)
  await age(database, [id], OLD_DAYS)
  return id
}
const mark = (id: string, stage: PurgeStage): Promise<string[] | null> =>
  markChain(others, { tenantId: 1, operationId: id }, stage, (facts) => ({
    goes: keptBecause(stage, facts, grant.retention).length === 0,
    reason: 'old',
  }))
const purge = async (id: string, ...stages: PurgeStage[]): Promise<void> => {
  for (const stage of stages) {
    await mark(id, stage)
    await purgeMarked(others)
  }
}
const count = async (table: string, where: string): Promise<number> => {
  const rows = await plain.unsafe<{ n: number }[]>(`select count(*)::int as n from ${table} where ${where}`)
  return rows[0]?.n ?? -1
}

/**
 * The database of a request before whose n-th statement something happens elsewhere; pipelined ones count as one. Statements
 * keep their order, also those that are sent together: a later one must not take its lock while an earlier one is held up. And
 * its transaction may stand still for as long as that takes: on a busy machine the server would end it after five seconds.
 */
const interrupted = (nth: number, happens: () => Promise<unknown>): { database: Database; statements(): number } => {
  let statements = 0
  const before = async (): Promise<void> => {
    statements++
    if (statements === nth) await happens()
  }
  const wrapped = <Reached extends TransactionConnection>(connection: Reached): Reached => {
    let last: Promise<unknown> = Promise.resolve()
    const sql: Sql = <T extends object>(strings: TemplateStringsArray, ...parameters: readonly Parameter[]) => {
      const mine = last.then(before).then(() => connection.sql<T>(strings, ...parameters))
      last = mine.catch(() => {})
      return mine
    }
    return { ...connection, sql }
  }
  return {
    database: {
      query: (work) => database.query((connection) => work(wrapped(connection))),
      transaction: (work) =>
        database.transaction(async (connection) => {
          await connection.script('set local idle_in_transaction_session_timeout = 0')
          return work(wrapped(connection))
        }),
      lockThenWork: async (steps) => {
        await before()
        return database.lockThenWork(steps)
      },
      queuedMs: () => 0,
      close: async () => {},
    },
    statements: () => statements,
  }
}

/** Tells the code of a refusal. */
const outcomeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'done',
    (error: { code?: string }) => error.code ?? String(error),
  )
const drained = async (pages: AsyncIterable<unknown[]> | null): Promise<unknown[]> => {
  const rows: unknown[] = []
  for await (const page of pages ?? []) rows.push(...page)
  return rows
}

/** Each asks for something that needs items or ledger, and answers with all of it or not at all. */
const requests: [string, (through: Database, id: string) => Promise<unknown>, whole: unknown, refusals: string[]][] = [
  [
    'a page of items',
    async (through, id) =>
      (
        await listItems(
          contextOn(through),
          principal,
          id,
          { state: [], failureClass: [], key: null },
          {
            limit: 50,
            position: null,
          },
        )
      )?.items.length,
    3,
    ['items-purged'],
  ],
  [
    'a page of the ledger',
    async (through, id) =>
      (await listLedger(contextOn(through), principal, id, { limit: 50, position: null }))?.items.length,
    3,
    ['ledger-purged'],
  ],
  [
    'a stream of items',
    async (through, id) =>
      (await drained(await streamItems(contextOn(through), principal, id, { state: [], failureClass: [], key: null })))
        .length,
    3,
    ['items-purged'],
  ],
  [
    'a stream of the ledger',
    async (through, id) => (await drained(await streamLedger(contextOn(through), principal, id))).length,
    3,
    ['ledger-purged'],
  ],
  [
    'the history of an item',
    async (through, id) =>
      (await listItemHistory(contextOn(through), principal, id, 'a', { limit: 50, position: null })).items.length,
    2,
    ['ledger-purged'],
  ],
  [
    'a part of an export',
    async (through, id) => {
      const range = { kind: 'operation' as const, operationId: id, fromOrd: 0, toOrd: null }
      return (await drained(ledgerSource(through).read(1, range))).length
    },
    3,
    ['ledger-purged'],
  ],
  [
    'a preflight of a replay',
    async (through, id) => {
      const { failedTargets, confirmedTargets } = await preflightReplay(contextOn(through), principal, id, {
        scope: null,
      })
      return failedTargets + confirmedTargets
    },
    3,
    ['ledger-purged'],
  ],
]

describe.each(requests)('%s', { timeout: TURNS_MS }, (_, ask, whole, refusals) => {
  test.each([['items'], ['items', 'ledger']] as PurgeStage[][])(
    'is whole or refused, wherever %s %s are purged meanwhile',
    async (...stages) => {
      const seen = new Set<string>()
      let reached = true
      for (let nth = 1; reached; nth++) {
        const id = await plantOld()
        const request = interrupted(nth, () => purge(id, ...stages))
        const answer = await ask(request.database, id).catch((error: { code?: string }) => error.code ?? String(error))
        reached = request.statements() >= nth
        seen.add(String(answer))
        if (typeof answer === 'number') expect(answer).toBe(whole)
        else expect(refusals).toContain(answer)
        expect(nth).toBeLessThan(STATEMENTS_MAX)
      }
      // both were met: the test looks on both sides of the mark
      const isTaken = stages.some((stage) => refusals.includes(`${stage}-purged`))
      expect([...seen].sort()).toEqual([String(whole), ...(isTaken ? refusals : [])].sort())
    },
  )
})

describe.each([
  [
    'a replay',
    async (through: Database, id: string) => {
      const asked = await preflightReplay(contextOn(through), principal, id, { scope: null })
      await replayOperation(contextOn(through), principal, id, {
        preflightId: asked.id,
        reason: 'again',
        force: [],
        ifMatchVersion: null,
      })
    },
    1,
    ['replay-blocked'],
  ],
  [
    'a compensation',
    (through: Database, id: string) =>
      compensateOperation(contextOn(through), principal, id, {
        preflightId: null,
        reason: 'undo',
        force: [],
        ifMatchVersion: null,
      }),
    2,
    ['compensation-blocked'],
  ],
] as const)('%s', { timeout: TURNS_MS }, (_, act, items, blocked) => {
  test.each([['items'], ['items', 'ledger']] as PurgeStage[][])(
    'is made of all its items, and then keeps the chain; or is refused: wherever %s %s are purged meanwhile',
    async (...stages) => {
      const seen = new Set<string>()
      let reached = true
      for (let nth = 1; reached; nth++) {
        await wipe(database)
        const id = await plantOld()
        const request = interrupted(nth, () => purge(id, ...stages))
        const outcome = await outcomeOf(act(request.database, id))
        reached = request.statements() >= nth
        seen.add(outcome)
        const made = await count('operations', `id <> '${id}'`)
        expect(made).toBe(outcome === 'done' ? 1 : 0)
        if (outcome === 'done') {
          expect(await count('operation_items', `operation_id <> '${id}'`)).toBe(items)
          expect(await mark(id, 'items')).toBeNull()
          expect(await count('operation_items', `operation_id = '${id}'`)).toBe(3)
        }
        expect(nth).toBeLessThan(STATEMENTS_MAX)
      }
      expect([...seen].sort()).toEqual(
        expect.arrayContaining(['done', ...(stages.length === 1 ? blocked : ['ledger-purged'])]),
      )
      const allowed = ['done', 'preflight-outdated', 'ledger-purged', ...blocked]
      expect([...seen].filter((outcome) => !allowed.includes(outcome))).toEqual([])
    },
  )
})

describe('a chain of which another session has something in hand', () => {
  test.each([
    ['its operation', (id: string) => holdOperation(testDatabase.url, id)],
    ['a replay of it', (_: string, replay: string) => holdOperation(testDatabase.url, replay)],
    ['a shard', (id: string) => holdShard(testDatabase.url, { tenantId: 1, operationId: id, shard: 0 })],
  ])('(%s) is passed over without a wait, and goes the next time (case 97)', async (_, hold) => {
    const id = await plantOld()
    const replay = await plantOperation(database, {
      type: 'grant',
      status: 'failed',
      items: ITEMS,
      replayOf: id,
      rootId: id,
    })
    await age(database, [replay], OLD_DAYS)
    const held = await hold(id, replay)
    expect(await mark(id, 'items')).toBeNull()
    await held.commit()
    expect(await mark(id, 'items')).toEqual([id, replay])
    const rows = await holdOperation(testDatabase.url, id)
    expect(await purgeRows(others, { tenantId: 1, operationId: id })).toBeNull()
    await rows.commit()
    expect(await purgeRows(others, { tenantId: 1, operationId: id })).toMatchObject({ done: true })
  })
})

test('many janitors at once: each chain is taken once, and none waits in a circle (case 97)', async () => {
  const CHAINS = 12
  const ids: string[] = []
  for (let index = 0; index < CHAINS; index++) ids.push(await plantOld())
  const janitor = async (): Promise<void> => {
    // whatever another one has in hand is passed over, so each comes back until nothing is left
    while ((await count('operations', 'ledger_purged_at is null or purge_open')) > 0) {
      for (const stage of PURGE_STAGES) for (const id of ids) await mark(id, stage)
      for (const operation of await others.query((connection) => readMarked(connection, 100))) {
        await purgeRows(others, operation, 2)
      }
    }
  }
  await Promise.all(Array.from({ length: 4 }, janitor))
  const events = await database.query(
    ({ sql }) => sql<{ kind: string; n: number }>`
      select kind, count(*)::int as n from operation_events group by kind order by kind`,
  )
  expect(events).toEqual([
    { kind: 'items_purged', n: CHAINS },
    { kind: 'ledger_purged', n: CHAINS },
  ])
  for (const table of ['operation_items', 'ledger_entries', 'effects']) expect(await count(table, 'true')).toBe(0)
})

describe('evidence that comes when the items are gone', () => {
  const shardOf = (id: string) => ({ tenantId: 1, operationId: id, shard: 0 })

  test('is written down and opens a case, which keeps the ledger', async () => {
    const id = await plantOld()
    await purge(id, 'items')
    const said = { effect: 'absent', item: 'failed', failureClass: 'transient' } as const
    await tell(database, shardOf(id), { ord: 0, effectKey: boundKey({ id, key: 'a' }) }, said, 'lookup')
    expect(
      await count('reconciliation_cases', `item_key = 'a' and cause = 'contradiction' and closed_at is null`),
    ).toBe(1)
    await age(database, [id], OLD_DAYS)
    expect(await mark(id, 'ledger')).toBeNull()
    await database.query(
      ({ sql }) => sql`update reconciliation_cases set closed_at = now() - interval '99 days', resolution = 'applied'`,
    )
    expect(await mark(id, 'ledger')).toEqual([id])
  })

  test('about an effect that is forgotten changes nothing', async () => {
    const id = await plantOld()
    await purge(id, 'items', 'ledger')
    const said = { effect: 'applied', item: 'applied', effectRef: 'late' } as const
    const { moved } = await tell(database, shardOf(id), { ord: 0, effectKey: boundKey({ id, key: 'a' }) }, said)
    expect(moved.size).toBe(0)
    for (const table of ['ledger_entries', 'effects', 'reconciliation_cases'])
      expect(await count(table, 'true')).toBe(0)
    expect(await count('operation_shards', 'applied = 2 and failed = 1')).toBe(1)
  })

  test('about an effect that another operation may make again still moves it', async () => {
    const id = await plantOld(({ key }) => `grant:${key}`)
    await database.query(({ script }) =>
      script(`insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
          input_hash, item_state, item_class, send_by)
        values (1, 'grant:f', 'absent', 1, '${id}', 0, 2, 1, 1, 'f', 'h', 'failed', 'transient', now())`),
    )
    await purge(id, 'items', 'ledger')
    const said = { effect: 'applied', item: 'applied', effectRef: 'late' } as const
    const { moved } = await tell(database, shardOf(id), { ord: 2, effectKey: 'grant:f' }, said, 'callback')
    expect([...moved]).toEqual([2])
    expect(await count('effects', `effect_key = 'grant:f' and state = 'applied'`)).toBe(1)
    expect(await count('operation_shards', 'applied = 3 and failed = 0')).toBe(1)
  })
})

describe('the janitor', () => {
  const quiet = pino({ level: 'silent' })

  test('goes on behind what is kept, however much of it there is, and comes back to it', async () => {
    const kept: string[] = []
    for (let index = 0; index < 101; index++) {
      kept.push(await plantOperation(database, { type: 'grant', status: 'failed', items: ITEMS.slice(0, 1) }))
    }
    await age(database, kept, OLD_DAYS)
    await database.query(({ sql }) => sql`update operation_shards set last_progress_at = now()`)
    const id = await plantOld()
    await database.query(
      ({ sql }) => sql`update operations set completed_at = completed_at + interval '1 day' where id = ${id}::uuid`,
    )
    const janitor = retention(contextOn(others), quiet)
    const purgedItems = () => count('operations', 'items_purged_at is not null')
    expect(await janitor.runOnce()).toEqual({ more: false })
    expect(await purgedItems()).toBe(0)
    expect(await janitor.runOnce()).toEqual({ more: true })
    expect(await purgedItems()).toBe(1)
    await database.query(({ sql }) => sql`update operation_shards set last_progress_at = now() - interval '99 days'`)
    for (let runs = 0; runs < 200 && (await janitor.runOnce()).more; runs++);
    expect(await purgedItems()).toBe(102)
    expect((await count('operation_items', 'true')) + (await count('ledger_entries', 'true'))).toBe(0)
  })

  test('takes nothing of a type that is not installed, and tells of what it takes', async () => {
    await plantOperation(database, { type: 'gone', status: 'failed', items: ITEMS })
    const id = await plantOld()
    await database.query(({ sql }) => sql`update operations set completed_at = now() - interval '99 days'`)
    await database.query(({ sql }) => sql`update operation_shards set last_progress_at = now() - interval '99 days'`)
    const told: Record<string, unknown>[] = []
    const janitor = retention(contextOn(others), pino({ base: null }, { write: (line) => told.push(JSON.parse(line)) }))
    while ((await janitor.runOnce()).more);
    expect(await count('operation_items', 'true')).toBe(3)
    expect(
      told.map(({ operation_id, type, stage, operations }) => ({ operation_id, type, stage, operations })),
    ).toEqual(PURGE_STAGES.map((stage) => ({ operation_id: formatId('op', id), type: 'grant', stage, operations: 1 })))
  })
})
