import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Answer } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { type FaultDatabase, openFaultDatabase } from './harness/fault-database.ts'
import { openStack, type Stack } from './harness/stack.ts'

const LIMIT_MS = 50
const HELD_MS = 200
/** How long statements are ended early. */
const SHORT_MS = 4_000

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

/**
 * Operations of both kinds, accepted before anything is short. Small ones: a shard whose run ended in an error goes on item by
 * item, as if its worker had died of one.
 */
const submitAll = ({ client }: Account, name: string): Promise<string[]> => {
  const submit = (type: string, n: number, size: number, input: object): Promise<string> => {
    const key = `${name}-${type}-${n}`
    const items = Array.from({ length: size }, (_, item) => ({ key: `${key}-${item}`, input }))
    return client.submit({ type, key, items })
  }
  return Promise.all([
    ...[0, 1, 2].map((n) => submit('fault-row', n, 80, {})),
    ...[0, 1, 2].map((n) => submit('fault-asked', n, 16, { delay_ms: 100 })),
  ])
}

const LOOKS = 6

/** Asks again and again without patience: each answer is the truth, or 503. */
const askAll = async ({ client }: Account, name: string, ids: readonly string[]): Promise<void> => {
  const statuses: number[] = []
  const tell = async (answer: Promise<Answer>): Promise<void> => {
    const { status, headers } = await answer
    statuses.push(status)
    if (status >= 500) expect(headers['content-type']).toMatch(/^application\/problem\+json/)
  }
  const [, , , , paused = '', cancelled = ''] = ids
  for (let look = 0; look < LOOKS; look++) {
    const key = `${name}-late-${look}`
    await Promise.all([
      tell(client.trySubmit({ type: 'fault-row', key, items: [{ key, input: {} }] })),
      ...ids.map((id) => tell(client.tryCall('GET', `/operations/${id}/ledger?limit=10`))),
      tell(client.tryAct(look % 2 === 0 ? 'pause' : 'resume', paused)),
      tell(client.tryAct('cancel', cancelled)),
    ])
  }
  expect(statuses.filter((status) => ![200, 202, 409, 503].includes(status))).toEqual([])
  await client.act('resume', paused)
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
  { short: 1, long: 10 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      await database.before(
        ['ledger_entries', 'operation_shards', 'operations', 'effects', 'fault_rows', 'operation_items'],
        `if current_setting('statement_timeout') = '${LIMIT_MS}ms' and nextval('faults.tries') % 12 = 0 then
           perform pg_sleep(${(4 * LIMIT_MS) / 1_000}); end if;`,
      )
      const ids = await submitAll(account, `f11s-${seed}`)
      await database.limit({ statementMs: LIMIT_MS })
      const asked = askAll(account, `f11s-${seed}`, ids)
      await sleep(SHORT_MS)
      await account.during()
      await database.calm()
      await database.limit(null)
      await asked
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
  { short: 1, long: 10 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      const ids = await submitAll(account, `f11l-${seed}`)
      await database.limit({ lockMs: LIMIT_MS })
      const release = startHolding(database.url)
      await askAll(account, `f11l-${seed}`, ids)
      await account.during()
      expect(await release()).toBeGreaterThan(0)
      await database.limit(null)
      await account.end()
      await expectNoFailures()
      await account.close()
    }),
)
