import { EventEmitter } from 'node:events'
import { runInNewContext } from 'node:vm'
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

/** Runs what the thread would run, in this one: `watching` is what it does to its process. */
const watch = (source: string, workerData: object) => {
  const watching = { kill: vi.fn(), writeSync: vi.fn() }
  const modules: Record<string, object> = {
    'node:worker_threads': { workerData },
    'node:fs': { writeSync: watching.writeSync },
  }
  const require = (name: string) => modules[name]
  runInNewContext(source, { require, process: { pid: 42, kill: watching.kill }, setInterval })
  return watching
}

test('the thread ends the process once the loop stood still for its time, and says why', async () => {
  const watchdog = startWatchdog(notingContext().context.log, { stillMs: 3_000, tickMs: 1_000 })
  const { source = '', workerData = {} } = threads[0] ?? {}
  const turns = new Int32Array(threads[0]?.workerData.turns as SharedArrayBuffer)
  await watchdog.stop()
  const watching = watch(source, workerData)
  await tick(2_000)
  Atomics.add(turns, 0, 1)
  await tick(3_000)
  expect(watching.kill).not.toHaveBeenCalled()
  await tick(1_000)
  expect(watching.kill).toHaveBeenCalledExactlyOnceWith(42, 'SIGKILL')
  expect(watching.writeSync).toHaveBeenCalledExactlyOnceWith(2, expect.stringContaining('stood still for 3000 ms'))
})

test('a thread that fails is told of', async () => {
  const { context, noted } = notingContext()
  const watchdog = startWatchdog(context.log, { stillMs: 500, tickMs: 50 })
  expect(threads[0]?.workerData).toMatchObject({ stillMs: 500, tickMs: 50 })
  threads[0]?.thread.emit('error', new Error('no'))
  expect(noted.log).toEqual(['the watchdog failed'])
  await watchdog.stop()
})
