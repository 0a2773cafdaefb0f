/**
 * A process is struck once at each boundary of the protocol, with each action; boundaries.ts says what has to become of the
 * item. Runs go side by side, each with an operation and a trap of its own, in workers that hold one shard each.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pLimit from 'p-limit'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { ACTIONS, type Action, BOUNDARIES, type Boundary } from './boundaries.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal, NoAnswer, type Operation } from './harness/client.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import type { FaultAction, Hit } from './harness/probes.ts'
import { LEASE_MS, openStack, type Stack, settleMs } from './harness/stack.ts'
import { ofKey, onceDone } from './harness/traps.ts'

const WORKERS = 8
/** Two workers more than runs, so that somebody is always there to take over. */
const AT_ONCE = 6
const FREEZE_MS = LEASE_MS + 500
const SEEDS = 5
const TAKEN_MS = 120_000

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: WORKERS, workerConcurrency: 1, random: seededRandom(2) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

interface Standing {
  state: string
  epoch: number
}

/** What the database says of the only item of an operation, and how often its shard was claimed; null: no such operation. */
const readItem = async (key: string): Promise<Standing | null> => {
  const [row] = await stack.sql<{ state: string; epoch: number }[]>`
    select s.lease_epoch::int as epoch, case when e.state = 'intent' then 'intent' else coalesce((
      select l.state from ledger_entries l
      where l.tenant_id = o.tenant_id and l.operation_id = o.id and l.state is not null
      order by l.seq desc limit 1), 'unprocessed') end as state
    from operations o join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
      join operation_items i on i.tenant_id = o.tenant_id and i.operation_id = o.id
      left join effects e on e.tenant_id = o.tenant_id and e.effect_key = i.effect_key
    where o.idempotency_key = ${key}`
  return row ?? null
}

/** A trap for one operation: its client may not know it yet. */
const arm = (key: string, point: Boundary['point'], action: FaultAction, first?: (hit: Hit) => Promise<unknown>) =>
  stack.probes.arm({
    point,
    action,
    ...(first ? { first } : {}),
    matches: async (subject) =>
      (await ofKey(stack, key)(subject)) &&
      // passed before, with nothing to explain
      (point !== 'orphans-explained' || (await readItem(key))?.state === 'uncertain'),
  })

const takeOver = async (key: string, { taken }: Boundary, epoch: number): Promise<void> => {
  if (taken === null) return void (await sleep(FREEZE_MS))
  await until(
    `${key} is taken over`,
    async () => {
      const now = await readItem(key)
      return now !== null && now.epoch > epoch && now.state === taken
    },
    TAKEN_MS,
  )
}

/** Repeats also what was answered with 500: the key makes it safe. */
const submit = async (boundary: Boundary, key: string): Promise<string> => {
  const { type, mode } = boundary
  const submission = {
    type,
    key,
    items: [{ key: `${key}-0`, input: type === 'fault-row' ? {} : { mode: mode ?? 'ok' } }],
  }
  for (;;) {
    const answer = await account.client.trySubmit(submission).catch((error: unknown) => {
      if (error instanceof NoAnswer) return null
      throw error
    })
    if (answer?.status === 202) return String(answer.body.id)
    expect([undefined, 500, 503]).toContain(answer?.status)
    await sleep(50)
  }
}

const settledAs = async (id: string, what: string, holds: (operation: Operation) => boolean): Promise<Operation> => {
  let operation = await account.client.get(id)
  await until(
    `${id} ${what}`,
    async () => {
      operation = await account.client.get(id)
      return holds(operation)
    },
    settleMs(),
  )
  return operation
}

const closeByHand = async (id: string, key: string, sent: boolean): Promise<void> => {
  const log = await stack.effects.idleLog()
  expect(log[`${key}-0`]?.applied ?? 0).toBe(sent ? 1 : 0)
  const cases = await account.client.openCases(id)
  expect(cases).toHaveLength(1)
  const evidence = { evidence_ref: `effect log: ${key}-0` }
  for (const found of cases) {
    const { status } = await account.client.resolve(
      found,
      sent ? { resolution: 'applied', ...evidence } : { resolution: 'not_applied', retry: true, ...evidence },
    )
    expect([200, 409]).toContain(status) // 409: the answer to an earlier try was lost with its api
  }
}

const strike = async (boundary: Boundary, action: Action, key: string): Promise<void> => {
  const { approach, point, at } = boundary
  const earlier =
    approach === 'plain'
      ? null
      : await arm(key, approach === 'orphaned' ? 'send-answered' : 'shard-finished', { kind: 'kill' })
  let epoch = 0
  const thawed: Promise<void>[] = []
  const actions: Record<Action, FaultAction> = {
    kill: { kind: 'kill' },
    freeze: { kind: 'freeze-until', thaw: () => takeOver(key, boundary, epoch) },
    cut: { kind: 'cut' },
    throw: { kind: 'throw' },
  }
  let stood: string | null = null
  const trap = await arm(key, point, actions[action], async (hit) => {
    if (point === 'send-begun') await onceDone(stack, `${key}-0`)(hit)
    const now = await readItem(key)
    epoch = now?.epoch ?? 0
    stood = now?.state ?? null
  })
  const submitting = submit(boundary, key)
  submitting.catch(() => {})
  const { member } = await trap.hit
  if (at === 'open') expect(stood).not.toBeNull()
  else expect(stood).toBe(at)
  if (action === 'freeze') thawed.push(member.freeze(0))
  await earlier?.hit
  const id = await submitting
  await Promise.all(thawed)
  const fate = boundary.fate[action]
  if (fate !== 'alone') {
    await settledAs(id, 'waits for a person', ({ status }) => status === 'reconciliation_required')
    await closeByHand(id, key, fate === 'doubt-sent')
  }
  const { status, counts } = await settledAs(id, 'is over', isFinal)
  expect({ status, applied: counts.applied }).toEqual({ status: 'succeeded', applied: 1 })
  const cases = await account.client.call('GET', `/reconciliation?operation_id=${id}`)
  const byHand = (cases.body.items as { resolved_by: string }[]).filter(
    (found) => !found.resolved_by?.startsWith('system:'),
  )
  expect(byHand).toHaveLength(fate === 'alone' ? 0 : 1)
  await checkTimes(boundary, key)
}

const checkTimes = async ({ type }: Boundary, key: string): Promise<void> => {
  const item = `${key}-0`
  if (type !== 'fault-row') return expect((await stack.effects.log())[item]).toMatchObject({ requests: 1, applied: 1 })
  const rows = await stack.sql`select from fault_rows where item_key = ${item}`
  expect(rows).toHaveLength(1)
}

const runAll = async (fault: Fault, action: Action): Promise<void> => {
  const limit = pLimit(AT_ONCE)
  const watch = account.watch()
  const runs = Array.from({ length: fault.runs / BOUNDARIES.length }, (_, turn) =>
    BOUNDARIES.map((boundary) =>
      limit(async () => {
        fault.count(1)
        const key = `f2-${fault.seed}-${action}-${boundary.point}-${turn}`
        await strike(boundary, action, key).catch((error: unknown) =>
          fault.fail(new Error(`${action} at ${boundary.point}`, { cause: error })),
        )
      }),
    ),
  )
  await Promise.all(runs.flat())
  await watch.stop()
  await account.end()
}

for (const action of ACTIONS) {
  faultTest(
    'F2',
    `${action} at ${BOUNDARIES.length} boundaries: what becomes of the item is what the table says`,
    { short: BOUNDARIES.length, long: SEEDS * BOUNDARIES.length },
    (fault) => runAll(fault, action),
  )
}
