import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { seededRandom } from '../support/random.ts'
import { openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { LEASE_MS, openStack, type Stack } from './harness/stack.ts'

/** Of the worker's loop. */
const POLL_MS = 1_000
const HEARTBEAT_MS = LEASE_MS / 3
const ITEM_MS = 300
/** Of statements and processes on a busy machine. */
const BUSY_MS = 3_000
const KILL_EACH_MS = 200
const OPERATIONS = 4

/** Which of the two is broken just now. */
let isOff = false
let stack: Stack
beforeAll(async () => {
  stack = await openStack({
    random: seededRandom(25),
    decide: (statement) => (isOff && /^(listen\b|select pg_notify)/.test(statement) ? 'cut' : 'pass'),
  })
})
afterAll(() => stack?.close())

const endListeners = (): Promise<{ pid: number }[]> => stack.sql<{ pid: number }[]>`
  select pid from pg_stat_activity
  where datname = current_database() and application_name like '% wake-ups' and pg_terminate_backend(pid)`

interface Latency {
  id: string
  claimed_ms: number
  acknowledged_ms: number | null
}

/** By the database's clock alone. */
const readLatencies = (): Promise<Latency[]> => stack.sql<Latency[]>`
  select o.id, (extract(epoch from o.started_at - o.created_at) * 1000)::int as claimed_ms,
    (extract(epoch from max(s.stop_seen_at) - o.cancel_requested_at) * 1000)::int as acknowledged_ms
  from operations o join operation_shards s on s.operation_id = o.id
  where o.started_at is not null group by o.id, o.tenant_id`

const FAULTS: Record<string, () => () => Promise<number>> = {
  'no wake-up arrives any more': () => {
    isOff = true
    return async () => {
      isOff = false
      return 1
    }
  },
  'the sessions that listen are killed every 200 ms': () => {
    let killed = 0
    let over = false
    const killing = (async () => {
      while (!over) {
        killed += (await endListeners()).length
        await sleep(KILL_EACH_MS)
      }
    })()
    return async () => {
      over = true
      await killing
      return killed
    }
  },
}

for (const [name, begin] of Object.entries(FAULTS)) {
  faultTest(
    'F25',
    `${name}: operations are claimed within a poll, cancels are seen within a heartbeat and an item, and all ends`,
    { short: 2, long: 20 },
    ({ each }) =>
      each(async ({ index, seed }) => {
        const account = openAccount(stack)
        const endFault = begin()
        await endListeners()
        const ids = await Promise.all(
          Array.from({ length: OPERATIONS }, (_, n) => {
            const key = `f25-${name.length}-${seed}-${index}-${n}`
            const items = Array.from({ length: 12 }, (_, item) => ({
              key: `${key}-${item}`,
              input: { delay_ms: ITEM_MS },
            }))
            return account.client.submit({ type: 'fault-asked', key, items })
          }),
        )
        const [cancelled = '', also = ''] = ids
        for (const id of [cancelled, also]) {
          while ((await account.client.get(id)).status === 'pending') await sleep(50)
          expect([200, 202, 409]).toContain((await account.client.act('cancel', id)).status)
        }
        await account.end()
        expect(await endFault()).toBeGreaterThan(0)
        const latencies = (await readLatencies()).filter(({ id }) => ids.includes(formatId('op', id)))
        expect(latencies).toHaveLength(OPERATIONS)
        for (const { claimed_ms, acknowledged_ms } of latencies) {
          expect(claimed_ms).toBeLessThan(POLL_MS + BUSY_MS)
          if (acknowledged_ms !== null) expect(acknowledged_ms).toBeLessThan(HEARTBEAT_MS + ITEM_MS + BUSY_MS)
        }
        await account.during()
        await account.close()
      }),
  )
}
