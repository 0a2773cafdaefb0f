/**
 * The hole that fencing cannot close: a worker that stands between its last check and the socket, for longer than its lease.
 * Meanwhile its send is called uncertain, the provider has truly seen nothing, a person says so, and it is sent again; then
 * the zombie wakes and sends, too. Nothing can prevent that; it must not be hidden either. The provider sees both under one
 * key, and where it deduplicates by key there is one effect.
 */
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { type Case, isFinal } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { makeGate, ofKey } from './harness/traps.ts'

const AT_ONCE = 4
const WAIT_MS = 120_000

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ workers: AT_ONCE + 2, workerConcurrency: 1, random: seededRandom(4) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const submitFrozen = async (type: 'fault-grant' | 'fault-once', mode: string, key: string) => {
  const gate = makeGate()
  const trap = await stack.probes.arm({
    point: 'send-allowed',
    matches: ofKey(stack, key),
    action: { kind: 'freeze-until', thaw: () => gate.opened },
  })
  const id = await account.client.submit({ type, key, items: [{ key, input: { mode } }] })
  const { member } = await trap.hit
  const moving = member.freeze(0)
  return {
    id,
    thaw: async (): Promise<void> => {
      gate.open()
      await moving
    },
  }
}

const requestsOf = async (key: string): Promise<number> => (await stack.effects.log())[key]?.requests ?? 0

const isOver = (id: string) => async (): Promise<boolean> => isFinal(await account.client.get(id))

const openCase = async (id: string): Promise<Case | undefined> => (await account.client.openCases(id))[0]

/** The second send stands in the ledger as the first one's late evidence, and on a case of its own; the result stays. */
const expectTold = async (id: string, key: string): Promise<void> => {
  await until(`the late send of ${key} is told`, async () => (await openCase(id)) !== undefined, WAIT_MS)
  const found = await openCase(id)
  expect(found).toMatchObject({ cause: 'duplicate_suspected', effect_key: key })
  const ledger = await account.client.ledger(id)
  expect(ledger.at(-1)).toMatchObject({
    state: null,
    source: 'late_worker',
    reason_code: 'EVIDENCE_FOR_EARLIER_SEND',
  })
  expect(ledger.filter(({ state }) => state === 'applied')).toHaveLength(1)
  const { status, counts } = await account.client.get(id)
  expect({ status, applied: counts.applied }).toEqual({ status: 'succeeded', applied: 1 })
}

const byHand = async (key: string): Promise<void> => {
  const { id, thaw } = await submitFrozen('fault-grant', 'ok', key)
  try {
    await until(`${key} is in doubt`, async () => (await openCase(id))?.cause === 'worker_lost', WAIT_MS)
    // the truth, as far as anybody can know it
    expect((await stack.effects.idleLog())[key]).toBeUndefined()
    const found = await openCase(id)
    if (found === undefined) throw new Error(`${key} has no case`)
    const said = { resolution: 'not_applied', retry: true, evidence_ref: `effect log: no ${key}` } as const
    expect((await account.client.resolve(found, said)).status).toBe(200)
    await until(`${key} is sent again`, isOver(id), WAIT_MS)
    expect(await requestsOf(key)).toBe(1)
  } finally {
    await thaw()
  }
  await until(`the zombie sends ${key}`, async () => (await requestsOf(key)) === 2, WAIT_MS)
  await expectTold(id, key)
  expect((await stack.effects.log())[key]).toMatchObject({ requests: 2, applied: 2 })
}

faultTest(
  'F4',
  'paused between the last check and the send, and declared not applied by a person: twice at the provider, and the ledger says so',
  { short: 4, long: 40 },
  async (fault) => {
    const watch = account.watch()
    const keys = Array.from({ length: fault.runs }, (_, index) => `f4-${fault.seed}-${index}`)
    for (let from = 0; from < keys.length; from += AT_ONCE) {
      const some = keys.slice(from, from + AT_ONCE)
      fault.count(some.length)
      for (const attempt of await Promise.allSettled(some.map(byHand)))
        if (attempt.status === 'rejected') fault.fail(attempt.reason)
    }
    await watch.stop()
    await account.end()
    // counted by who knows nothing of this test
    const evidence = await account.wrongEvidence()
    expect(evidence.map(({ effectKey, applied }) => `${effectKey} ${applied}`).sort()).toEqual(
      keys.map((key) => `${key} 2`).sort(),
    )
  },
)

faultTest(
  'F4',
  'the same where the provider deduplicates by effect key: one effect, and the ledger tells of both sends',
  { short: 2, long: 20 },
  async (fault) => {
    const keys = Array.from({ length: fault.runs }, (_, index) => `f4-once-${fault.seed}-${index}`)
    for (let from = 0; from < keys.length; from += AT_ONCE) {
      const some = keys.slice(from, from + AT_ONCE)
      fault.count(some.length)
      for (const attempt of await Promise.allSettled(some.map(resent)))
        if (attempt.status === 'rejected') fault.fail(attempt.reason)
    }
    await account.end()
  },
)

/** Nobody is asked: what may be repeated without evidence is repeated. */
const resent = async (key: string): Promise<void> => {
  const { id, thaw } = await submitFrozen('fault-once', 'apply_once', key)
  try {
    await until(`${key} is sent again`, isOver(id), WAIT_MS)
    expect(await requestsOf(key)).toBe(1)
  } finally {
    await thaw()
  }
  await until(`the zombie sends ${key}`, async () => (await requestsOf(key)) === 2, WAIT_MS)
  await expectTold(id, key)
  expect((await stack.effects.log())[key]).toMatchObject({ requests: 2, applied: 1 })
}
