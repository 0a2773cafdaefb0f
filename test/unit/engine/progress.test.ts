import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Progress } from '../../../src/engine/progress.ts'
import { holdShard, useTestClock } from '../../support/held-run.ts'

const TYPE = { leaseMs: 3_000, stallMs: 10_000 }
/** Of a run that is hung: stalled for a minute beyond its `stallMs`. */
const HUNG_MS = 70_000

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const EMPTY = { full: false, running: [] }
/** Lets time pass in which the loop goes round and beats come back. */
const pass = async (progress: Progress, ms: number, answered = true): Promise<void> => {
  for (let left = ms; left > 0; left -= 1_000) {
    await tick(Math.min(1_000, left))
    progress.round()
    progress.beat(answered)
  }
}

test('a loop that does not go round any more, and beats that do not come back', async () => {
  const progress = new Progress()
  await tick(180_000)
  expect(progress.stuck(EMPTY)).toBeNull()
  await tick(1)
  expect(progress.stuck(EMPTY)).toBe('nothing was claimed or looked for')
  progress.round()
  expect(progress.stuck(EMPTY)).toBe('no heartbeat came to an end')
  progress.beat(false)
  expect(progress.stuck(EMPTY)).toBeNull()
})

test('every run hangs and nothing can be claimed', async () => {
  const progress = new Progress()
  const running = [holdShard({ shard: 0 }, TYPE), holdShard({ shard: 1 }, TYPE)]
  await pass(progress, HUNG_MS)
  expect(progress.stuck({ full: true, running })).toBeNull()
  await pass(progress, 1)
  expect(progress.stuck({ full: true, running })).toBe('every run in hand lost its lease and hangs')
  // while there is room, others are worked on
  expect(progress.stuck({ full: false, running })).toBeNull()
  // all wait for their isolated run
  expect(progress.stuck({ full: true, running: [] })).toBeNull()
})

test('one run that moves, or holds its lease, is enough', async () => {
  const progress = new Progress()
  const running = [holdShard({ shard: 0 }, TYPE), holdShard({ shard: 1 }, TYPE)]
  await pass(progress, HUNG_MS)
  running[1]?.step()
  await pass(progress, 1_000)
  expect(progress.stuck({ full: true, running })).toBeNull()
  await pass(progress, HUNG_MS)
  expect(progress.stuck({ full: true, running })).not.toBeNull()
  running[1]?.renewed(performance.now())
  expect(progress.stuck({ full: true, running })).toBeNull()
})

test('what waits for a database that is away is not hung, nor at once when it is back', async () => {
  const progress = new Progress()
  const running = [holdShard({ shard: 0 }, TYPE)]
  await pass(progress, 3_600_000, false)
  expect(progress.stuck({ full: true, running })).toBeNull()
  await pass(progress, 60_000)
  expect(progress.stuck({ full: true, running })).toBeNull()
  await pass(progress, 1)
  expect(progress.stuck({ full: true, running })).not.toBeNull()
})
