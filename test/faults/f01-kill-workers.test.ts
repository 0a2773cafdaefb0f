/**
 * Workers are killed with SIGKILL while they hold a lease, at random moments, one or all of them, and frozen now and then for
 * longer than their lease, so that they come back as late workers. A round is so many kills, and then none: everything has to
 * settle, a person closes what is uncertain, and each item has been done exactly once.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { type Random, seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal, type Submit } from './harness/client.ts'
import { type Fault, faultTest, isLong } from './harness/fault.ts'
import type { Member } from './harness/member.ts'
import { type Closed, closeCases } from './harness/person.ts'
import { LEASE_MS, openStack, type Stack, settleMs } from './harness/stack.ts'

const WORKERS = 3
const ITEMS = 20
/** Longer rounds settle less often: most of a short one is that. */
const ROUND_KILLS = isLong ? 100 : 30
/** The log of the effect server is read as a whole: it must not grow for ever. */
const STACK_KILLS = 300
/** More than what waits for the leases of the dead, so that there is always something to claim. */
const OPEN_MAX = 12
/** From the moment on which a worker is seen at work. */
const PACE_MS_MAX = 400
const FREEZE_MS = { min: LEASE_MS + 400, below: 2 * LEASE_MS }
const DELAY_MS_MAX = 200
const POLL_MS = 60
const PREY_MS_MAX = 60_000
const ROUND_MS_MAX = 120_000

/** What the effect server does with an item, in a thousand; the rest is `ok`. Each of them can end as applied exactly once. */
const MODES = [
  ['busy_once', 40],
  ['reset_once', 15],
  ['apply_then_reset', 15],
  ['apply_then_hang', 8],
  ['error_after_apply', 15],
] as const

const chooseMode = (random: Random): string => {
  let at = random.below(1_000)
  for (const [mode, share] of MODES) {
    if (at < share) return mode
    at -= share
  }
  return 'ok'
}

const makeSubmission = (key: string, random: Random): Submit => {
  const type = random.once(3) ? 'fault-row' : 'fault-grant'
  const inputOf = () => (type === 'fault-row' ? {} : { mode: chooseMode(random), delay_ms: random.below(DELAY_MS_MAX) })
  return {
    type,
    key,
    items: Array.from({ length: ITEMS }, (_, index) => ({ key: `${key}-${index}`, input: inputOf() })),
  }
}

interface Round {
  stack: Stack
  account: Account
  random: Random
  submitted: Submit[]
  attacking: boolean
}

/** Keeps so many operations open, polls them, and closes what the log proves to be applied. */
const work = async (round: Round, name: string, closed: Closed): Promise<void> => {
  const { stack, account, random, submitted } = round
  const { client } = account
  const open = new Set<string>()
  while (round.attacking) {
    while (open.size < OPEN_MAX) {
      const submission = makeSubmission(`${name}-${submitted.length}`, random)
      submitted.push(submission)
      open.add(await client.submit(submission))
    }
    for (const operation of await Promise.all([...open].map((id) => client.get(id)))) {
      if (isFinal(operation) || operation.status === 'reconciliation_required') open.delete(operation.id)
    }
    closed.applied += (await closeCases(stack, client, account.ids(), { absentToo: false })).applied
    await sleep(POLL_MS)
  }
}

/** Workers that hold a lease: one that has nothing in hand has nothing to lose. */
const preyOf = async ({ stack, random }: Round): Promise<Member> => {
  const until = performance.now() + PREY_MS_MAX
  while (performance.now() < until) {
    const atWork = await stack.sql<{ pid: number }[]>`
      select distinct w.pid from operation_shards s join workers w on w.id = s.lease_owner`
    const pids = new Set(atWork.map(({ pid }) => pid))
    const prey = stack.workers
      .map(({ member }) => member)
      .filter((member) => pids.has(member.pid) && member.isRunning && !member.isFrozen)
    if (prey.length > 0) return random.pick(prey)
    await sleep(POLL_MS)
  }
  throw new Error(`no worker was seen at work for ${PREY_MS_MAX} ms`)
}

const attack = async (round: Round, kills: number, fault: Fault): Promise<void> => {
  const { stack, random } = round
  for (let killed = 0; killed < kills; ) {
    const prey = await preyOf(round)
    await sleep(random.below(PACE_MS_MAX))
    if (random.once(10)) {
      void prey.freeze(FREEZE_MS.min + random.below(FREEZE_MS.below - FREEZE_MS.min))
      continue
    }
    const all = random.once(10) ? stack.workers.map(({ member }) => member) : [prey]
    const victims = all.filter((member) => member.isRunning).slice(0, kills - killed)
    await Promise.all(victims.map((member) => member.kill()))
    killed += victims.length
    fault.count(victims.length)
  }
}

/** Until nobody is frozen, and no operation is what time alone will change. */
const quiet = async ({ stack, account }: Round): Promise<void> => {
  const withinMs = settleMs()
  const until = performance.now() + withinMs
  for (;;) {
    const states = await Promise.all(account.ids().map((id) => account.client.get(id)))
    const isStill = states.every((state) => isFinal(state) || state.status === 'reconciliation_required')
    if (isStill && !stack.workers.some(({ member }) => member.isFrozen)) return
    if (performance.now() > until) {
      const moving = states.filter((state) => !isFinal(state)).map(({ id, status, counts }) => ({ id, status, counts }))
      throw new Error(`not settled ${Math.round(withinMs / 1_000)} s after the last kill: ${JSON.stringify(moving)}`)
    }
    await sleep(POLL_MS)
  }
}

const checkItems = async ({ stack, account, submitted }: Round): Promise<void> => {
  const log = await stack.effects.log()
  const keysOf = (type: string): string[] =>
    submitted.filter((plan) => plan.type === type).flatMap(({ items }) => items.map(({ key }) => key))
  const grants = keysOf('fault-grant')
  expect(grants.filter((key) => log[key]?.applied !== 1)).toEqual([])
  const rows = keysOf('fault-row')
  const found = await stack.sql<{ item_key: string; n: number }[]>`
    select item_key, count(*)::int as n from fault_rows where item_key = any(${rows}) group by item_key`
  const times = new Map(found.map(({ item_key, n }) => [item_key, n]))
  expect(rows.filter((key) => times.get(key) !== 1)).toEqual([])
  const states = await Promise.all(account.ids().map((id) => account.client.get(id)))
  expect(states.filter(({ status, counts }) => status !== 'succeeded' || counts.applied !== ITEMS)).toEqual([])
}

const runRound = async (stack: Stack, name: string, random: Random, kills: number, fault: Fault): Promise<Closed> => {
  const account = openAccount(stack)
  const round: Round = { stack, account, random, submitted: [], attacking: true }
  const closed: Closed = { applied: 0, notApplied: 0 }
  const watch = account.watch()
  try {
    const working = work(round, name, closed)
    working.catch(() => {})
    await attack(round, kills, fault).finally(() => {
      round.attacking = false
    })
    await working
    const until = performance.now() + ROUND_MS_MAX
    for (let more = true; more; ) {
      await quiet(round)
      const { applied, notApplied } = await closeCases(stack, account.client, account.ids(), { absentToo: true })
      closed.applied += applied
      closed.notApplied += notApplied
      more = applied + notApplied > 0
      if (performance.now() > until) throw new Error('uncertain effects do not come to an end')
    }
    await watch.stop()
    await account.end()
    await checkItems(round)
  } finally {
    round.attacking = false
    await watch.stop().catch(() => {})
    await account.close()
  }
  return closed
}

faultTest(
  'F1',
  'SIGKILL at random times, external and transactional operations of 20 items: each item once, counts = ledger',
  { short: 30, long: 3_000, timeoutMs: { short: 400_000, long: 10_800_000 } },
  async (fault) => {
    const closed: Closed = { applied: 0, notApplied: 0 }
    for (let killed = 0; killed < fault.runs; ) {
      const stack = await openStack({ workers: WORKERS, random: fault.random })
      try {
        const end = Math.min(fault.runs, killed + STACK_KILLS)
        while (killed < end) {
          const kills = Math.min(ROUND_KILLS, end - killed)
          const random = seededRandom(fault.seed + killed)
          const { applied, notApplied } = await runRound(stack, `f1-${fault.seed}-${killed}`, random, kills, fault)
          killed += kills
          closed.applied += applied
          closed.notApplied += notApplied
        }
      } finally {
        await stack.close()
      }
    }
    // without a doubt to close, nobody was killed where it matters
    expect(closed.applied + closed.notApplied).toBeGreaterThan(0)
  },
)
