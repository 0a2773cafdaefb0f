import postgres from 'postgres'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { type FaultDatabase, openFaultDatabase } from './harness/fault-database.ts'
import { openStack, type Stack } from './harness/stack.ts'

/** Of the sessions under test: who waits so long looks for a circle, once. The rival looks later, and is spared. */
const DEADLOCK_MS = 400
const RIVAL_DEADLOCK_MS = 3_000
const TRANSACTION_TRIES = 8

let database: FaultDatabase
let stack: Stack
beforeAll(async () => {
  database = await openFaultDatabase({ deadlock_timeout: `'${DEADLOCK_MS}ms'` })
  stack = await openStack({ databaseUrl: database.url, random: seededRandom(12) })
})
afterAll(async () => {
  await stack?.close()
  await database?.drop()
})

const submit = ({ client }: Account, type: string, name: string, size: number, input: object = {}): Promise<string> =>
  client.submit({ type, key: name, items: Array.from({ length: size }, (_, n) => ({ key: `${name}-${n}`, input })) })

/** No call was repeated by a transaction that was: each key was sent once. */
const expectSentOnce = async (name: string): Promise<void> => {
  const log = Object.entries(await stack.effects.log()).filter(([key]) => key.startsWith(name))
  expect(log.filter(([, { requests, applied }]) => requests > 1 || applied > 1)).toEqual([])
}

faultTest(
  'F12',
  'every sixth writing statement ends in 40001 or 40P01, of cancels, ledger and sweeps: repeated as a whole, no effect twice',
  { short: 1, long: 15 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      const name = `f12-${seed}`
      await database.before(
        ['ledger_entries', 'operation_shards', 'operations', 'effects', 'operation_events', 'fault_rows'],
        `n := nextval('faults.tries');
         if n % 6 = 0 then
           raise exception 'planted' using errcode = case when n % 12 = 0 then '40001' else '40P01' end; end if;`,
      )
      const ids = await Promise.all([
        ...[0, 1, 2, 3].map((n) => submit(account, 'fault-asked', `${name}-call-${n}`, 10, { delay_ms: 30 })),
        ...[0, 1, 2].map((n) => submit(account, 'fault-row', `${name}-row-${n}`, 60)),
      ])
      const answers = await Promise.all(ids.filter((_, n) => n % 3 === 0).map((id) => account.client.act('cancel', id)))
      await account.during()
      await database.calm()
      for (const { status } of answers) expect([200, 202, 409]).toContain(status)
      await account.end()
      await expectSentOnce(name)
      const failed =
        await database.sql`select 1 from ledger_entries where state = 'failed' and item_key like ${`${name}%`}`
      expect(failed).toHaveLength(0)
      await account.close()
    }),
)

faultTest(
  'F12',
  `a cancel whose transaction never gets through is tried ${TRANSACTION_TRIES} times, answered with 503, and changes nothing`,
  { short: 1, long: 5 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      const later = new Date(Date.now() + 3_600_000).toISOString()
      const items = [{ key: `f12-never-${seed}`, input: {} }]
      const more = { run_after: later }
      const id = await account.client.submit({ type: 'fault-row', key: `f12-never-${seed}`, items, more })
      await database.sql`alter sequence faults.tries restart`
      await database.before(
        ['operations'],
        `if current_setting('application_name') = 'opledger api' then
           perform nextval('faults.tries'); raise exception 'planted' using errcode = '40001'; end if;`,
      )
      const answer = await account.client.tryAct('cancel', id)
      await database.calm()
      expect(answer).toMatchObject({ status: 503, body: { code: 'database-unavailable' } })
      const [tries] = await database.sql<{ n: number }[]>`select last_value::int as n from faults.tries`
      expect(tries?.n).toBe(TRANSACTION_TRIES)
      expect(await account.client.get(id)).toMatchObject({ status: 'pending' })
      expect(await account.client.act('cancel', id)).toMatchObject({ status: 200, body: { status: 'cancelled' } })
      await account.end()
      await account.close()
    }),
)

type Table = 'operations' | 'operation_shards' | 'effects'

const untilSomebodyWaits = (): Promise<void> =>
  until('a session of the service waits for the rival', async () => {
    const [row] = await database.sql<{ waits: boolean }[]>`
      select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
        and application_name like 'opledger %') as waits`
    return row?.waits ?? false
  })

const countDeadlocks = async (): Promise<number> => {
  const [row] = await database.sql<{ n: number }[]>`
    select deadlocks::int as n from pg_stat_database where datname = current_database()`
  return row?.n ?? 0
}

/**
 * A rival locks rows of `first`, waits until the service, which holds rows of `then`, waits for it, and asks for those: the
 * other way round than the service does. True: there was a circle, and the service's
 * transaction was the one that had to give way.
 */
const crossLocks = async (id: string, first: Table, then: Table, meet: () => Promise<unknown>): Promise<boolean> => {
  const uuid = id.replace(/^op_/, '')
  const lock = (table: Table): string =>
    `select 1 from public.${table} where ${table === 'operations' ? 'id' : 'operation_id'} = '${uuid}' for no key update`
  const sql = postgres(database.url, { max: 1, onnotice: () => {} })
  await sql.unsafe(`set deadlock_timeout = '${RIVAL_DEADLOCK_MS}ms'`)
  const before = await countDeadlocks()
  let met: Promise<unknown> = Promise.resolve()
  try {
    await sql.begin(async (tx) => {
      await tx.unsafe(lock(first))
      met = meet()
      met.catch(() => {})
      await untilSomebodyWaits()
      await tx.unsafe(lock(then))
    })
    await until('the circle is counted', async () => (await countDeadlocks()) > before)
    return true
  } catch (error) {
    if ((error as { code?: string }).code !== '40P01') throw error
    return false // on a busy machine the rival may come too late, and be the one that finds the circle
  } finally {
    await sql.end()
    await met
  }
}

faultTest(
  'F12',
  'a rival takes the locks of a cancel and of the ledger in the reverse order: the transaction that gives way is repeated, no effect twice',
  { short: 2, long: 10 },
  ({ each }) =>
    each(async ({ index, seed }) => {
      const account = openAccount(stack)
      const name = `f12-cross-${seed}`
      const id = await submit(account, 'fault-asked', name, 12, { delay_ms: 300 })
      await until('it runs', async () => Object.keys(await stack.effects.log()).some((key) => key.startsWith(name)))
      let gaveWay = false
      if (index % 2 === 0) {
        gaveWay = await crossLocks(id, 'operation_shards', 'operations', () => account.client.act('cancel', id))
      } else {
        gaveWay = await crossLocks(id, 'effects', 'operation_shards', async () => {})
      }
      await account.during()
      await account.end()
      await expectSentOnce(name)
      await account.close()
      expect(gaveWay, 'the service met the circle').toBe(true)
    }),
)
