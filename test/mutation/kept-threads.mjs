/**
 * Threads of vitest that are kept (kept-worker.ts), seen from outside: started, asked to try a mutant, and ended when one does
 * not come back. A mutant that runs in circles never lets its thread look at a clock, so the thread cannot end itself. What is
 * measured is the processor's time and this thread's own looks, not the time of day: a run that stands still for an hour on a
 * busy machine has not timed out.
 */
import path from 'node:path'
import { BroadcastChannel } from 'node:worker_threads'
import { createVitest } from 'vitest/node'

const CONFIG = 'test/mutation/vitest.config.ts'
/** Between two signs of life (a test begins, files are loaded) of a thread that runs in circles: far above what any needs. */
const CIRCLES_CPU_MS = 8_000
/** Between two signs of life of one that waits for what does not come, and is not in a test, which looks for itself. */
const LOOKS_MAX = 1_200
const LOOK_MS = 100

export class KeptThreads {
  /** By name: what each said when it was ready, its worker, and the vitest that it belongs to. */
  threads = new Map()
  #workers = new Map()
  #starts = new Map()
  #orders = new Map()
  #asked = 0
  #channel = new BroadcastChannel('mutants')
  #vitests = new Set()

  constructor() {
    process.on('worker', (worker) => this.#workers.set(worker.threadId, worker))
    this.#channel.onmessage = ({ data }) => {
      if (data.kind === 'ready') this.#starts.get(data.thread)?.(data)
      if (data.kind === 'sign' || data.kind === 'tried') this.#orders.get(data.number)?.(data)
    }
  }

  /** All threads that the configuration asks for. */
  async startAll() {
    const vitest = await this.#createVitest()
    const { isolate: isolated, root } = vitest.projects[0].config
    const files = (await vitest.globTestSpecifications()).map(({ moduleId }) => path.relative(root, moduleId))
    await this.#start(vitest, isolated ? files.map((file) => [file]) : [files])
  }

  /** Ends a thread, and starts another one with the same tests. */
  async replace(name) {
    const { files, worker, vitest } = this.threads.get(name)
    await worker.terminate()
    this.threads.delete(name)
    if (![...this.threads.values()].some((other) => other.vitest === vitest)) await this.#close(vitest)
    await this.#start(await this.#createVitest(), [files])
  }

  /**
   * What came of an order: `outcome` survived, killed or timeout; `ran`, the number of tests; `by` and `message`, of the test
   * that did not pass. After a timeout the thread may still be at it: it has to be replaced.
   */
  ask(name, order) {
    const { worker } = this.threads.get(name)
    const number = ++this.#asked
    return new Promise((resolve) => {
      let looks = 0
      let cpu = process.cpuUsage()
      let sign = { ran: 0, by: undefined }
      const end = (tried) => {
        clearInterval(looking)
        worker.off('exit', leave)
        this.#orders.delete(number)
        resolve(tried)
      }
      const giveUp = (message) => end({ ...sign, outcome: 'timeout', message })
      const leave = () => giveUp('its thread has ended')
      const looking = setInterval(() => {
        const { user, system } = process.cpuUsage(cpu)
        if ((user + system) / 1_000 > CIRCLES_CPU_MS) giveUp('it runs in circles')
        else if (++looks > LOOKS_MAX) giveUp('it waits for what does not come')
      }, LOOK_MS)
      this.#orders.set(number, ({ kind, ran, by, ...rest }) => {
        if (kind === 'tried') return end({ ran, by, ...rest })
        looks = 0
        cpu = process.cpuUsage()
        sign = { ran, by }
      })
      worker.once('exit', leave)
      this.#channel.postMessage({ kind: 'try', thread: name, number, ...order })
    })
  }

  async end() {
    this.#channel.postMessage({ kind: 'end' })
    await Promise.all([...this.#vitests].map((vitest) => this.#close(vitest)))
    this.#channel.close()
  }

  async #createVitest() {
    const vitest = await createVitest('test', {
      config: CONFIG,
      watch: false,
      onConsoleLog: () => false,
      reporters: [],
    })
    this.#vitests.add(vitest)
    return vitest
  }

  /** A thread for each list of files. Resolves when all have run their tests once. */
  async #start(vitest, fileLists) {
    vitest.provide('filesPerThread', fileLists[0].length)
    const ready = fileLists.map(
      (files) =>
        new Promise((resolve) => {
          const name = [...files].sort().join()
          this.#starts.set(name, ({ threadId, tests, coverage }) => {
            this.#starts.delete(name)
            this.threads.set(name, { name, files, tests, coverage, worker: this.#workers.get(threadId), vitest })
            this.#workers.delete(threadId)
            resolve()
          })
        }),
    )
    // ends when its threads do
    vitest.running = vitest.start(fileLists.flat()).catch(() => {})
    const ended = vitest.running.then(() => Promise.reject(new Error('the tests ended before they could be kept')))
    await Promise.race([Promise.all(ready), ended])
  }

  async #close(vitest) {
    this.#vitests.delete(vitest)
    await vitest.running
    await vitest.close()
  }
}
