/** A cancel meets what else may happen to an operation. It survives, and there is one final state. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { expectOneEnd, expectTruthful } from './harness/cancels.ts'
import { isFinal, type Operation } from './harness/client.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { makeGate, ofKey } from './harness/traps.ts'

const WAIT_MS = 60_000
const POLL_MS = 50
const CANCELS_AT_ONCE = 8
/** Operations of each kind that are under way at once. */
const TURNS_AT_ONCE = 2

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: 3, random: seededRandom(18) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

type Type = 'fault-grant' | 'fault-asked' | 'fault-patient' | 'fault-hasty'

const submit = (type: Type, key: string, mode = 'ok', items = 1, delay_ms = 0): Promise<string> =>
  account.client.submit({
    type,
    key,
    items: Array.from({ length: items }, (_, index) => ({ key: `${key}-${index}`, input: { mode, delay_ms } })),
  })

const reach = async (id: string, what: string, holds: (operation: Operation) => boolean): Promise<Operation> => {
  const giveUpAt = performance.now() + WAIT_MS
  for (;;) {
    const operation = await account.client.get(id)
    if (holds(operation)) return operation
    const { status, counts } = operation
    if (performance.now() > giveUpAt)
      throw new Error(`not within ${WAIT_MS / 1_000} s: ${id} ${what}; it is ${JSON.stringify({ status, counts })}`)
    await sleep(POLL_MS)
  }
}

const requestsOf = async (item: string): Promise<number> => (await stack.effects.log())[item]?.requests ?? 0

/** The worker dies with a send in flight, just after the cancel. */
const crash = async (key: string): Promise<void> => {
  const gate = makeGate()
  const trap = await stack.probes.arm({
    point: 'send-answered',
    matches: ofKey(stack, key),
    first: () => gate.opened,
    action: { kind: 'kill' },
  })
  const id = await submit('fault-grant', key)
  await until(`${key} is sent`, async () => (await requestsOf(`${key}-0`)) === 1, WAIT_MS)
  const answer = await account.client.act('cancel', id)
  gate.open()
  await trap.hit
  const inDoubt = await reach(id, 'is in doubt', ({ status }) => status === 'reconciliation_required')
  expect((inDoubt as unknown as { cancel: { requested_at: string } }).cancel.requested_at).not.toBeNull()
  const [found] = await account.client.openCases(id)
  if (found === undefined) throw new Error(`${key} has no case`)
  await account.client.resolve(found, { resolution: 'applied', evidence_ref: 'effect log' })
  const end = await reach(id, 'is over', isFinal)
  expect(end.status).toBe('completed_after_cancel')
  expectTruthful(answer, end)
}

/** While it is paused, and while it is being paused; a pause afterwards is refused. */
const pause = async (key: string): Promise<void> => {
  const id = await submit('fault-asked', key, 'ok', 40, 40)
  await reach(id, 'is under way', ({ counts }) => counts.applied > 0)
  expect([200, 202]).toContain((await account.client.act('pause', id)).status)
  if (Number(key.at(-1)) % 2 === 0) await reach(id, 'is paused', ({ status }) => status === 'paused')
  const answer = await account.client.act('cancel', id)
  const after = await account.client.act('pause', id)
  expect({ status: after.status, code: after.body.code }).toEqual({ status: 409, code: 'operation-not-pausable' })
  expect((await account.client.act('resume', id)).status).toBe(409)
  const end = await reach(id, 'is over', isFinal)
  expect(end.status).toBe('cancelled')
  expectTruthful(answer, end)
}

/** What was cancelled is replayed, and the replay is cancelled: the first one stays as it was. */
const replay = async (key: string): Promise<void> => {
  const id = await submit('fault-asked', key, 'ok', 30, 60)
  await reach(id, 'is under way', ({ counts }) => counts.applied > 0)
  expectTruthful(await account.client.act('cancel', id), await reach(id, 'is over', isFinal))
  const preflight = await account.client.call('POST', `/operations/${id}/replay-preflight`, {}, id)
  const body = { preflight_id: preflight.body.preflight_id, reason: 'fault suite' }
  const replayed = await account.client.call('POST', `/operations/${id}/replay`, body, id)
  expect(replayed.status).toBe(202)
  const again = await account.client.act('cancel', id)
  expect({ status: again.status, said: again.body.status }).toEqual({ status: 200, said: 'cancelled' })
  const next = String(replayed.body.id)
  const answer = await account.client.act('cancel', next)
  const end = await reach(next, 'is over', isFinal)
  expectTruthful(answer, end)
  expect(end.status).toBe('cancelled')
}

/** Many cancels race with the end of the last item: all are told the same. */
const lastItem = async (key: string): Promise<void> => {
  const id = await submit('fault-asked', key)
  const answers = await Promise.all(Array.from({ length: CANCELS_AT_ONCE }, () => account.client.act('cancel', id)))
  const end = await reach(id, 'is over', isFinal)
  for (const answer of answers) expectTruthful(answer, end)
  if (end.status === 'succeeded') expect(answers.every(({ status }) => status === 409)).toBe(true)
}

/** The last attempt of an item is in flight: its dead letter is kept. */
const deadLetter = async (key: string): Promise<void> => {
  const gate = makeGate()
  await stack.probes.arm({
    point: 'send-answered',
    matches: ofKey(stack, key),
    action: { kind: 'hold', until: () => gate.opened },
  })
  const id = await submit('fault-hasty', key, 'busy')
  await until(`${key} is sent`, async () => (await requestsOf(`${key}-0`)) === 1, WAIT_MS)
  const answer = await account.client.act('cancel', id)
  gate.open()
  const end = await reach(id, 'is over', isFinal)
  expectTruthful(answer, end)
  expect({ status: end.status, failed: end.counts.failed }).toEqual({ status: 'completed_after_cancel', failed: 1 })
  const { body } = await account.client.call('GET', `/dead-letters?operation_id=${id}`, undefined, id)
  expect(body.items).toHaveLength(1)
}

/** The item waits for its next attempt, which is given up. */
const backoff = async (key: string): Promise<void> => {
  const id = await submit('fault-patient', key, 'busy')
  await reach(id, 'waits', ({ counts }) => counts.failed === 1 && counts.in_flight === 0)
  const answer = await account.client.act('cancel', id)
  const sent = await requestsOf(`${key}-0`)
  const end = await reach(id, 'is over', isFinal)
  expectTruthful(answer, end)
  expect({ status: end.status, failed: end.counts.failed }).toEqual({ status: 'cancelled', failed: 1 })
  expect((await account.client.items(id)).map((item) => item.state)).toEqual(['failed'])
  expect((await stack.effects.idleLog())[`${key}-0`]?.requests).toBe(sent)
}

/** Side by side, as none of them touches another's process. */
const MEETINGS = { pause, replay, lastItem, deadLetter, backoff }
const KINDS = 1 + Object.keys(MEETINGS).length

/** Makes one of them, and looks at what stands of it in the events. */
const meet = async (fault: Fault, kind: string, meeting: (key: string) => Promise<void>, turn: number) => {
  const key = `f18-${fault.seed}-${kind}-${turn}`
  fault.count(1)
  try {
    await meeting(key)
    const [row] = await stack.sql<{ cancelled: boolean }[]>`
      select cancel_requested_at is not null as cancelled from operations where idempotency_key = ${key}`
    await expectOneEnd(stack, key, row?.cancelled ? 1 : 0)
  } catch (error) {
    fault.fail(new Error(`a cancel meets ${kind}`, { cause: error }))
  }
}

faultTest(
  'F18',
  `a cancel meets ${KINDS} things: a crash, a pause, a replay, the last item, a dead letter, a wait: it survives, one final state`,
  { short: 2 * KINDS, long: 10 * KINDS },
  async (fault) => {
    const watch = account.watch()
    const turns = Array.from({ length: fault.runs / KINDS }, (_, turn) => turn)
    for (let from = 0; from < turns.length; from += TURNS_AT_ONCE) {
      const some = turns.slice(from, from + TURNS_AT_ONCE)
      await Promise.all(
        Object.entries(MEETINGS).flatMap(([kind, meeting]) => some.map((turn) => meet(fault, kind, meeting, turn))),
      )
    }
    // alone: a worker that dies takes everything with it that it holds, and what it had sent would be in doubt for ever
    for (const turn of turns) await meet(fault, 'crash', crash, turn)
    await watch.stop()
    await account.end()
  },
)
