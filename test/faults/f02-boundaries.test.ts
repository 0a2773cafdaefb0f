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
import { settle } from './harness/phase-two.ts'
import type { FaultAction, Hit } from './harness/probes.ts'
import { LEASE_MS, openStack, type Stack, settleMs } from './harness/stack.ts'
import { ofItem, ofKey, onceDone, readStanding, type Standing, within } from './harness/traps.ts'

const WORKERS = 8
/** Two workers more than runs, so that somebody is always there to take over. */
const AT_ONCE = 6
const FREEZE_MS = LEASE_MS + 500
const SEEDS = 5
const TAKEN_MS = 120_000
/** A run that a busy machine led another way, such as by a lease that ran out by itself, is made again so often. */
const MISSES_MAX = 5
/** What a probe tells may be on its way when the operation is over. */
const MISSED_MS = 3_000

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

/** A trap for one operation: its client may not know it yet. */
const arm = (
  key: string,
  { point, at }: Pick<Boundary, 'point' | 'at'>,
  action: FaultAction,
  first?: (hit: Hit) => Promise<unknown>,
) =>
  stack.probes.arm({
    point,
    action,
    ...(first ? { first } : {}),
    matches: at === null || at === 'open' ? ofKey(stack, key) : ofItem(stack, key, at),
  })

const takeOver = async (key: string, { taken }: Boundary, epoch: number): Promise<void> => {
  if (taken === null) return void (await sleep(FREEZE_MS))
  await until(
    `${key} is taken over`,
    async () => {
      const now = await readStanding(stack, key)
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

const settledAs = async (
  id: string,
  what: string,
  holds: (operation: Operation) => boolean | Promise<boolean>,
): Promise<Operation> => {
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

/** Where its first worker dies. */
const EARLIER = {
  orphaned: { point: 'send-answered', at: 'intent' },
  unsettled: { point: 'shard-finished', at: 'applied' },
} as const

/** The operation went another way than the table says, by something else than the blow. */
class Missed extends Error {}

/** Throws `Missed` when the operation is where nothing moves it any more. */
const missing = async (boundary: Boundary, submitting: Promise<string>, hit: Promise<unknown>): Promise<never> => {
  const isOver = (operation: Operation): boolean =>
    isFinal(operation) || (operation.status === 'reconciliation_required' && boundary.type !== 'fault-asked')
  const id = await submitting
  let isHit = false
  hit.then(() => {
    isHit = true
  })
  await until(`${id} is over, or struck`, async () => isHit || isOver(await account.client.get(id)), 2 * TAKEN_MS)
  await sleep(MISSED_MS)
  throw new Missed(id)
}

/**
 * Waits until it is final. Throws `Missed` where nobody was to be in doubt, and somebody is, after a lease more was lost than
 * the blow explains: on a busy machine one ran out by itself, with a call in the air.
 */
const ended = async (boundary: Boundary, id: string, key: string, epoch: number): Promise<Operation> => {
  let isMissed = false
  const operation = await settledAs(id, 'is over', async (now) => {
    if (isFinal(now)) return true
    if (now.status !== 'reconciliation_required' || boundary.type === 'fault-asked') return false
    isMissed = ((await readStanding(stack, key))?.epoch ?? 0) > epoch + 1
    return isMissed
  })
  if (isMissed) throw new Missed(id)
  return operation
}

/** What was missed, or went wrong, comes to its end like anything else; what does not, the account tells. */
const endOpen = async (ids: readonly string[]): Promise<void> => {
  await settle(stack, account.client, ids, { person: true }).catch(() => {})
}

const strikeOnce = async (boundary: Boundary, action: Action, key: string): Promise<void> => {
  const { approach, point, at } = boundary
  const what = `somebody stands at ${point}`
  const earlier = approach === 'plain' ? null : await arm(key, EARLIER[approach], { kind: 'kill' })
  let epoch = 0
  const thawed: Promise<void>[] = []
  const actions: Record<Action, FaultAction> = {
    kill: { kind: 'kill' },
    freeze: { kind: 'freeze-until', thaw: () => takeOver(key, boundary, epoch) },
    cut: { kind: 'cut' },
    throw: { kind: 'throw' },
  }
  let stood: Standing | null = null
  const trap = await arm(key, boundary, actions[action], async (hit) => {
    if (point === 'send-begun') await onceDone(stack, `${key}-0`)(hit)
    stood = await readStanding(stack, key)
    epoch = stood?.epoch ?? 0
  })
  const submitting = submit(boundary, key)
  submitting.catch(() => {})
  const missed = missing(boundary, submitting, trap.hit)
  missed.catch(() => {})
  const { member } = await within(TAKEN_MS, what, Promise.race([trap.hit, missed])).finally(async () => {
    await trap.disarm()
    await earlier?.disarm()
  })
  expect(stood === null).toBe(at === null)
  if (action === 'freeze') thawed.push(member.freeze(0))
  const id = await submitting
  await Promise.all(thawed)
  const fate = boundary.fate[action]
  if (fate !== 'alone') {
    await settledAs(id, 'waits for a person', ({ status }) => status === 'reconciliation_required')
    await closeByHand(id, key, fate === 'doubt-sent')
  }
  const { status, counts } =
    fate === 'alone' ? await ended(boundary, id, key, epoch) : await settledAs(id, 'is over', isFinal)
  expect({ status, applied: counts.applied }).toEqual({ status: 'succeeded', applied: 1 })
  const cases = await account.client.call('GET', `/reconciliation?operation_id=${id}`)
  const byHand = (cases.body.items as { resolution: { source: string } | null }[]).filter(
    ({ resolution }) => resolution?.source === 'operator',
  )
  expect(byHand).toHaveLength(fate === 'alone' ? 0 : 1)
  await checkTimes(boundary, key)
}

/** Where an operation stands whose run went wrong, and those that were made for it again. */
const describe = async (key: string): Promise<string> => {
  const rows = await stack.sql`
    select o.idempotency_key, o.status, s.state, s.lease_epoch, s.claims, s.isolate_until, s.cursor, s.lease_owner,
      s.lease_expires_at - now() as lease, s.run_at - now() as due
    from operations o join operation_shards s on s.tenant_id = o.tenant_id and s.operation_id = o.id
    where o.idempotency_key like ${`${key}%`}`
  return JSON.stringify(rows)
}

const strike = async (boundary: Boundary, action: Action, key: string): Promise<void> => {
  for (let misses = 0; ; misses++) {
    try {
      return await strikeOnce(boundary, action, misses === 0 ? key : `${key}-${misses}`)
    } catch (error) {
      if (!(error instanceof Missed) || misses === MISSES_MAX) throw new Error(await describe(key), { cause: error })
      await endOpen([error.message])
    }
  }
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
  await endOpen(account.ids()) // what failed must not hold up the next action
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
