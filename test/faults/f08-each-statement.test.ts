import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect } from 'vitest'
import { type Random, seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal } from './harness/client.ts'
import { faultTest, isLong } from './harness/fault.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { type Blow, describeSite, openStatementFaults, type Site } from './harness/statement-faults.ts'

/** Traps that are set at once: more of them hit the answers to one another, fewer take longer. */
const ARMED = 6
const LANES = 2
/** Blows of the short form, chosen by the seed; where nobody sends one, another takes its place. The long form strikes every statement in both ways. */
const SAMPLE = 40
/** Rounds of work without a blow. */
const LEARNED = 2
/** With no trap sprung for so long, and for a whole round of work, what is left is not sent by this workload any more. */
const STALLED_MS = isLong ? 12_000 : 4_000
const IDLE_MS = 2_500
const PATIENCE_MS = 30_000

const faults = openStatementFaults()
let stack: Stack
beforeAll(async () => {
  stack = await openStack({ random: seededRandom(8), decide: faults.decide })
})
afterAll(() => stack?.close())

const isOver = async ({ client }: Account, id: string): Promise<boolean> => {
  const { status } = await client.get(id)
  return isFinal({ status }) || status === 'reconciliation_required'
}

/**
 * A little of everything that the service does: both kinds of types, what stops and goes on again, doubts, a replay, reads.
 * Answers whether there was a replay.
 */
const work = async (account: Account, name: string): Promise<boolean> => {
  const { client } = account
  const submit = (type: string, key: string, size: number, input: object): Promise<string> =>
    client.submit({
      type,
      key: `${name}-${key}`,
      items: Array.from({ length: size }, (_, n) => ({ key: `${name}-${key}-${n}`, input })),
    })
  const [calls = '', cancelled = '', doubtful = '', asked = '', rows = '', paused = ''] = await Promise.all([
    submit('fault-asked', 'calls', 6, {}),
    submit('fault-asked', 'cancelled', 12, { delay_ms: 150 }),
    submit('fault-grant', 'doubtful', 2, { mode: 'apply_then_reset' }),
    submit('fault-asked', 'asked', 2, { mode: 'apply_then_reset' }),
    submit('fault-row', 'rows', 120, {}),
    submit('fault-row', 'paused', 120, {}),
  ])
  await client.act('pause', paused)
  await Promise.all([client.items(calls), client.ledger(rows), client.call('GET', '/operations?limit=5')])
  await client.act('cancel', cancelled)
  await client.act('resume', paused)
  const giveUpAt = performance.now() + PATIENCE_MS
  // what is asked about settles by itself, and is replayed then
  while (!isFinal(await client.get(cancelled)) || !(await isOver(account, doubtful))) {
    if (performance.now() > giveUpAt) return false // the end of the test tells whether it ever settles
    await sleep(100)
  }
  for (const found of await client.openCases(doubtful)) {
    await client.resolve(found, { resolution: 'applied', evidence_ref: 'the mode of its item' })
  }
  await client.get(asked)
  const preflight = await client.call('POST', `/operations/${cancelled}/replay-preflight`, {}, cancelled)
  if (preflight.body.allowed !== true) return false
  const replay = await client.call(
    'POST',
    `/operations/${cancelled}/replay`,
    { preflight_id: preflight.body.preflight_id, reason: 'fault suite' },
    cancelled,
  )
  if (replay.status !== 202) return false
  await client.get(String(replay.body.id))
  return true
}

interface Shot {
  site: Site
  blow: Blow
}

const shuffle = (shots: Shot[], random: Random): Shot[] => {
  for (let n = shots.length - 1; n > 0; n--) {
    const other = random.below(n + 1)
    ;[shots[n], shots[other]] = [shots[other] as Shot, shots[n] as Shot]
  }
  return shots
}

const BLOWS: readonly Blow[] = ['cut', 'lose-reply']

/** Meets `wanted` of them, in their order, while `work` is done again and again. Those that nobody sends are passed over. */
const shoot = async (
  account: Account,
  shots: readonly Shot[],
  wanted: number,
  name: string,
): Promise<{ struck: number; missed: Shot[] }> => {
  const waiting = [...shots]
  const armed = new Map<Shot, () => void>()
  let struck = 0
  let lastAt = performance.now()
  const armNext = (): void => {
    for (const shot of [...waiting]) {
      if (armed.size >= Math.min(ARMED, wanted - struck)) return
      // one blow at a time for a statement
      if ([...armed.keys()].some(({ site }) => site.statement === shot.site.statement && site.kind === shot.site.kind))
        continue
      waiting.splice(waiting.indexOf(shot), 1)
      armed.set(
        shot,
        faults.arm(shot.site, shot.blow, () => {
          lastAt = performance.now()
          struck++
          armed.delete(shot)
          armNext()
        }),
      )
    }
  }
  armNext()
  const parked: Shot[] = []
  const lane = async (number: number): Promise<void> => {
    for (let round = 0; armed.size > 0; round++) {
      const beganAt = performance.now()
      await work(account, `${name}-${number}-${round}`)
      if (lastAt > beganAt || performance.now() - lastAt < STALLED_MS) continue
      // these are not sent: let others have their turn
      for (const [shot, disarm] of armed) {
        disarm()
        parked.push(shot)
      }
      armed.clear()
      lastAt = performance.now()
      armNext()
    }
  }
  await Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)))
  if (parked.length === 0) return { struck, missed: [] }
  // statements of a start, or with nothing to do: all of them are set, and every process is started anew
  const starting = new Set(parked)
  for (const shot of parked) {
    faults.arm(shot.site, shot.blow, () => {
      struck++
      starting.delete(shot)
    })
  }
  await Promise.all([...stack.apis, ...stack.workers].map((slot) => slot.member.kill()))
  await stack.ready()
  await work(account, `${name}-again`)
  await sleep(IDLE_MS)
  const missed = [...starting]
  for (const { site, blow } of missed) faults.arm(site, blow, () => {})()
  return { struck, missed }
}

faultTest(
  'F8',
  `the connection is cut at each statement, and its reply is lost, COMMIT included (${SAMPLE} such blows in the short form, chosen by the seed): read again before acting, nothing twice, nothing of a dead transaction`,
  { short: 1, long: 1, timeoutMs: { short: 600_000, long: 3_600_000 } },
  async ({ runs, seed, random, count }) => {
    const account = openAccount(stack)
    const replays: boolean[] = []
    for (let round = 0; round < LEARNED; round++) replays.push(await work(account, `f08-${seed}-learn-${round}`))
    expect(replays).toContain(true)
    await settle(stack, account.client, account.ids(), { person: true })
    await sleep(IDLE_MS) // what is sent with nothing to do
    // the short form does not wait for what is sent now and then only
    const sites = faults.seen(isLong ? 1 : LEARNED)
    expect(sites.length).toBeGreaterThan(50)
    for (let run = 0; run < runs; run++) {
      const all = shuffle(
        sites.flatMap((site) => BLOWS.map((blow) => ({ site, blow }))),
        random,
      )
      const wanted = isLong ? all.length : SAMPLE
      const { struck, missed } = await shoot(account, all, wanted, `f08-${seed}-${run}`)
      count(struck)
      const text = missed.map(({ site, blow }) => `${blow} ${describeSite(site)}`).join('\n')
      if (missed.length > 0) console.info(`F8: not sent again, ${missed.length} beside ${struck} blows:\n${text}`)
      if (isLong) expect(missed.length).toBeLessThan(all.length / 5)
      else expect(struck).toBeGreaterThanOrEqual(SAMPLE)
      await settle(stack, account.client, account.ids(), { person: true })
      await account.end()
    }
    await account.close()
  },
)
