import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { faultTest } from './harness/fault.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Slot, type Stack } from './harness/stack.ts'

/** Longer than the time in which a second signal is the same one. */
const LATER_MS = 2_300

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({
    workers: 2,
    random: seededRandom(22),
    types: ['types.yaml', 'slow-types.mjs'].map((file) => new URL(`harness/${file}`, import.meta.url).pathname),
  })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const itemsOf = (key: string, count: number, input: object) =>
  Array.from({ length: count }, (_, index) => ({ key: `${key}-${index}`, input }))

/** Waits until one of the workers holds a shard of the operation and has calls in the air or a batch under way. */
const holderOf = async (id: string): Promise<Slot> => {
  let owner: string | undefined
  await until('a worker holds a shard', async () => {
    const [row] = await stack.sql<{ owner: string }[]>`
      select lease_owner::text as owner from operation_shards
      where operation_id = ${id.slice(3)}::uuid and state = 'leased'`
    owner = row?.owner
    return owner !== undefined
  })
  const slot = stack.workers.find(({ member }) => member.output().includes(String(owner)))
  if (!slot) throw new Error(`nobody is worker ${owner}`)
  return slot
}

const claimsOf = (id: string) => stack.sql<{ state: string; claims: number; epoch: number }[]>`
  select state, claims::int as claims, lease_epoch::int as epoch from operation_shards
  where operation_id = ${id.slice(3)}::uuid`

faultTest(
  'F22',
  'SIGTERM under load: what is in the air comes home, the lease is given back, exit 0',
  { short: 4, long: 50 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f22-${seed}`
      const items = itemsOf(key, 40, { delay_ms: 300 })
      const id = await account.client.submit({ type: 'fault-grant', key, items })
      const slot = await holderOf(id)
      const leaving = slot.member
      await until('a call is in the air', async () =>
        Object.keys(await stack.effects.log()).some((name) => name.startsWith(`${key}-`)),
      )
      // npm and a process group deliver one signal twice
      leaving.signal('SIGTERM')
      leaving.signal('SIGTERM')
      expect(await leaving.exited).toEqual({ code: 0, signal: null })
      const [shard] = await claimsOf(id)
      expect(shard?.state === 'done' || (shard?.claims ?? 0) <= 1).toBe(true)
      const [operation] = await settle(stack, account.client, [id])
      expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 40, uncertain: 0 } })
      const log = await stack.effects.log()
      for (const item of items) expect(log[item.key]?.requests, item.key).toBe(1)
      await account.end()
    }),
)

faultTest(
  'F22',
  'a later SIGTERM means now: exit 1, nothing twice, and what was in the air is uncertain',
  { short: 1, long: 10 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f22-now-${seed}`
      const id = await account.client.submit({ type: 'slow-row', key, items: itemsOf(key, 3, { ms: 6_000 }) })
      const { member } = await holderOf(id)
      member.signal('SIGTERM')
      await sleep(LATER_MS)
      expect(member.isRunning).toBe(true)
      member.signal('SIGTERM')
      expect(await member.exited).toEqual({ code: 1, signal: null })
      expect((await account.client.act('cancel', id)).status).toBeLessThan(300)
      const [operation] = await settle(stack, account.client, [id], { withinMs: 90_000 })
      const rows = await stack.sql`select from fault_rows where item_key like ${`${key}-%`}`
      expect(rows.length).toBe(operation?.counts.applied)
      await account.end()
    }),
)

faultTest(
  'F22',
  'a grace that is shorter than the item: exit 1, its batch is rolled back and done by another worker',
  { short: null, long: 3 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f22-grace-${seed}`
      const id = await account.client.submit({ type: 'slow-row', key, items: itemsOf(key, 1, { ms: 28_000 }) })
      const { member } = await holderOf(id)
      member.signal('SIGTERM')
      expect(await member.exited).toEqual({ code: 1, signal: null })
      const [operation] = await settle(stack, account.client, [id], { withinMs: 180_000 })
      expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 1 } })
      const rows = await stack.sql`select from fault_rows where item_key like ${`${key}-%`}`
      expect(rows).toHaveLength(1)
      await account.end()
    }),
)
