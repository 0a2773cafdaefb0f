import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import type { ProbePoint } from '../../src/probe.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Submit } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import type { Member } from './harness/member.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { ofKey, within } from './harness/traps.ts'

const HIT_MS = 60_000
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

/** Submits, and resolves when a worker stands at this point with the operation; it goes on at once. */
const submitUpTo = async (
  point: ProbePoint,
  { until = () => Promise.resolve(), ...submit }: Submit & { until?: () => Promise<void> },
): Promise<{ id: string; member: Member }> => {
  const { key } = submit
  const trap = await stack.probes.arm({ point, matches: ofKey(stack, key), action: { kind: 'hold', until } })
  const id = await account.client.submit(submit)
  const { member } = await within(HIT_MS, `${key} comes to ${point}`, trap.hit)
  return { id, member }
}

const rowsOf = async (key: string): Promise<number> =>
  (await stack.sql`select from fault_rows where item_key like ${`${key}-%`}`).length

const never = new Promise<void>(() => {})

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
      const { id, member } = await submitUpTo('send-begun', { type: 'fault-grant', key, items })
      // npm and a process group deliver one signal twice
      member.signal('SIGTERM')
      member.signal('SIGTERM')
      expect(await member.exited).toEqual({ code: 0, signal: null })
      const [shard] = await claimsOf(id)
      expect(shard?.state === 'done' || (shard?.claims ?? 0) <= 1).toBe(true)
      const [operation] = await settle(stack, account.client, [id])
      expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 40, uncertain: 0 } })
      const log = await stack.effects.log()
      for (const item of items) expect(log[item.key]?.requests, item.key).toBe(1)
      await account.end()
    }),
)

const twice = async (member: Member): Promise<void> => {
  member.signal('SIGTERM')
  await sleep(LATER_MS)
  expect(member.isRunning).toBe(true) // the first one waits for what is under way
  member.signal('SIGTERM')
  expect(await member.exited).toEqual({ code: 1, signal: null })
}

faultTest(
  'F22',
  'a later SIGTERM means now: exit 1; a batch is rolled back, and a call in the air is uncertain',
  { short: 2, long: 20 },
  (fault) =>
    fault.each(async ({ index, seed }) => {
      const key = `f22-now-${seed}`
      if (index % 2 === 0) {
        const items = itemsOf(key, 3, { ms: 6_000 })
        const { id, member } = await submitUpTo('batch-effects-taken', { type: 'slow-row', key, items })
        await twice(member)
        expect((await account.client.act('cancel', id)).status).toBeLessThan(300)
        const [operation] = await settle(stack, account.client, [id])
        expect(operation).toMatchObject({ status: 'cancelled', counts: { applied: 0, unprocessed: 3 } })
        expect(await rowsOf(key)).toBe(0)
      } else {
        // it has its answer and is not told of it
        const items = itemsOf(key, 1, {})
        const { id, member } = await submitUpTo('send-answered', {
          type: 'fault-grant',
          key,
          items,
          until: () => never,
        })
        await twice(member)
        const orAt = ['reconciliation_required']
        const [operation] = await settle(stack, account.client, [id], { orAt })
        expect(operation).toMatchObject({ status: 'reconciliation_required', counts: { uncertain: 1 } })
        const [settled] = await settle(stack, account.client, [id], { person: true })
        expect(settled).toMatchObject({ status: 'succeeded', counts: { applied: 1 } })
        expect((await stack.effects.log())[`${key}-0`]?.requests).toBe(1)
      }
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
      const items = itemsOf(key, 1, { ms: 28_000 })
      const { id, member } = await submitUpTo('batch-effects-taken', { type: 'slow-row', key, items })
      member.signal('SIGTERM')
      expect(await member.exited).toEqual({ code: 1, signal: null })
      const [operation] = await settle(stack, account.client, [id], { withinMs: 180_000 })
      expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 1 } })
      expect(await rowsOf(key)).toBe(1)
      await account.end()
    }),
)
