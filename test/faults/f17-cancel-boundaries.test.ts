/**
 * A cancel arrives while a process stands at a boundary of the protocol. The process is held there until the cancel has been
 * answered; then it goes on. What was not sent by then is not sent, what was sent is collected, and the answer was true.
 */
import pLimit from 'p-limit'
import { afterAll, beforeAll, expect } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { ProbePoint } from '../../src/probe.ts'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { expectOneEnd, expectTruthful } from './harness/cancels.ts'
import { isFinal } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { makeGate, ofItem, ofKey, onceDone, type Standing, within } from './harness/traps.ts'

const AT_ONCE = 4
const WAIT_MS = 120_000
const RUNS_LATER_MS = 3_600_000

/** What becomes of the only item: never sent, or done and told. */
type Fate = 'unsent' | 'done'

type Boundary = readonly [
  point: ProbePoint,
  type: 'fault-grant' | 'fault-row',
  at: Standing['state'] | 'open',
  fate: Fate,
]

const BOUNDARIES: readonly Boundary[] = [
  ['submission-committed', 'fault-grant', 'open', 'unsent'],
  ['shard-claimed', 'fault-grant', 'unprocessed', 'unsent'],
  ['orphans-explained', 'fault-grant', 'unprocessed', 'unsent'],
  ['run-started', 'fault-grant', 'unprocessed', 'unsent'],
  ['window-read', 'fault-grant', 'unprocessed', 'unsent'],
  ['intents-committed', 'fault-grant', 'intent', 'unsent'],
  ['send-allowed', 'fault-grant', 'intent', 'unsent'],
  ['send-begun', 'fault-grant', 'intent', 'done'],
  ['send-answered', 'fault-grant', 'intent', 'done'],
  ['outcome-committed', 'fault-grant', 'applied', 'done'],
  ['run-ended', 'fault-grant', 'applied', 'done'],
  ['shard-finished', 'fault-grant', 'applied', 'done'],
  ['settle-facts-read', 'fault-grant', 'applied', 'done'],
  ['settled', 'fault-grant', 'applied', 'done'],
  ['run-started', 'fault-row', 'unprocessed', 'unsent'],
  ['batch-effects-taken', 'fault-row', 'unprocessed', 'unsent'],
  ['batch-handled', 'fault-row', 'unprocessed', 'unsent'],
  ['batch-committed', 'fault-row', 'applied', 'done'],
]

const SWEPT: readonly ProbePoint[] = ['shard-finished', 'settle-facts-read']

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: 3, random: seededRandom(17) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const idOf = async (key: string): Promise<string> => {
  const [row] = await stack.sql<{ id: string }[]>`select id from operations where idempotency_key = ${key}`
  if (row === undefined) throw new Error(`${key} is not there`)
  return formatId('op', row.id)
}

const timesDone = async (type: 'fault-grant' | 'fault-row', item: string): Promise<number> => {
  if (type === 'fault-grant') {
    const entry = (await stack.effects.log())[item]
    expect(entry?.requests ?? 0).toBe(entry?.applied ?? 0)
    return entry?.applied ?? 0
  }
  return (await stack.sql`select from fault_rows where item_key = ${item}`).length
}

const cancelAt = async ([point, type, at, fate]: Boundary, key: string): Promise<void> => {
  const item = `${key}-${fate}`
  const gate = makeGate()
  const trap = await stack.probes.arm({
    point,
    matches: at === 'open' ? ofKey(stack, key) : ofItem(stack, key, at),
    action: { kind: 'hold', until: () => gate.opened },
    ...(point === 'send-begun' ? { first: onceDone(stack, item) } : {}),
  })
  try {
    // a worker that polls could be there before the cancel, whose POST is held
    const more = at === 'open' ? { run_after: new Date(Date.now() + RUNS_LATER_MS).toISOString() } : {}
    const submitting = account.client.submit({ type, key, items: [{ key: item, input: {} }], more })
    submitting.catch(() => {})
    await within(WAIT_MS, `somebody stands at ${point}`, trap.hit)
    const id = await idOf(key)
    const answer = await account.client.act('cancel', id)
    gate.open()
    expect(await submitting).toBe(id)
    await until(`${key} is over`, async () => isFinal(await account.client.get(id)), WAIT_MS)
    const operation = await account.client.get(id)
    expectTruthful(answer, operation)
    // whose shard is finished may be settled by the sweep before the cancel comes, while its own worker is held
    const cameLate = point === 'settled' || (SWEPT.includes(point) && answer.status === 409)
    await expectOneEnd(stack, key, cameLate ? 0 : 1)
    const isDone = fate !== 'unsent'
    const status = cameLate ? 'succeeded' : isDone ? 'completed_after_cancel' : 'cancelled'
    const { applied, unprocessed } = operation.counts
    expect({ status: operation.status, applied, unprocessed }).toEqual({
      status,
      applied: isDone ? 1 : 0,
      unprocessed: isDone ? 0 : 1,
    })
    expect(await timesDone(type, item)).toBe(isDone ? 1 : 0)
  } finally {
    gate.open()
    await trap.disarm()
  }
}

faultTest(
  'F17',
  `a cancel at ${BOUNDARIES.length} boundaries: a true answer, nothing new is sent, what was in flight is told`,
  { short: 2 * BOUNDARIES.length, long: 50 * BOUNDARIES.length },
  async (fault) => {
    const limit = pLimit(AT_ONCE)
    const watch = account.watch()
    await Promise.all(
      Array.from({ length: fault.runs }, (_, index) =>
        limit(async () => {
          const boundary = BOUNDARIES[index % BOUNDARIES.length] as Boundary
          fault.count(1)
          await cancelAt(boundary, `f17-${fault.seed}-${index}`).catch((error: unknown) =>
            fault.fail(new Error(`a cancel at ${boundary[0]} of ${boundary[1]}`, { cause: error })),
          )
        }),
      ),
    )
    await watch.stop()
    await account.end()
  },
)
