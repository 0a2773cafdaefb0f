/**
 * Set-up file of each test file while mutants are tried. A thread of vitest costs far more than a test of a pure function: so it
 * runs its tests once, noting which mutants each of them reaches, and is then kept. One mutant after the other is switched on
 * in it, and the tests that reach it are run again (runner.mjs says which). What is evaluated when a module is loaded cannot
 * be switched so: for such a mutant the test files and all modules below them are loaded once more, with the mutant on.
 */
import { BroadcastChannel, threadId } from 'node:worker_threads'
import {
  afterAll,
  afterEach,
  beforeEach,
  inject,
  type RunnerTestCase,
  type RunnerTestSuite,
  TestRunner,
  vi,
} from 'vitest'

type Suite = RunnerTestSuite
type Test = RunnerTestCase

declare module 'vitest' {
  interface ProvidedContext {
    /** How many test files a thread runs before it waits for mutants. */
    filesPerThread: number
  }
}

/** What Stryker's instrumented code reads and writes. */
interface Instrumented {
  activeMutant?: string | undefined
  currentTestId?: string | undefined
  mutantCoverage?: unknown
  hitCount?: number | undefined
  hitLimit?: number | undefined
}
interface Thread {
  __stryker__?: Instrumented
  keptFiles?: Suite[]
}

/** A test of which nothing is heard in so many looks hangs. Looks, not time alone: a thread on a busy machine has its turns late. */
const HANG_LOOKS = 40
const LOOK_MS = 50

const thread = globalThis as Thread
thread.__stryker__ ??= {}
const instrumented = thread.__stryker__
thread.keptFiles ??= []
const keptFiles = thread.keptFiles
// taken before any test puts its own clock in their place
const { setTimeout, clearTimeout } = globalThis

const nameOf = (task: { name: string; suite?: Suite | undefined }): string =>
  task.suite ? `${nameOf(task.suite)} ${task.name}`.trim() : task.name
const idOf = (test: Test): string => `${test.file.name}#${nameOf(test)}`
const testsOf = (suite: Suite): Test[] =>
  suite.tasks.flatMap((task): Test[] => (task.type === 'suite' ? testsOf(task) : [task]))
const suitesOf = (suite: Suite | undefined): Suite[] => (suite ? [...suitesOf(suite.suite), suite] : [])

class Hangs extends Error {}

const orHangs = async (work: () => unknown): Promise<unknown> => {
  let timer: NodeJS.Timeout | undefined
  const watched = new Promise((_resolve, reject) => {
    let looks = 0
    const look = (): void => {
      if (++looks > HANG_LOOKS) reject(new Hangs('it hangs'))
      else timer = setTimeout(look, LOOK_MS)
    }
    look()
  })
  try {
    return await Promise.race([(async () => work())(), watched])
  } finally {
    clearTimeout(timer)
  }
}

type Hooks = Pick<ReturnType<typeof TestRunner.getSuiteHooks>, 'beforeEach' | 'afterEach'>

/** Runs a test again, with the hooks around it. `fileHooks` are those of its file, as it was loaded. Throws as it does. */
const runAgain = async (test: Test, fileHooks: Hooks): Promise<void> => {
  const suites = [test.file, ...suitesOf(test.suite).filter((suite) => suite !== test.file)]
  const cleanups: unknown[] = []
  const hooksOf = (suite: Suite): Hooks =>
    suite === test.file ? fileHooks : (TestRunner.getSuiteHooks(suite) ?? { beforeEach: [], afterEach: [] })
  let failure: { error: unknown } | null = null
  const attempt = async (work: () => unknown): Promise<void> => {
    await orHangs(work).catch((error: unknown) => {
      failure ??= { error }
    })
  }
  await attempt(async () => {
    for (const suite of suites) {
      for (const hook of hooksOf(suite).beforeEach) cleanups.push(await hook(test.context, suite))
    }
    await TestRunner.getTestFn(test)()
  })
  const clean = async (): Promise<void> => {
    for (const suite of suites.toReversed()) {
      for (const hook of hooksOf(suite).afterEach) await hook(test.context, suite)
    }
    for (const cleanup of cleanups) if (typeof cleanup === 'function') await cleanup()
  }
  // nothing is cleaned up after a test that hangs: its thread is ended
  if (!((failure as { error: unknown } | null)?.error instanceof Hangs)) await attempt(clean)
  const failed = failure as { error: unknown } | null
  if (failed) throw failed.error
}

interface Order {
  kind: 'try'
  number: number
  thread: string
  mutant: string | null
  hitLimit: number | undefined
  tests: string[]
  /** Files to load anew, instead of `tests`. */
  reload: string[] | null
}

/** Loads a test file and all modules below it once more: its tests, unrun, and the hooks of the file. */
const loadAgain = async (file: Suite): Promise<{ tests: Test[]; hooks: Hooks }> => {
  const collector = TestRunner.getCurrentSuite()
  collector.clear()
  vi.resetModules()
  await import(/* @vite-ignore */ file.file.filepath)
  const root = await collector.collect(file.file)
  return { tests: testsOf(root), hooks: TestRunner.getSuiteHooks(root) }
}

/** Tries mutants until nobody wants any more. */
const serve = async (): Promise<void> => {
  const channel = new BroadcastChannel('mutants')
  const name = keptFiles
    .map((file) => file.name)
    .sort()
    .join()
  const tests = new Map(keptFiles.flatMap(testsOf).map((test) => [idOf(test), test]))
  /** Says that a test, or a file, begins: whoever watches from outside starts to count anew. */
  const give = (sign: { number: number; ran: number; by: string }): void =>
    channel.postMessage({ kind: 'sign', ...sign })
  const tryReloaded = async (number: number, paths: readonly string[]) => {
    let ran = 0
    for (const path of paths) {
      const file = keptFiles.find((candidate) => candidate.name === path)
      if (!file) continue
      try {
        give({ number, ran, by: path })
        const { tests: loaded, hooks } = await loadAgain(file)
        for (const test of loaded) {
          give({ number, ran: ++ran, by: idOf(test) })
          await runAgain(test, hooks)
        }
      } catch (error) {
        const by = [...tests.keys()].find((id) => id.startsWith(`${path}#`))
        const message = error instanceof Error ? error.message : String(error)
        return { outcome: error instanceof Hangs ? 'timeout' : 'killed', by, ran, message }
      }
    }
    return { outcome: 'survived', ran }
  }
  const tryMutant = async ({ number, mutant, hitLimit, tests: ids, reload }: Order) => {
    instrumented.activeMutant = mutant ?? undefined
    instrumented.hitLimit = hitLimit
    instrumented.hitCount = hitLimit === undefined ? undefined : 0
    let ran = 0
    try {
      if (reload !== null) return await tryReloaded(number, reload)
      for (const id of ids) {
        const test = tests.get(id)
        if (!test) continue
        give({ number, ran: ++ran, by: id })
        try {
          await runAgain(test, TestRunner.getSuiteHooks(test.file))
        } catch (error) {
          const overLimit = hitLimit !== undefined && (instrumented.hitCount ?? 0) > hitLimit
          const outcome = error instanceof Hangs || overLimit ? 'timeout' : 'killed'
          return { outcome, by: id, ran, message: error instanceof Error ? error.message : String(error) }
        }
      }
      return { outcome: 'survived', ran }
    } finally {
      instrumented.activeMutant = undefined
      instrumented.hitLimit = undefined
    }
  }
  await new Promise<void>((resolve) => {
    channel.onmessage = (event) => {
      const { data } = event as { data: Order | { kind: 'end' } }
      if (data.kind === 'end') return resolve()
      if (data.kind !== 'try' || data.thread !== name) return
      void tryMutant(data).then((result) => channel.postMessage({ kind: 'tried', number: data.number, ...result }))
    }
    channel.postMessage({
      kind: 'ready',
      thread: name,
      threadId,
      coverage: instrumented.mutantCoverage ?? { static: {}, perTest: {} },
      tests: [...tests].map(([id, test]) => ({
        id,
        name: nameOf(test),
        file: test.file.filepath,
        state: test.result?.state ?? test.mode,
        durationMs: test.result?.duration ?? 0,
        message: test.result?.errors?.[0]?.message ?? null,
      })),
    })
  })
  channel.close()
}

beforeEach(({ task }) => {
  if (instrumented.activeMutant === undefined) instrumented.currentTestId = idOf(task)
})
afterEach(() => {
  instrumented.currentTestId = undefined
})
afterAll(
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads the names in this pattern
  async ({}, suite) => {
    keptFiles.push(suite as Suite)
    if (keptFiles.length === inject('filesPerThread')) await serve()
  },
  2 ** 31 - 1,
)
