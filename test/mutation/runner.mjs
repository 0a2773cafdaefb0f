/**
 * A test runner for Stryker that keeps vitest's threads between mutants: kept-worker.ts says how, and kept-threads.mjs how one
 * is ended that a mutant keeps busy for ever. A thread in which a mutant has left something behind (a loop that still turns, a
 * clock that was not put back) would lie about the next one. So after a timeout it is replaced; and a mutant counts as killed
 * only if the test that says so passes without it and fails with it once more.
 */
import path from 'node:path'
import { KeptThreads } from './kept-threads.mjs'

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
  kept = new KeptThreads()

  capabilities() {
    return { reloadEnvironment: true }
  }

  async init() {
    process.env.NODE_ENV = 'test'
    process.env.VITEST = '1'
    await this.kept.startAll()
    this.threads = [...this.kept.threads.values()]
    this.threadOf = new Map(this.threads.flatMap(({ name, tests }) => tests.map(({ id }) => [id, name])))
  }

  async dryRun() {
    const tests = this.threads.flatMap((thread) => thread.tests)
    // each test must pass again in a thread that is kept, or it would seem to kill every mutant
    const again = await this.tryInThreads(
      { id: null, fileName: '' },
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
    for (const { coverage } of this.threads) {
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
    const tried =
      mutantActivation === 'static'
        ? await this.tryReloaded(activeMutant)
        : await this.tryInThreads(activeMutant, testFilter ?? [...this.threadOf.keys()], hitLimit)
    switch (tried.outcome) {
      case 'killed':
        return { status: 'killed', killedBy: [tried.by], failureMessage: tried.message, nrOfTests: tried.ran }
      case 'timeout':
        return { status: 'timeout', reason: `${tried.by}: ${tried.message}` }
      default:
        return { status: 'survived', nrOfTests: tried.ran }
    }
  }

  /**
   * With all modules loaded anew, in the threads that reach the mutant: when they load it, or in a test. What a test leaves
   * behind may reach a mutant between two tests, which looks like loading it; the test that catches it may be in another file.
   */
  async tryReloaded({ id, fileName }) {
    let ran = 0
    const reaches = ({ coverage }) => [coverage.static, ...Object.values(coverage.perTest)].some((hits) => id in hits)
    const threads = this.threads.filter((thread) => id === null || reaches(thread))
    const files = new Map(threads.flatMap(({ name, files }) => files.map((file) => [file, name])))
    for (const file of likelyFirst(files.keys(), fileName)) {
      const tried = await this.tryInThread(files.get(file), { mutant: id, tests: [], reload: [file] })
      ran += tried.ran
      if (tried.outcome !== 'survived') return { ...tried, ran }
    }
    return { outcome: 'survived', ran }
  }

  async tryInThreads({ id, fileName }, tests, hitLimit) {
    let ran = 0
    const testsOf = new Map()
    for (const test of tests) {
      const thread = this.threadOf.get(test)
      testsOf.set(thread, [...(testsOf.get(thread) ?? []), test])
    }
    for (const thread of likelyFirst(testsOf.keys(), fileName)) {
      const order = { mutant: id, hitLimit, tests: testsOf.get(thread), reload: null }
      const tried = await this.tryInThread(thread, order)
      ran += tried.ran
      if (tried.outcome !== 'survived') return { ...tried, ran }
    }
    return { outcome: 'survived', ran }
  }

  async tryInThread(thread, order) {
    const tried = await this.kept.ask(thread, order)
    if (tried.outcome === 'timeout') await this.kept.replace(thread)
    if (tried.outcome !== 'killed' || order.mutant === null || (await this.isKilledAgain(thread, order, tried))) {
      return tried
    }
    // something of an earlier mutant was in the way, or is now
    await this.kept.replace(thread)
    const anew = await this.kept.ask(thread, order)
    if (anew.outcome !== 'survived') await this.kept.replace(thread)
    return anew
  }

  /** Whether the test passes without the mutant, and fails with it. */
  async isKilledAgain(thread, order, { by }) {
    const once = order.reload ? order : { ...order, tests: [by] }
    const without = await this.kept.ask(thread, { ...once, mutant: null, hitLimit: undefined })
    return without.outcome === 'survived' && (await this.kept.ask(thread, once)).outcome === 'killed'
  }

  async dispose() {
    await this.kept.end()
  }
}

export const strykerPlugins = [{ kind: 'TestRunner', name: 'kept-vitest', injectableClass: KeptVitest }]
