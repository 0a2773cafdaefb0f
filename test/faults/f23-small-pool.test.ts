import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import { Agent, request } from 'undici'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'

const POOL = 2
const CLIENTS = 200
/** How long a request waits for a connection (storage/database.ts); twice where it shares a statement with others. */
const ACQUIRE_MS = 5_000
/** Of 200 clients and a server on two busy cores. */
const BUSY_MS = 10_000
/** Longer than anybody waits for a connection, and than a lease lasts that nobody renews. */
const SLOW_MS = 1.5 * ACQUIRE_MS
const WATCH_MS = 250
/**
 * Between the statements of one transaction, a busy machine included. One that waits for a second connection of its pool
 * would be idle until that is refused.
 */
const IDLE_MS = 0.6 * ACQUIRE_MS
const TEXT_MAX = 120

const here = (file: string): string => fileURLToPath(new URL(`harness/${file}`, import.meta.url))

let stack: Stack
const agent = new Agent({ connections: CLIENTS, headersTimeout: 60_000 })
beforeAll(async () => {
  stack = await openStack({
    apis: 1,
    workers: 1,
    workerConcurrency: 2,
    random: seededRandom(23),
    types: ['types.yaml', 'types.mjs', 'patient.yaml'].map(here),
    env: { DATABASE_POOL: String(POOL) },
  })
})
afterAll(async () => {
  await agent.destroy()
  await stack?.close()
})

interface Told {
  status: number
  type: string
  ms: number
}

const ask = async (method: 'GET' | 'POST', path: string, body?: object): Promise<Told> => {
  const from = performance.now()
  const response = await request(`${stack.apis[0]?.url}${path}`, {
    dispatcher: agent,
    method,
    ...(body && { headers: { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() } }),
    body: body ? JSON.stringify(body) : null,
  })
  await response.body.dump()
  return {
    status: response.statusCode,
    type: String(response.headers['content-type']),
    ms: performance.now() - from,
  }
}

const submission = (key: string): object => ({ type: 'fault-row', items: [{ key, input: {} }] })

/** Looks at all sessions, and the leases of this operation, until it is ended; answers with what should not be. */
const watch = (id: string): (() => Promise<string>) => {
  const found = new Map<string, string>()
  let watching = true
  const watched = (async () => {
    while (watching) {
      const idle = await stack.sql<{ pid: number; name: string; ms: number; query: string }[]>`
        select pid, application_name as name, query,
          (extract(epoch from clock_timestamp() - state_change) * 1000)::int as ms
        from pg_stat_activity where datname = current_database() and application_name like 'opledger %'
          and state like 'idle in transaction%' and clock_timestamp() - state_change > ${IDLE_MS} * interval '1 ms'`
      for (const { pid, name, ms, query } of idle)
        found.set(`session ${pid}`, `${name} was idle in a transaction for ${ms} ms after ${query.slice(0, TEXT_MAX)}`)
      const leases = await stack.sql<{ shard: number; epoch: number; ms: number }[]>`
        select shard, lease_epoch::int as epoch,
          (extract(epoch from clock_timestamp() - lease_expires_at) * 1000)::int as ms
        from operation_shards
        where operation_id = ${id.slice(3)}::uuid and state = 'leased' and lease_expires_at < clock_timestamp()`
      for (const { shard, epoch, ms } of leases)
        found.set(`lease ${shard} ${epoch}`, `the lease of shard ${shard}, epoch ${epoch}, is over since ${ms} ms`)
      await sleep(WATCH_MS)
    }
    return [...found.values()].join('\n')
  })()
  return () => {
    watching = false
    return watched
  }
}

faultTest(
  'F23',
  'a pool of 2, 200 clients and a slow query: 503 by the acquire deadline, nothing idle in transaction, and leases are renewed',
  { short: 1, long: 10 },
  ({ each }) =>
    each(async ({ seed }) => {
      const account = openAccount(stack)
      const key = `f23-${seed}`
      const items = Array.from({ length: 60 }, (_, n) => ({ key: `${key}-${n}`, input: { delay_ms: 400 } }))
      const id = await account.client.submit({ type: 'fault-patient', key, items })
      await until('it runs', async () => Object.keys(await stack.effects.log()).some((k) => k.startsWith(key)))
      const endWatch = watch(id)

      // a migration by hand, say: whoever asks for bulk actions waits for it, and holds a connection meanwhile
      const blocker = postgres(stack.databaseUrl, { max: 1, onnotice: () => {} })
      const { asked, slow } = await blocker.begin(async (tx) => {
        await tx`lock table bulk_actions in access exclusive mode`
        const slow = Array.from({ length: POOL }, () => ask('GET', '/bulk-actions'))
        await until('the pool is used up', async () => {
          const [row] = await stack.sql<{ n: number }[]>`
            select count(*)::int as n from pg_stat_activity where datname = current_database()
              and application_name = 'opledger api' and wait_event_type = 'Lock'`
          return row?.n === POOL
        })
        const asked = Array.from({ length: CLIENTS }, (_, n) => {
          if (n % 4 === 0) return ask('GET', `/operations/${id}`)
          if (n % 4 === 1) return ask('GET', `/operations/${id}/items?limit=5`)
          if (n % 4 === 2) return ask('POST', '/operations', submission(`${key}-row-${n}`))
          return ask('GET', '/operations?limit=5')
        })
        await sleep(SLOW_MS)
        return { asked: Promise.all(asked), slow: Promise.all(slow) }
      })
      await blocker.end()
      for (const { status } of await slow) expect([200, 503]).toContain(status)
      const answers = await asked
      const refused = answers.filter(({ status }) => status === 503)
      expect(refused.length).toBeGreaterThan(CLIENTS / 2)
      expect(answers.filter(({ status }) => status >= 500 && status !== 503)).toEqual([])
      expect(refused.filter(({ type }) => !type.startsWith('application/problem+json'))).toEqual([])
      expect(Math.max(...answers.map(({ ms }) => ms))).toBeLessThan(2 * ACQUIRE_MS + BUSY_MS)
      expect(await endWatch()).toBe('')
      await account.during()
      await account.end()
      await account.close()
    }),
)
