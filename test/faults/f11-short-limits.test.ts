import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { type FaultDatabase, openFaultDatabase } from './harness/fault-database.ts'
import { openStack, type Stack } from './harness/stack.ts'

const LIMIT_MS = 50
const HELD_MS = 200

let database: FaultDatabase
let stack: Stack
beforeAll(async () => {
  database = await openFaultDatabase()
  stack = await openStack({ databaseUrl: database.url, random: seededRandom(11) })
})
afterAll(async () => {
  await stack?.close()
  await database?.drop()
})

/** Submits, reads, pauses, resumes and cancels. A client that is patient with 503 is told nothing but what is true. */
const work = async ({ client }: Account, name: string): Promise<{ rows: string[]; calls: string[] }> => {
  const submit = (type: string, n: number, size: number, input: object): Promise<string> => {
    const key = `${name}-${type}-${n}`
    return client.submit({
      type,
      key,
      items: Array.from({ length: size }, (_, item) => ({ key: `${key}-${item}`, input })),
    })
  }
  const rows = await Promise.all([0, 1, 2].map((n) => submit('fault-row', n, 150, {})))
  const calls = await Promise.all([0, 1, 2].map((n) => submit('fault-asked', n, 12, { delay_ms: 50 })))
  const [, paused = '', cancelled = ''] = calls
  const act = async (kind: 'cancel' | 'pause' | 'resume', id: string): Promise<void> => {
    const { status, body } = await client.act(kind, id)
    expect([200, 202, 409], `${kind}: ${JSON.stringify(body)}`).toContain(status)
  }
  await Promise.all([
    act('pause', paused).then(() => act('resume', paused)),
    act('cancel', cancelled),
    ...calls.map((id) => client.items(id)),
    ...rows.map((id) => client.ledger(id)),
  ])
  return { rows, calls }
}

/** Nothing was charged to an item: rows have no failure at all, calls none but an absence that a lookup has found. */
const expectNoFailures = async (): Promise<void> => {
  const failures = await database.sql`
    select o.type, l.reason_code, l.failure_class, l.source from ledger_entries l join operations o on o.id = l.operation_id
    where l.state = 'failed' and (o.type = 'fault-row' or l.failure_class <> 'transient')`
  expect([...failures]).toEqual([])
  const logs = stack.apis.map(({ member }) => member.output()).join('\n')
  expect(logs.split('\n').filter((line) => line.includes('"code":"internal"'))).toEqual([])
}

faultTest(
  'F11',
  'statements are ended after 50 ms, and some take longer: retried or 503, and no item fails',
  { short: 1, long: 30 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      await database.before(
        ['ledger_entries', 'operation_shards', 'operations', 'effects', 'fault_rows', 'operation_items'],
        `if current_setting('statement_timeout') = '${LIMIT_MS}ms' and nextval('faults.tries') % 12 = 0 then
           perform pg_sleep(${(4 * LIMIT_MS) / 1_000}); end if;`,
      )
      await database.limit({ statementMs: LIMIT_MS })
      await work(account, `f11s-${seed}`)
      await account.during()
      await database.calm()
      await database.limit(null)
      await account.end()
      await expectNoFailures()
      await account.close()
    }),
)

/** Holds rows of the running operations, kind after kind, for longer than anybody waits. Answers with what ends it. */
const startHolding = (url: string): (() => Promise<number>) => {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  let holding = true
  const held = (async () => {
    let times = 0
    while (holding) {
      for (const table of ['operations', 'operation_shards', 'effects']) {
        await sql.begin(async (tx) => {
          await tx.unsafe("set local lock_timeout = '1s'")
          const { count } = await tx.unsafe(`select 1 from public.${table} limit 200 for no key update skip locked`)
          times += count > 0 ? 1 : 0
          await sleep(HELD_MS)
        })
        await sleep(HELD_MS / 4)
      }
    }
    await sql.end()
    return times
  })()
  return () => {
    holding = false
    return held
  }
}

faultTest(
  'F11',
  'nobody waits longer than 50 ms for a lock, and a rival holds rows for 200 ms: retried or 503, and no item fails',
  { short: 1, long: 30 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      await database.limit({ lockMs: LIMIT_MS })
      const release = startHolding(database.url)
      await work(account, `f11l-${seed}`)
      await account.during()
      expect(await release()).toBeGreaterThan(0)
      await database.limit(null)
      await account.end()
      await expectNoFailures()
      await account.close()
    }),
)
