/** The loops of maintenance: one element that fails, for whatever reason, takes no other one's turn. */
import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { deadlines, housekeeping } from '../../src/maintenance/janitor.ts'
import type { MaintenanceService } from '../../src/maintenance/service.ts'
import { settleSweep } from '../../src/maintenance/settle-sweep.ts'
import { stopConditions } from '../../src/maintenance/stop-conditions.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { ensureLedgerPartitions } from '../../src/storage/housekeeping.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type PlantedItem, plantedType, plantedTypes, plantOperation } from '../support/planted-operation.ts'
import { NO_WAKE_UPS, wipe } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
let logged: { msg: string; operation?: string; chore?: string }[]

const log = pino({ base: null }, { write: (line) => logged.push(JSON.parse(line)) })
const context = () => ({ database, types: plantedTypes(plantedType('grant')), wakeUps: NO_WAKE_UPS })

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 3, name: 'maintenance' })
  // an operation that nothing can change: any statement that tries fails
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

const applied: PlantedItem = { key: 'a', entries: [{ state: 'applied' }] }
const uncertain: PlantedItem = { key: 'u', entries: [{ state: 'uncertain' }] }
/** Operations in the order in which a loop meets them; the first one is broken. */
const plant = async (count: number, items: PlantedItem[], { stopIf = [] as string[] } = {}): Promise<string[]> => {
  const ids: string[] = []
  for (let index = 0; index < count; index++) {
    ids.push(await plantOperation(database, { type: 'grant', status: 'running', items, stopIf }))
  }
  return ids
}
const breakFirst = ([id]: string[]) => database.query(({ sql }) => sql`insert into broken values (${id ?? ''}::uuid)`)
const statuses = async (): Promise<string[]> => {
  const rows = await database.query(({ sql }) => sql<{ status: string }>`select status from operations order by id`)
  return rows.map(({ status }) => status)
}
const expectLogged = async (ids: string[]): Promise<void> =>
  expect(logged.map(({ operation }) => operation)).toEqual([ids[0]])

describe('one operation that cannot be changed', () => {
  test('does not keep the others from being settled', async () => {
    const ids = await plant(3, [applied])
    await database.query(({ sql }) => sql`update operation_shards set state = 'done'`)
    await breakFirst(ids)
    await settleSweep(context(), log).runOnce()
    expect(await statuses()).toEqual(['running', 'succeeded', 'succeeded'])
    await expectLogged(ids)
  })

  test('does not keep the deadlines of the others from being enforced', async () => {
    const ids = await plant(3, [applied, { key: 'b' }])
    await database.query(({ sql }) => sql`update operations set deadline_at = now() - interval '1 second'`)
    await breakFirst(ids)
    expect(await deadlines(context(), log).runOnce()).toEqual({ more: false })
    expect(await statuses()).toEqual(['running', 'cancelled', 'cancelled'])
    await expectLogged(ids)
  })

  test('does not keep the stop conditions of the others from being armed', async () => {
    const ids = await plant(3, [uncertain, { key: 'b' }], { stopIf: ['ambiguous_effect_targets > 0'] })
    await breakFirst(ids)
    await stopConditions(context(), log).runOnce()
    expect(await statuses()).toEqual(['running', 'paused', 'paused'])
    await expectLogged(ids)
  })
})

test('stop conditions of more operations than one run looks at are armed in turns, again and again', async () => {
  const stopIf = ['ambiguous_effect_targets > 0']
  await plant(2, [applied, { key: 'b' }], { stopIf })
  const service = stopConditions(context(), log, 1)
  const rounds = async (count: number): Promise<boolean[]> => {
    const more: boolean[] = []
    for (let round = 0; round < count; round++) more.push((await service.runOnce()).more)
    return more
  }
  expect(await rounds(3)).toEqual([true, true, false])
  await plant(1, [uncertain, { key: 'b' }], { stopIf })
  await rounds(3)
  expect(await statuses()).toEqual(['running', 'running', 'paused'])
})

describe('housekeeping', () => {
  const run = (): ReturnType<MaintenanceService['runOnce']> => housekeeping(context(), log).runOnce()
  /** The partition that is farthest ahead. */
  const lastPartition = async (): Promise<string> => {
    const [row] = await database.query(
      ({ sql }) => sql<{ name: string }>`
        select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'ledger_entries'::regclass and c.relname ~ '_[0-9]{6}$' order by c.relname desc limit 1`,
    )
    return row?.name ?? ''
  }

  test('one chore that fails does not take the others with it', async () => {
    await database.query(
      ({ sql }) => sql`
        insert into workers (id, host, pid, code_version, types, beat_ms, last_seen_at)
        values (${randomUUID()}::uuid, 'h', 1, 'c', '[]', 1000, now() - interval '3 days')`,
    )
    await database.transaction(({ script }) =>
      script('alter function ensure_ledger_partitions(timestamptz, integer) rename to hidden'),
    )
    await run()
    await database.transaction(({ script }) =>
      script('alter function hidden(timestamptz, integer) rename to ensure_ledger_partitions'),
    )
    expect(logged.map(({ chore }) => chore)).toEqual(['partitions'])
    const [left] = await database.query(({ sql }) => sql`select count(*)::int as n from workers`)
    expect(left).toEqual({ n: 0 })
  })

  test('makes partitions unless another worker is at it', async () => {
    await database.query(ensureLedgerPartitions)
    const last = await lastPartition()
    await database.transaction(({ script }) => script(`set local opledger.retention = 'on'; drop table ${last}`))
    const other = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
    await other.begin(async (sql) => {
      // the other worker makes it, and has not committed yet
      await sql`select pg_advisory_xact_lock(8097879449299478387), ensure_ledger_partitions(now(), 4)`
      await run()
    })
    await other.end()
    expect(logged).toEqual([])
    expect(await lastPartition()).toBe(last)
  })
})
