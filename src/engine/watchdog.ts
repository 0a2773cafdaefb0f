/**
 * Ends a process whose event loop does not turn any more: an endless loop in a handler stops heartbeats and drains alike,
 * and nothing inside the loop could say so. A thread of its own watches a counter that the loop moves; when it stands still
 * for STILL_MS the process is killed, its leases run out, and the crash is counted like any other. Whether a loop that turns gets
 * anywhere is told by progress.ts.
 */
import { Worker } from 'node:worker_threads'
import type { Log } from '../log.ts'

/** Longer than any pause of a healthy process, garbage collection and a suspended laptop's wake-up included. */
const STILL_MS = 30_000
const TICK_MS = 1_000

const WATCH = `
const { workerData } = require('node:worker_threads')
const turns = new Int32Array(workerData.turns)
let seen = Atomics.load(turns, 0)
let still = 0
const timer = setInterval(() => {
  const now = Atomics.load(turns, 0)
  still = now === seen ? still + 1 : 0
  seen = now
  if (still * workerData.tickMs < workerData.stillMs) return
  require('node:fs').writeSync(2, 'opledger: the event loop stood still for ' + workerData.stillMs + ' ms; the process ends itself\\n')
  process.kill(process.pid, 'SIGKILL')
}, workerData.tickMs)
`

export const startWatchdog = (log: Log, { stillMs = STILL_MS, tickMs = TICK_MS } = {}): { stop(): Promise<void> } => {
  const turns = new SharedArrayBuffer(4)
  const counter = new Int32Array(turns)
  const timer = setInterval(() => Atomics.add(counter, 0, 1), tickMs)
  timer.unref()
  const thread = new Worker(WATCH, { eval: true, workerData: { turns, stillMs, tickMs } })
  thread.on('error', (error) => log.error({ err: error }, 'the watchdog failed'))
  thread.unref()
  return {
    async stop() {
      clearInterval(timer)
      await thread.terminate()
    },
  }
}
