import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { afterAll, beforeAll, expect } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { faultTest, isLong } from './harness/fault.ts'
import { isFrozen, openPostgresServer, type PostgresServer } from './harness/postgres-server.ts'
import { prepareDatabase } from './harness/prepare-database.ts'
import { LEASE_MS, openStack, type Stack } from './harness/stack.ts'

/** Most clients and proxies give up after 30 s. */
const DEADLINE_MS = 30_000
/** Of a call, from the check to the effect server's log, on a busy machine. */
const SLACK_MS = 500
const CLIENTS = 12
const ITEMS = 24

let server: PostgresServer
let stack: Stack
const agent = new Agent({ connections: 64, headersTimeout: 2 * DEADLINE_MS })
beforeAll(async () => {
  server = await openPostgresServer()
  await prepareDatabase(server.url)
  // few connections: with the database frozen, requests also wait for one
  stack = await openStack({ databaseUrl: server.url, random: seededRandom(6), env: { DATABASE_POOL: '4' } })
})
afterAll(async () => {
  server?.signalAll('SIGCONT')
  await agent.destroy()
  await stack?.close()
  await server?.remove()
})

interface Told {
  path: string
  status: number
  type: string
  code: unknown
  ms: number
}

/** Each asks once, without any patience, and is told how long it took. */
const askAll = (id: string, name: string): Promise<Told[]> => {
  const url = stack.apis[0]?.url
  const ask = async (method: 'GET' | 'POST', path: string, body?: object): Promise<Told> => {
    const from = performance.now()
    const response = await request(`${url}${path}`, {
      dispatcher: agent,
      method,
      ...(body && { headers: { 'content-type': 'application/json', 'idempotency-key': `${name}-${path}` } }),
      body: body ? JSON.stringify(body) : null,
    })
    const text = await response.body.text()
    const said = JSON.parse(text) as { code?: unknown }
    return {
      path,
      status: response.statusCode,
      type: String(response.headers['content-type']),
      code: said.code,
      ms: performance.now() - from,
    }
  }
  const each = Array.from({ length: CLIENTS }, (_, n) => n)
  return Promise.all([
    ...each.map(() => ask('GET', `/operations/${id}`)),
    ...each.map((n) => ask('GET', `/operations/${id}/items?limit=${n + 1}`)),
    ...each.map((n) =>
      ask('POST', `/operations?n=${n}`, { type: 'fault-row', items: [{ key: `${name}-row-${n}`, input: {} }] }),
    ),
    ask('POST', `/operations/${id}/pause`, {}),
    ask('POST', `/operations/${id}/resume`, {}),
  ])
}

/** An operation in the middle of its work, with claimed items that are held back until `release`: their lease runs out there. */
const startHeld = async (account: Account, name: string) => {
  let release: () => void = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const items = Array.from({ length: ITEMS }, (_, n) => ({ key: `${name}-${n}`, input: { delay_ms: 100 } }))
  let id: string | null = null
  const trap = await stack.probes.arm({
    point: 'intents-committed',
    matches: ({ operationId }) => id !== null && operationId !== undefined && formatId('op', operationId) === id,
    action: { kind: 'hold', until: () => released },
  })
  id = await account.client.submit({ type: 'fault-asked', key: name, items })
  await trap.hit
  return { id, release }
}

const arrivalsOf = async (name: string): Promise<number[]> =>
  Object.entries((await stack.effects.log()) as Record<string, { arrivals: readonly number[] }>)
    .filter(([key]) => key.startsWith(name))
    .flatMap(([, { arrivals }]) => arrivals)

/** A signal takes a moment: only when all of its processes stand still is the server frozen. */
const whileFrozen = async <T>(work: () => Promise<T>): Promise<T> => {
  server.signalAll('SIGSTOP')
  try {
    await until('PostgreSQL stands still', () => isFrozen(server))
    return await work()
  } finally {
    server.signalAll('SIGCONT')
  }
}

const FREEZES = isLong ? [0.5, 2, 3.5, 10] : [0.5, 2, 3.5]
for (const leases of FREEZES) {
  faultTest(
    'F6',
    `all of PostgreSQL stands still for ${leases} × lease: the api answers in time or says 503, and no effect starts past the lease`,
    { short: 1, long: 5 },
    ({ each }) =>
      each(async ({ seed }) => {
        const account = openAccount(stack)
        const name = `f06-${leases}-${seed}`
        const held = await startHeld(account, name)
        const freezeMs = leases * LEASE_MS
        const frozenAt = Date.now()
        const { asked, arrivals, thawedAt } = await whileFrozen(async () => {
          const asked = askAll(held.id, name)
          // the worker that stands behind its claim goes on when its lease is over, and long before the server does
          await sleep(Math.min(freezeMs, 1.25 * LEASE_MS))
          held.release()
          await sleep(Math.max(0, freezeMs - 1.25 * LEASE_MS))
          return { asked, arrivals: await arrivalsOf(name), thawedAt: Date.now() }
        })
        const late = arrivals.filter((at) => at > frozenAt + LEASE_MS + SLACK_MS && at < thawedAt)
        expect(late).toEqual([])
        for (const told of await asked) {
          expect(told.ms, told.path).toBeLessThan(DEADLINE_MS)
          if (told.status < 500) continue
          expect(told).toMatchObject({ status: 503, type: expect.stringMatching(/^application\/problem\+json/) })
        }
        // the two raced: it may be paused for good
        await account.client.act('resume', held.id)
        await account.end()
        await account.close()
      }),
  )
}
