import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { faultTest, isLong } from './harness/fault.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack, stretched } from './harness/stack.ts'

/** In an endless loop, the watchdog of a worker looks on for 30 s each time. */
const WAYS = isLong ? ['exit', 'segv', 'memory', 'reject', 'loop'] : ['exit', 'segv', 'memory', 'reject']
const ITEMS = 101
const BAD = 50
/** A death costs a lease, a start and a claim; there are five of them, and an endless loop takes 30 s to be seen. */
const withinMs = (): number => stretched(isLong ? 600_000 : 200_000)
const TEST_MS = { short: 900_000, long: 3_600_000 }

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({
    workers: WAYS.length,
    workerConcurrency: 1,
    random: seededRandom(21),
    types: [new URL('harness/poison-types.mjs', import.meta.url).pathname],
  })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const itemsOf = (key: string, mode: string, count = ITEMS, bad = BAD) =>
  Array.from({ length: count }, (_, index) => ({
    key: `${key}-${index}`,
    input: { mode: index === bad ? mode : 'ok' },
  }))

const rowsOf = async (key: string): Promise<Map<string, number>> => {
  const rows = await stack.sql<{ item_key: string; n: number }[]>`
    select item_key, count(*)::int as n from fault_rows where item_key like ${`${key}-%`} group by item_key`
  return new Map(rows.map(({ item_key, n }) => [item_key, n]))
}

const deadLettersOf = (id: string) => stack.sql<{ item_key: string; reason_code: string; attempts: number }[]>`
  select item_key, reason_code, attempts from dead_letters where operation_id = ${id.slice(3)}::uuid`

// before the others: a process whose memory they exhaust may still be ending when their items are all explained
faultTest(
  'F21',
  'an item that throws a text with a NUL fails with its reason, and no process ends',
  { short: 1, long: 5, timeoutMs: TEST_MS },
  (fault) =>
    fault.each(async ({ seed }) => {
      const deaths = stack.workers.reduce((sum, slot) => sum + slot.exits.length, 0)
      const key = `f21-throw-${seed}`
      const id = await account.client.submit({ type: 'poison-row', key, items: itemsOf(key, 'throw') })
      const [operation] = await settle(stack, account.client, [id], { withinMs: withinMs() })
      expect(operation).toMatchObject({ counts: { applied: ITEMS - 1, failed: 1 } })
      const [entry] = (await account.client.ledger(id)).filter(({ item_key }) => item_key === `${key}-${BAD}`)
      expect(entry?.state).toBe('failed')
      expect(stack.workers.reduce((sum, slot) => sum + slot.exits.length, 0)).toBe(deaths)
      await account.end()
    }),
)

faultTest(
  'F21',
  'an item that ends its process is a dead letter at 3, and the 100 good ones beside it are done once, uncharged',
  { short: 1, long: 3, timeoutMs: TEST_MS },
  (fault) =>
    fault.each(async ({ seed }) => {
      const keys = WAYS.map((way) => `f21-${seed}-${way}`)
      const ids = await Promise.all(
        WAYS.map((way, index) =>
          account.client.submit({ type: 'poison-row', key: keys[index] ?? '', items: itemsOf(keys[index] ?? '', way) }),
        ),
      )
      fault.count(WAYS.length - 1)
      const operations = await settle(stack, account.client, ids, { withinMs: withinMs() })
      for (const [index, way] of WAYS.entries()) {
        const [key = '', id = ''] = [keys[index], ids[index]]
        expect(operations[index], way).toMatchObject({
          status: 'partially_succeeded',
          counts: { applied: ITEMS - 1, failed: 1, uncertain: 0, unprocessed: 0 },
        })
        expect(await deadLettersOf(id), way).toEqual([
          { item_key: `${key}-${BAD}`, reason_code: 'WORKER_CRASH', attempts: 3 },
        ])
        const rows = await rowsOf(key)
        expect(rows.size, way).toBe(ITEMS - 1)
        expect(new Set(rows.values()), way).toEqual(new Set([1]))
        const [charged] = await stack.sql<{ n: number }[]>`
        select count(*)::int as n from ledger_entries
        where operation_id = ${id.slice(3)}::uuid and attempt > 1 and item_key <> ${`${key}-${BAD}`}`
        expect(charged?.n, way).toBe(0)
      }
      await account.end()
    }),
)

faultTest(
  'F21',
  'an external item that ends its process after its intent is uncertain first, and is sent once',
  { short: 1, long: 5, timeoutMs: TEST_MS },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f21-call-${seed}`
      const items = itemsOf(key, 'exit', 7, 3)
      const id = await account.client.submit({ type: 'poison-call', key, items })
      const [stopped] = await settle(stack, account.client, [id], {
        orAt: ['reconciliation_required'],
        withinMs: withinMs(),
      })
      expect(stopped?.status).toBe('reconciliation_required')
      const log = await stack.effects.idleLog()
      for (const item of items) expect(log[item.key]?.requests ?? 0, item.key).toBeLessThanOrEqual(1)
      expect(log[`${key}-3`]?.requests).toBe(1)
      // what was claimed beside it, and not sent before the process ended, is in doubt as well
      const unsent = items.map((item) => item.key).filter((itemKey) => log[itemKey] === undefined)
      const cases = await account.client.openCases(id)
      expect(cases.map(({ item_key }) => item_key)).toEqual(expect.arrayContaining([`${key}-3`, ...unsent]))
      const [ended] = await settle(stack, account.client, [id], { person: true })
      expect(ended).toMatchObject({ status: 'succeeded', counts: { applied: items.length } })
      const whole = await stack.effects.idleLog()
      for (const item of items) expect(whole[item.key]?.requests, item.key).toBe(1)
      await account.end()
    }),
)
