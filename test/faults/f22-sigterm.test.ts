import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import type { ProbePoint } from '../../src/probe.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Submit } from './harness/client.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import type { Member } from './harness/member.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { ofKey, within } from './harness/traps.ts'

const HIT_MS = 60_000
/** Longer than the time in which a second signal is the same one. */
const LATER_MS = 2_300

/** Its calls last longer than a signal takes, and its lease as long as a busy machine needs. */
const TYPES = ['patient.yaml', 'slow-types.mjs']
const ITEMS = 24
const ITEM_MS = 300

let stack: Stack
beforeAll(async () => {
  stack = await openStack({
    workers: 2,
    random: seededRandom(22),
    types: TYPES.map((file) => new URL(`harness/${file}`, import.meta.url).pathname),
  })
})
afterAll(() => stack?.close())

type Attempt = (account: Account, run: { index: number; seed: number }) => Promise<void>

/** Each try has an account of its own: what one of them leaves behind is not held against the next. */
const tries =
  (attempt: Attempt) =>
  (fault: Fault): Promise<void> =>
    fault.each(async (run) => {
      const account = openAccount(stack)
      await attempt(account, run)
      await account.end()
      await account.close()
    })

const itemsOf = (key: string, count: number, input: object) =>
  Array.from({ length: count }, (_, index) => ({ key: `${key}-${index}`, input }))

/** Submits, and resolves when a worker stands at this point with the operation; it goes on at once. */
const submitUpTo = async (
  { client }: Account,
  point: ProbePoint,
  { until = () => Promise.resolve(), ...submit }: Submit & { until?: () => Promise<void> },
): Promise<{ id: string; member: Member }> => {
  const { key } = submit
  const trap = await stack.probes.arm({ point, matches: ofKey(stack, key), action: { kind: 'hold', until } })
  const id = await client.submit(submit)
  const { member } = await within(HIT_MS, `${key} comes to ${point}`, trap.hit)
  return { id, member }
}

const rowsOf = async (key: string): Promise<number> =>
  (await stack.sql`select from fault_rows where item_key like ${`${key}-%`}`).length

const never = new Promise<void>(() => {})

/** The worker that holds the only shard; null: nobody. */
const ownerOf = async (id: string): Promise<string | null> => {
  const [row] = await stack.sql<{ owner: string | null }[]>`
    select case state when 'leased' then lease_owner::text end as owner from operation_shards
    where operation_id = ${id.slice(3)}::uuid`
  return row?.owner ?? null
}

/** What recovery had to say of sends whose worker was gone. */
const lostSends = async (id: string): Promise<number> =>
  (
    await stack.sql`
      select from ledger_entries where operation_id = ${id.slice(3)}::uuid and reason_code = 'WORKER_LOST'`
  ).length

faultTest(
  'F22',
  'SIGTERM under load: what is in the air comes home, the lease is given back, exit 0',
  { short: 4, long: 20 },
  tries(async (account, { seed }) => {
    const key = `f22-${seed}`
    const items = itemsOf(key, ITEMS, { delay_ms: ITEM_MS })
    const { id, member } = await submitUpTo(account, 'send-begun', { type: 'fault-patient', key, items })
    // npm and a process group deliver one signal twice
    const owner = await ownerOf(id)
    member.signal('SIGTERM')
    member.signal('SIGTERM')
    expect(await member.exited).toEqual({ code: 0, signal: null })
    expect(await ownerOf(id), 'its lease is given back').not.toBe(owner)
    const [operation] = await settle(stack, account.client, [id])
    expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: ITEMS } })
    expect(await lostSends(id)).toBe(0)
    const log = await stack.effects.log()
    for (const item of items) expect(log[item.key]?.requests, item.key).toBe(1)
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
  { short: 2, long: 10 },
  tries(async (account, { index, seed }) => {
    const key = `f22-now-${seed}`
    if (index % 2 === 0) {
      const items = itemsOf(key, 3, { ms: 6_000 })
      const { id, member } = await submitUpTo(account, 'batch-effects-taken', { type: 'slow-row', key, items })
      await twice(member)
      expect((await account.client.act('cancel', id)).status).toBeLessThan(300)
      const [operation] = await settle(stack, account.client, [id])
      expect(operation).toMatchObject({ status: 'cancelled', counts: { applied: 0, unprocessed: 3 } })
      expect(await rowsOf(key)).toBe(0)
    } else {
      // it has its answer and is not told of it
      const items = itemsOf(key, 1, {})
      const { id, member } = await submitUpTo(account, 'send-answered', {
        type: 'fault-patient',
        key,
        items,
        until: () => never,
      })
      await twice(member)
      const [operation] = await settle(stack, account.client, [id])
      expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 1 } })
      expect((await account.client.ledger(id)).map(({ state, source }) => `${state} ${source}`)).toEqual([
        'uncertain recovery',
        'applied lookup',
      ])
      expect((await stack.effects.log())[`${key}-0`]?.requests).toBe(1)
    }
  }),
)

faultTest(
  'F22',
  'a grace that is shorter than the item: exit 1, its batch is rolled back and done by another worker',
  { short: null, long: 3 },
  tries(async (account, { seed }) => {
    const key = `f22-grace-${seed}`
    const items = itemsOf(key, 1, { ms: 28_000 })
    const { id, member } = await submitUpTo(account, 'batch-effects-taken', { type: 'slow-row', key, items })
    member.signal('SIGTERM')
    expect(await member.exited).toEqual({ code: 1, signal: null })
    const [operation] = await settle(stack, account.client, [id], { withinMs: 180_000 })
    expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: 1 } })
    expect(await rowsOf(key)).toBe(1)
  }),
)
