/**
 * A worker is frozen for three times its lease, until another one has taken over and ended what it held, and wakes up as a
 * zombie: it may look, and it may tell what it saw; it changes nothing else.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import type { ProbePoint } from '../../src/probe.ts'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import type { Member } from './harness/member.ts'
import { LEASE_MS, openStack, type Stack } from './harness/stack.ts'
import { makeGate, ofKey, onceDone } from './harness/traps.ts'

const WORKERS = 8
const ITEMS = 6
const WAIT_MS = 120_000

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ workers: WORKERS, workerConcurrency: 1, random: seededRandom(3) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

/** Every row that tells of one operation, but for what is not the protocol's. */
const readRows = async (key: string) => {
  const [row] = await stack.sql<{ rows: unknown }[]>`
    select jsonb_build_object(
      'operation', to_jsonb(o),
      'shards', (select jsonb_agg(to_jsonb(s) order by s.shard) from operation_shards s
        where s.tenant_id = o.tenant_id and s.operation_id = o.id),
      'effects', (select jsonb_agg(to_jsonb(e) order by e.effect_key) from effects e
        where e.tenant_id = o.tenant_id and e.operation_id = o.id),
      'ledger', (select jsonb_agg(to_jsonb(l) order by l.ord, l.seq) from ledger_entries l
        where l.tenant_id = o.tenant_id and l.operation_id = o.id),
      'retries', (select count(*) from item_retries r where r.tenant_id = o.tenant_id and r.operation_id = o.id),
      'cases', (select count(*) from reconciliation_cases c where c.tenant_id = o.tenant_id and c.operation_id = o.id),
      'events', (select count(*) from operation_events v where v.tenant_id = o.tenant_id and v.operation_id = o.id)) as rows
    from operations o where o.idempotency_key = ${key}`
  return row?.rows
}

/** Freezes the first worker that stands at `point` with this operation, until `thaw` and three leases have passed. */
const freezeAt = (key: string, point: ProbePoint, thaw: Promise<unknown>) =>
  stack.probes.arm({
    point,
    matches: ofKey(stack, key),
    ...(point === 'send-begun' ? { first: onceDone(stack, `${key}-0`) } : {}),
    action: { kind: 'freeze-until', thaw: () => Promise.all([thaw, sleep(3 * LEASE_MS)]) },
  })

/** Resolves when this very process has come to the end of its run. */
const endOfRun = async (key: string, zombie: Member): Promise<unknown> => {
  const { hit } = await stack.probes.arm({
    point: 'shard-finished',
    matches: async (subject, member) => member === zombie && (await ofKey(stack, key)(subject)),
    action: { kind: 'hold', until: () => Promise.resolve() },
  })
  return hit
}

/** A zombie that passed the end of its run before it was looked for. */
const END_MS = 10 * LEASE_MS
/** Then it has looked at its leases, and settled what it may settle. */
const BEAT_MS = LEASE_MS

const plan = (type: 'fault-grant' | 'fault-row', key: string, count = ITEMS) => ({
  type,
  key,
  items: Array.from({ length: count }, (_, index) => ({ key: `${key}-${index}`, input: {} })),
})

const zombieChangesNothing = async (point: ProbePoint, type: 'fault-grant' | 'fault-row', key: string) => {
  const { opened, open } = makeGate()
  const trap = await freezeAt(key, point, opened)
  const id = await account.client.submit(plan(type, key))
  const { member: zombie } = await trap.hit
  await until(`${key} is ended by another`, async () => isFinal(await account.client.get(id)), WAIT_MS)
  const moving = zombie.freeze(0)
  const ended = point === 'shard-finished' ? sleep(0) : Promise.race([endOfRun(key, zombie), sleep(END_MS)])
  const before = await readRows(key)
  expect((before as { operation: { status: string } }).operation.status).toBe('succeeded')
  open()
  await moving
  await ended
  await sleep(BEAT_MS)
  expect(await readRows(key)).toEqual(before)
}

const STANDING = [
  ['shard-claimed', 'fault-grant'],
  ['run-started', 'fault-grant'],
  ['window-read', 'fault-grant'],
  ['run-ended', 'fault-grant'],
  ['shard-finished', 'fault-grant'],
  ['batch-handled', 'fault-row'],
  ['run-ended', 'fault-row'],
] as const

faultTest(
  'F3',
  'a worker wakes after 3 leases: its late claims, cursor moves and finishes touch no row',
  { short: STANDING.length, long: 10 * STANDING.length },
  async (fault) => {
    const watch = account.watch()
    for (let turn = 0; turn < fault.runs / STANDING.length; turn++) {
      fault.count(STANDING.length)
      const key = `f3-${fault.seed}-${turn}`
      const attempts = STANDING.map(([point, type], index) => zombieChangesNothing(point, type, `${key}-${index}`))
      for (const attempt of await Promise.allSettled(attempts))
        if (attempt.status === 'rejected') fault.fail(attempt.reason)
    }
    await watch.stop()
    await account.end()
  },
)

const lateOutcome = async (point: 'send-begun' | 'send-answered', key: string): Promise<void> => {
  const { opened, open } = makeGate()
  const trap = await freezeAt(key, point, opened)
  const id = await account.client.submit(plan('fault-grant', key, 1))
  const { member: zombie } = await trap.hit
  const isOpen = async (): Promise<boolean> => (await account.client.get(id)).status === 'reconciliation_required'
  await until(`${key} is in doubt`, isOpen, WAIT_MS)
  const [found] = await account.client.openCases(id)
  expect(found?.cause).toBe('worker_lost')
  const moving = zombie.freeze(0)
  open()
  await moving
  await until(`${key} is told late`, async () => isFinal(await account.client.get(id)), WAIT_MS)
  const ledger = await account.client.ledger(id)
  expect(ledger.map(({ state, source }) => `${state} by ${source}`)).toEqual([
    'uncertain by recovery',
    'applied by late_worker',
  ])
  expect((await stack.effects.log())[`${key}-0`]).toMatchObject({ requests: 1, applied: 1 })
  expect(await account.client.openCases(id)).toEqual([])
  expect((await account.client.get(id)).status).toBe('succeeded')
}

faultTest(
  'F3',
  'a worker wakes after 3 leases with an outcome: in doubt until then, and kept as late_worker',
  { short: 4, long: 40 },
  async (fault) => {
    const watch = account.watch()
    for (let made = 0; made < fault.runs; made += 4) {
      fault.count(4)
      const attempts = [0, 1, 2, 3].map((index) =>
        lateOutcome(index % 2 === 0 ? 'send-begun' : 'send-answered', `f3-late-${fault.seed}-${made + index}`),
      )
      for (const attempt of await Promise.allSettled(attempts))
        if (attempt.status === 'rejected') fault.fail(attempt.reason)
    }
    await watch.stop()
    await account.end()
  },
)
