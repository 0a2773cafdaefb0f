/**
 * A test runner for Stryker that keeps vitest's threads between mutants; kept-worker.ts says how.
 */
import path from 'node:path'
import { BroadcastChannel } from 'node:worker_threads'
import { createVitest } from 'vitest/node'

const CONFIG = 'test/mutation/vitest.config.ts'
const TEST_PASSED = 0
const TEST_FAILED = 1
const TEST_SKIPPED = 2

/** Files of tests that bear the name of the mutated one are likely to kill it. */
const likelyFirst = (files, mutated) => {
  const name = path.basename(mutated, '.ts')
  return [...files].sort(
    (a, b) => Number(path.basename(b).startsWith(name)) - Number(path.basename(a).startsWith(name)),
  )
}

class KeptVitest {
  static inject = []
  threads = new Map()
  orders = new Map()
  ordered = 0

  capabilities() {
    return { reloadEnvironment: true }
  }

  async init() {
    process.env.NODE_ENV = 'test'
    process.env.VITEST = '1'
    this.channel = new BroadcastChannel('mutants')
    this.kept = await createVitest('test', { config: CONFIG, watch: false, onConsoleLog: () => false, reporters: [] })
    const files = await this.kept.globTestSpecifications()
    const { isolate: isolated } = this.kept.projects[0].config
    this.kept.provide('filesPerThread', isolated ? 1 : files.length)
    const wanted = isolated ? files.length : 1
    await new Promise((resolve, reject) => {
      this.channel.onmessage = ({ data }) => {
        if (data.kind === 'ready') this.threads.set(data.thread, data)
        if (data.kind === 'ready' && this.threads.size === wanted) resolve()
        if (data.kind === 'tried') this.orders.get(data.number)?.(data)
      }
      this.running = this.kept.start()
      this.running.then(() => reject(new Error('the tests ended before they could be kept')), reject)
    })
    this.threadOf = new Map()
    for (const { thread, tests } of this.threads.values()) for (const { id } of tests) this.threadOf.set(id, thread)
  }

  async dryRun() {
    const tests = [...this.threads.values()].flatMap((thread) => thread.tests)
    // each test must pass again in a thread that is kept, or it would seem to kill every mutant
    const again = await this.tryInThreads(
      null,
      tests.filter(({ state }) => state === 'pass').map(({ id }) => id),
    )
    if (again.outcome !== 'survived') {
      return { status: 'error', errorMessage: `a test does not pass twice: ${again.by}: ${again.message}` }
    }
    const reloaded = await this.tryReloaded({ id: null, fileName: '' })
    if (reloaded.outcome !== 'survived' || reloaded.ran !== tests.length) {
      const { ran, by, message } = reloaded
      return { status: 'error', errorMessage: `loaded anew, ${ran} of ${tests.length} tests pass: ${by}: ${message}` }
    }
    const mutantCoverage = { static: {}, perTest: {} }
    for (const { coverage } of this.threads.values()) {
      Object.assign(mutantCoverage.perTest, coverage.perTest)
      for (const [mutant, hits] of Object.entries(coverage.static)) {
        mutantCoverage.static[mutant] = (mutantCoverage.static[mutant] ?? 0) + hits
      }
    }
    return {
      status: 'complete',
      mutantCoverage,
      tests: tests.map(({ id, name, file, state, durationMs, message }) => ({
        id,
        name,
        fileName: file,
        timeSpentMs: durationMs,
        status: state === 'pass' ? TEST_PASSED : state === 'fail' ? TEST_FAILED : TEST_SKIPPED,
        ...(state === 'fail' ? { failureMessage: message } : {}),
      })),
    }
  }

  async mutantRun({ activeMutant, mutantActivation, testFilter, hitLimit }) {
    const tests = testFilter ?? [...this.threadOf.keys()]
    const tried =
      mutantActivation === 'static'
        ? await this.tryReloaded(activeMutant)
        : await this.tryInThreads(activeMutant.id, tests, hitLimit)
    switch (tried.outcome) {
      case 'killed':
        return { status: 'killed', killedBy: [tried.by], failureMessage: tried.message, nrOfTests: tried.ran }
      case 'timeout':
        return { status: 'timeout', reason: `${tried.by}: ${tried.message}` }
      default:
        return { status: 'survived', nrOfTests: tried.ran }
    }
  }

  order(order) {
    const number = ++this.ordered
    return new Promise((resolve) => {
      this.orders.set(number, resolve)
      this.channel.postMessage({ kind: 'try', number, ...order })
    }).finally(() => this.orders.delete(number))
  }

  /** With all modules loaded anew, in the threads that load the mutant. */
  async tryReloaded({ id: mutant, fileName }) {
    let ran = 0
    const threads = [...this.threads.values()].filter(({ coverage }) => mutant === null || mutant in coverage.static)
    const files = new Map(threads.flatMap(({ thread }) => thread.split(',').map((file) => [file, thread])))
    for (const file of likelyFirst(files.keys(), fileName)) {
      const tried = await this.order({ thread: files.get(file), mutant, tests: [], reload: [file] })
      ran += tried.ran
      if (tried.outcome !== 'survived') return { ...tried, ran }
    }
    return { outcome: 'survived', ran }
  }

  async tryInThreads(mutant, tests, hitLimit) {
    let ran = 0
    for (const [thread, ids] of Map.groupBy(tests, (id) => this.threadOf.get(id))) {
      const tried = await this.order({ thread, mutant, hitLimit, tests: ids, reload: null })
      ran += tried.ran
      if (tried.outcome !== 'survived') return { ...tried, ran }
    }
    return { outcome: 'survived', ran }
  }

  async dispose() {
    this.channel?.postMessage({ kind: 'end' })
    await this.running
    await this.kept?.close()
    this.channel?.close()
  }
}

export const strykerPlugins = [{ kind: 'TestRunner', name: 'kept-vitest', injectableClass: KeptVitest }]
