/**
 * The hole that fencing cannot close: a request that is on its way and does not arrive. Its send is called uncertain, the
 * provider has truly seen nothing, somebody says so, and it is sent again; then the first one arrives, too. Nothing can prevent
 * that; it must not be hidden either. The provider sees both under one key, and where it deduplicates by key there is one
 * effect.
 *
 * What fencing does close: a worker that stood between its first look and its first byte for longer than its lease sends
 * nothing any more.
 */
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { type Case, isFinal } from './harness/client.ts'
import { type EffectRoad, openEffectRoad } from './harness/effect-road.ts'
import { type Fault, faultTest } from './harness/fault.ts'
import type { Member } from './harness/member.ts'
import type { Hit } from './harness/probes.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { makeGate, ofKey, within } from './harness/traps.ts'

const AT_ONCE = 3
const WAIT_MS = 120_000

let road: EffectRoad
let stack: Stack
beforeAll(async () => {
  road = await openEffectRoad()
  stack = await openStack({
    workers: AT_ONCE + 1,
    workerConcurrency: 1, // who is frozen or killed takes no other operation with it
    random: seededRandom(4),
    env: { FAULTS_EFFECTS_URL: road.url },
  })
  road.leadTo(stack.effects.url)
})
afterAll(async () => {
  await stack?.close()
  await road?.close()
})

const requestsOf = async (key: string): Promise<number> => (await stack.effects.log())[key]?.requests ?? 0

const openCase = async ({ client }: Account, id: string): Promise<Case | undefined> => (await client.openCases(id))[0]

const untilOver = ({ client }: Account, id: string): Promise<void> =>
  until(`${id} is over`, async () => isFinal(await client.get(id)), WAIT_MS)

const waitForDoubt = async (account: Account, id: string, cause: string): Promise<Case> => {
  await until(`${id} is in doubt: ${cause}`, async () => (await openCase(account, id))?.cause === cause, WAIT_MS)
  const found = await openCase(account, id)
  if (found === undefined) throw new Error(`${id} has no case any more`)
  return found
}

/** The truth, as far as anybody can know it: the provider has seen nothing. */
const sayNotApplied = async ({ client }: Account, found: Case): Promise<void> => {
  expect((await stack.effects.idleLog())[found.effect_key]).toBeUndefined()
  const said = { resolution: 'not_applied', retry: true, evidence_ref: `effect log: no ${found.effect_key}` } as const
  expect((await client.resolve(found, said)).status).toBe(200)
}

/** What the ledger tells of the item, as `state source`, in order. */
const told = async ({ client }: Account, id: string): Promise<string[]> =>
  (await client.ledger(id)).filter(({ state }) => state !== null).map(({ state, source }) => `${state} ${source}`)

/** Side by side, as many as there are workers for; each is counted. */
const sideBySide = async (
  fault: Fault,
  keys: readonly string[],
  attempt: (key: string, index: number) => Promise<void>,
) => {
  for (let from = 0; from < keys.length; from += AT_ONCE) {
    const some = keys.slice(from, from + AT_ONCE)
    fault.count(some.length)
    for (const { reason } of (await Promise.allSettled(some.map((key, index) => attempt(key, from + index)))).filter(
      (each) => each.status === 'rejected',
    ))
      fault.fail(reason)
  }
}

const keysOf = (fault: Fault, name: string): string[] =>
  Array.from({ length: fault.runs }, (_, index) => `f4-${name}-${fault.seed}-${index}`)

const submitOne = ({ client }: Account, type: string, key: string, mode = 'ok'): Promise<string> =>
  client.submit({ type, key, items: [{ key, input: { mode } }] })

/** What becomes of the sender while its request is on the way. */
const SENDERS = ['waits', 'dies', 'stands still'] as const

/** `written` resolves when this process, which stands still now, has written what it knows of the operation. */
const reportOf = async (member: Member, key: string): Promise<{ written: Promise<Hit> }> => {
  const isOfKey = ofKey(stack, key)
  const { hit } = await stack.probes.arm({
    point: 'outcome-committed',
    matches: async (subject, at) => at === member && (await isOfKey(subject)),
    action: { kind: 'hold', until: () => Promise.resolve() },
  })
  return { written: hit }
}

/** What was established stays. A late answer that somebody has read is noted, and a case is open for it; else there is none. */
const expectUnchanged = async (account: Account, id: string): Promise<void> => {
  const { status, counts } = await account.client.get(id)
  expect({ status, applied: counts.applied, uncertain: counts.uncertain }).toEqual({
    status: 'succeeded',
    applied: 1,
    uncertain: 0,
  })
  expect((await told(account, id)).filter((entry) => entry.startsWith('applied'))).toHaveLength(1)
  const late = (await account.client.ledger(id)).filter(({ state }) => state === null)
  expect(late.map(({ source, reason_code }) => ({ source, reason_code }))).toEqual(
    late.map(() => ({ source: 'late_worker', reason_code: 'EVIDENCE_FOR_EARLIER_SEND' })),
  )
  expect((await account.client.openCases(id)).map(({ cause }) => cause)).toEqual(late.map(() => 'duplicate_suspected'))
}

/** By hand: the case is closed by a person. Afterwards both requests have arrived. */
const refutedByHand = async (account: Account, key: string, sender: (typeof SENDERS)[number]): Promise<void> => {
  const request = road.holdBack(key)
  const gate = makeGate()
  const trap =
    sender === 'waits'
      ? null
      : await stack.probes.arm({
          point: 'send-begun',
          matches: ofKey(stack, key),
          first: () => request.taken,
          action: sender === 'dies' ? { kind: 'kill' } : { kind: 'freeze-until', thaw: () => gate.opened },
        })
  try {
    const id = await submitOne(account, 'fault-grant', key)
    await within(WAIT_MS, `${key} is on its way`, request.taken)
    const hit = await trap?.hit
    const cause = sender === 'waits' ? 'send_outcome_unknown' : 'worker_lost'
    await sayNotApplied(account, await waitForDoubt(account, id, cause))
    await untilOver(account, id)
    expect(await requestsOf(key)).toBe(1)
    const source = sender === 'waits' ? 'worker' : 'recovery'
    expect(await told(account, id)).toEqual([`uncertain ${source}`, 'failed operator', 'applied worker'])
    request.deliver()
    await until(`the first request of ${key} arrives`, async () => (await requestsOf(key)) === 2, WAIT_MS)
    expect((await stack.effects.log())[key]).toMatchObject({ requests: 2, applied: 2 })
    if (hit && sender === 'stands still') {
      const report = await reportOf(hit.member, key)
      gate.open()
      await within(WAIT_MS, `the late worker of ${key} reports`, report.written)
    }
    await expectUnchanged(account, id)
  } finally {
    request.deliver()
    gate.open()
  }
}

/** By whoever can be asked, or without any evidence where the provider promises to make one effect of both. */
const resent = async (account: Account, type: 'fault-asked' | 'fault-once', key: string): Promise<void> => {
  const request = road.holdBack(key)
  try {
    const id = await submitOne(account, type, key, type === 'fault-once' ? 'apply_once' : 'ok')
    await within(WAIT_MS, `${key} is on its way`, request.taken)
    await untilOver(account, id)
    expect(await requestsOf(key)).toBe(1)
    expect(await told(account, id)).toEqual(
      type === 'fault-once'
        ? ['uncertain worker', 'applied worker']
        : ['uncertain worker', 'failed lookup', 'applied worker'],
    )
    request.deliver()
    await until(`the first request of ${key} arrives`, async () => (await requestsOf(key)) === 2, WAIT_MS)
    await expectUnchanged(account, id)
  } finally {
    request.deliver()
  }
}

/** What was done twice, by who knows nothing of this test: each of these keys, and because of what was said of it. */
const expectCounted = async (account: Account, keys: readonly string[], by: readonly string[]): Promise<void> => {
  await account.end()
  const evidence = await account.wrongEvidence()
  expect(evidence.map(({ effectKey, applied }) => `${effectKey} ${applied}`).sort()).toEqual(
    keys.map((key) => `${key} 2`).sort(),
  )
  expect([...new Set(evidence.flatMap((each) => each.evidence.map(({ source }) => source)))]).toEqual(by)
}

const attempts =
  (
    name: string,
    attempt: (account: Account, key: string, index: number) => Promise<void>,
    judge: (account: Account, keys: readonly string[]) => Promise<void>,
  ) =>
  async (fault: Fault): Promise<void> => {
    const account = openAccount(stack)
    const watch = account.watch()
    const keys = keysOf(fault, name)
    await sideBySide(fault, keys, (key, index) => attempt(account, key, index))
    await watch.stop()
    await judge(account, keys)
    await account.close()
  }

faultTest(
  'F4',
  'held back by the network, its worker waiting, dead or frozen, and declared not applied by a person: twice at the provider, and the ledger says what was known',
  { short: 3, long: 21 },
  attempts(
    'hand',
    (account, key, index) => refutedByHand(account, key, SENDERS[index % SENDERS.length] ?? 'waits'),
    (account, keys) => expectCounted(account, keys, ['operator']),
  ),
)

faultTest(
  'F4',
  'the same, and the provider itself said that there was no such effect: twice, and the ledger says who said it',
  { short: 3, long: 21 },
  attempts(
    'asked',
    (account, key) => resent(account, 'fault-asked', key),
    (account, keys) => expectCounted(account, keys, ['lookup']),
  ),
)

faultTest(
  'F4',
  'the same where the provider deduplicates by effect key: two requests, one effect',
  { short: 3, long: 21 },
  attempts(
    'once',
    (account, key) => resent(account, 'fault-once', key),
    async (account, keys) => {
      await account.end()
      expect(await account.wrongEvidence()).toEqual([])
      const log = await stack.effects.log()
      for (const key of keys) expect(log[key], key).toMatchObject({ requests: 2, applied: 1 })
    },
  ),
)

/** Frozen before its first byte until all is over, it finds that its time has passed. */
const sentInTime = async (account: Account, key: string): Promise<void> => {
  const gate = makeGate()
  const trap = await stack.probes.arm({
    point: 'send-allowed',
    matches: ofKey(stack, key),
    action: { kind: 'freeze-until', thaw: () => gate.opened },
  })
  try {
    const id = await submitOne(account, 'fault-grant', key)
    const { member } = await within(WAIT_MS, `${key} may be sent`, trap.hit)
    await sayNotApplied(account, await waitForDoubt(account, id, 'worker_lost'))
    await untilOver(account, id)
    const report = await reportOf(member, key)
    gate.open()
    await within(WAIT_MS, `the late worker of ${key} reports`, report.written)
    expect((await stack.effects.idleLog())[key]).toMatchObject({ requests: 1, applied: 1 })
    expect(await told(account, id)).toEqual(['uncertain recovery', 'failed operator', 'applied worker'])
    expect(await account.client.openCases(id)).toEqual([])
  } finally {
    gate.open()
  }
}

faultTest(
  'F4',
  'frozen past its lease before the first byte: it sends nothing late',
  { short: 3, long: 21 },
  attempts(
    'frozen',
    (account, key) => sentInTime(account, key),
    async (account) => {
      await account.end()
      expect(await account.wrongEvidence()).toEqual([])
    },
  ),
)
