/**
 * Several hosts against one PostgreSQL, and one of them is cut off from it while it holds leases and has calls in flight: the
 * link is down, its processes live on, and the provider still hears them. Then it is healed.
 */
import { appendFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { until } from '../support/processes.ts'
import { type Random, seededRandom } from '../support/random.ts'
import { openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { type Cut, type Host, missingNamespaces, openHosts } from './harness/hosts.ts'
import { expectNoExits, withServer, withStackOn } from './harness/load.ts'
import { settle } from './harness/phase-two.ts'
import type { PostgresServer } from './harness/postgres-server.ts'
import { LEASE_MS, type Slot, type Stack, stretched } from './harness/stack.ts'

/** The first two have an api and a worker each, the third a worker. */
const HOSTS = 3
const CUT_OFF = 1
const OPERATIONS = 9
const ITEMS = 16
const ITEM_MS = 500
const WAIT_MS = 60_000
/** When a client of the database gives up a connection that says nothing: behind it all of them are new. */
const SILENCE_MS = 36_000

/** Of the processes on other hosts. */
const letIn = async (server: PostgresServer): Promise<void> => {
  appendFileSync(path.join(server.data, 'pg_hba.conf'), 'host all all 10.213.0.0/16 scram-sha-256\n')
  await server.query('select pg_reload_conf()')
}

const workerIdOf = (slot: Slot | undefined): string => {
  const [, id] = /"worker_id":"([0-9a-f-]{36})"/.exec(slot?.member.output() ?? '') ?? []
  if (id === undefined) throw new Error('the worker has not said who it is')
  return id
}

/** Effect keys that a worker has in flight, as the database sees it. */
const inFlightAt = async (stack: Stack, workerId: string): Promise<string[]> => {
  const rows = await stack.sql<{ key: string }[]>`
    select e.effect_key as key from effects e
      join operation_shards s on s.tenant_id = e.tenant_id and s.operation_id = e.operation_id and s.shard = e.shard
    where s.lease_owner = ${workerId}::uuid and e.state = 'intent' and e.lease_epoch = s.lease_epoch`
  return rows.map(({ key }) => key)
}

const submitSome = async (account: ReturnType<typeof openAccount>, name: string, count: number): Promise<string[]> => {
  const ids: string[] = []
  for (let n = 0; n < count; n++) {
    const items = Array.from({ length: ITEMS }, (_, item) => ({
      key: `${name}-${n}-${item}`,
      input: { mode: 'ok', delay_ms: ITEM_MS },
    }))
    ids.push(await account.client.submit({ type: 'fault-grant', key: `${name}-${n}`, items }))
  }
  return ids
}

/** Whoever is cut off says so, and says nothing else: no 500, no 202. */
const expectUnavailable = async (host: Host, key: string): Promise<void> => {
  const answer = await fetch(`${host.url}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify({ type: 'fault-grant', items: [{ key, input: {} }] }),
    signal: AbortSignal.timeout(stretched(2 * SILENCE_MS)),
  })
  const { code } = (await answer.json()) as { code: string }
  expect(answer.status, code).toBe(503)
  expect(['database-unavailable', 'overloaded']).toContain(code)
}

const cutOff = async (stack: Stack, host: Host, name: string, cut: Cut, outageMs: number): Promise<void> => {
  const account = openAccount(stack)
  const workerId = workerIdOf(stack.workers[CUT_OFF])
  const ids = await submitSome(account, name, OPERATIONS)
  await until('it has calls in flight', async () => (await inFlightAt(stack, workerId)).length > 0, WAIT_MS)
  host.cut(cut)
  try {
    const doubtful = await inFlightAt(stack, workerId)
    const refused = expectUnavailable(host, `${name}-refused`)
    refused.catch(() => {}) // told below
    // somebody else takes over what it held, and says of what was in flight what is known: nothing
    await until(
      'what was in flight is in doubt',
      async () => {
        const [row] = await stack.sql<{ n: number }[]>`
          select count(*)::int as n from effects where effect_key = any(${doubtful}) and state = 'intent'`
        return row?.n === 0
      },
      WAIT_MS,
    )
    // the others go on
    const more = await submitSome(account, `${name}-more`, 2)
    await settle(stack, account.client, more, { withinMs: WAIT_MS })
    ids.push(...more)
    await sleep(outageMs)
    await refused
  } finally {
    host.heal()
  }
  await until('the host is back', async () => (await fetch(`${host.url}/readyz`)).ok, WAIT_MS)
  // 503 says that it is not known: what was on its way may have arrived with the link. The same key tells, and makes no second one
  const refusedItems = [{ key: `${name}-refused`, input: {} }]
  ids.push(await account.client.submit({ type: 'fault-grant', key: `${name}-refused`, items: refusedItems }))
  const operations = await settle(stack, account.client, ids, { person: true, withinMs: 2 * WAIT_MS })
  expect(operations.filter(({ status }) => status !== 'succeeded')).toEqual([])
  const log = await stack.effects.idleLog()
  for (const [key, entry] of Object.entries(log)) {
    if (key.startsWith(name))
      expect({ key, requests: entry.requests, applied: entry.applied }).toEqual({ key, requests: 1, applied: 1 })
  }
  await account.end()
  await account.close()
  expectNoExits(stack)
}

/** Long enough for a takeover, or for every connection to be given up. */
const outageOf = (index: number, random: Random): number =>
  index % 2 === 0 ? 3 * LEASE_MS + random.below(LEASE_MS) : SILENCE_MS

faultTest(
  'F31',
  'a host is cut off from the database with leases and calls in hand, and healed: others take over, nothing is done twice, what was in flight is in doubt until there is evidence',
  { short: null, long: 4 },
  async (fault) => {
    const missing = missingNamespaces()
    if (missing !== null) fault.skip(missing)
    await withServer({ settings: { listen_addresses: '0.0.0.0' } }, async (server) => {
      await letIn(server)
      const hosts = await openHosts(HOSTS, server.url)
      try {
        const hostOf = (number: number): Host => hosts.all[number] as Host
        await withStackOn(
          server,
          {
            ...{ apis: 2, workers: HOSTS, workerConcurrency: 3, random: seededRandom(fault.seed) },
            launch: ({ number }) => {
              const { command, env, url } = hostOf(number)
              return { command, env, url }
            },
          },
          async (stack) => {
            hosts.leadWorldTo(stack.effects.url)
            await fault.each(({ index, seed, random }) =>
              cutOff(
                stack,
                hostOf(CUT_OFF),
                `f31-${seed}`,
                index % 4 < 2 ? 'elsewhere' : 'here',
                outageOf(index, random),
              ),
            )
          },
        )
      } finally {
        await hosts.close()
      }
    })
  },
)
