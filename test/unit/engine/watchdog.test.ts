import { EventEmitter } from 'node:events'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { startWatchdog } from '../../../src/engine/watchdog.ts'
import { notingContext, useTestClock } from '../../support/held-run.ts'

/** Threads that are started; what they do is tried on a real process in test/engine. */
const threads: {
  source: string
  workerData: { turns: SharedArrayBuffer; stillMs: number; tickMs: number }
  thread: EventEmitter & { unref(): void; terminate(): Promise<number> }
}[] = []
vi.mock('node:worker_threads', () => ({
  Worker: class extends EventEmitter {
    unref = vi.fn()
    terminate = vi.fn(async () => 0)
    constructor(source: string, options: { eval: boolean; workerData: (typeof threads)[number]['workerData'] }) {
      super()
      if (!options.eval) throw new Error('there is no such file')
      threads.push({ source, workerData: options.workerData, thread: this })
    }
  },
}))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  threads.length = 0
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

test('the loop moves a counter that the thread can see, as long as it turns', async () => {
  const watchdog = startWatchdog(notingContext().context.log)
  const [watching] = threads
  const turns = new Int32Array(watching?.workerData.turns as SharedArrayBuffer)
  expect(watching?.workerData).toMatchObject({ stillMs: 30_000, tickMs: 1_000 })
  expect(watching?.thread.unref).toHaveBeenCalled()
  await tick(3_000)
  expect(turns[0]).toBe(3)
  await watchdog.stop()
  expect(watching?.thread.terminate).toHaveBeenCalled()
  await tick(3_000)
  expect([turns[0], vi.getTimerCount()]).toEqual([3, 0])
})

test('a thread that fails is told of', async () => {
  const { context, noted } = notingContext()
  const watchdog = startWatchdog(context.log, { stillMs: 500, tickMs: 50 })
  expect(threads[0]?.workerData).toMatchObject({ stillMs: 500, tickMs: 50 })
  threads[0]?.thread.emit('error', new Error('no'))
  expect(noted.log).toEqual(['the watchdog failed'])
  await watchdog.stop()
})
