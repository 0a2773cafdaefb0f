import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { choosePort } from '../../src/embedded/postmaster.ts'
import type { Bench } from '../harness/bench.ts'
import type { Closers } from '../harness/closers.ts'
import { short } from '../harness/interleave.ts'
import { atMost, judge } from '../harness/result.ts'
import { median } from '../harness/statistics.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const LIMIT_S = { initialised: 5, new: 10 }
const LOOK_MS = 20
const REQUEST_MS = 5_000
const PATIENCE_MS = 60_000
/** Longer than the service itself takes to give up its drain. */
const STOP_MS = 100_000
const OUTPUT_CHARS_MAX = 20_000

/** One item for a type that needs no file of types, as somebody who has just cloned would send it. */
const FIRST = {
  type: 'example-import',
  items: [{ key: 'berlin', input: { name: 'Berlin', country: 'DE', lat: 52.52, lng: 13.405 } }],
}

const post = (port: number): Promise<number> =>
  fetch(`http://127.0.0.1:${port}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(FIRST),
    signal: AbortSignal.timeout(REQUEST_MS),
  }).then(
    ({ status }) => status,
    () => 0,
  )

/** Of nobody's settings but ours: a DATABASE_URL or a type file of the caller would be another start. */
const environment = (port: number, dataDir: string): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH ?? '',
  HOME: process.env.HOME ?? '',
  PORT: String(port),
  OPLEDGER_DATA_DIR: dataDir,
  LOG_LEVEL: 'warn',
})

/** Ends the group: npm, a shell and the service get the signal, and what holds the output of any of them has ended. */
const stopGroup = async (child: ChildProcess, closed: Promise<unknown>): Promise<void> => {
  if (child.pid === undefined) return
  const signal = (name: 'SIGTERM' | 'SIGKILL') => {
    try {
      process.kill(-(child.pid as number), name)
    } catch {
      // nobody of the group is left
    }
  }
  signal('SIGTERM')
  const timer = setTimeout(() => signal('SIGKILL'), STOP_MS)
  await closed
  clearTimeout(timer)
}

/** Seconds from `npm start` to the first 202. Everything that it started has ended when this answers. */
const start = async (closers: Closers, dataDir: string): Promise<number> => {
  const port = await choosePort(null)
  const startedAt = performance.now()
  // a group of its own, as npm, a shell and node may all stand between us and the service
  const child = spawn('npm', ['start'], {
    cwd: ROOT,
    env: environment(port, dataDir),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const closed = once(child, 'close')
  let stopping: Promise<void> | null = null
  const stop = (): Promise<void> => {
    stopping ??= stopGroup(child, closed)
    return stopping
  }
  closers.add(stop) // a run that is told to stop in the middle would leave it behind
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output = (output + String(chunk)).slice(-OUTPUT_CHARS_MAX)
    })
  }
  try {
    while ((await post(port)) !== 202) {
      if (child.exitCode !== null) throw new Error(`npm start ended: ${output}`)
      if (performance.now() - startedAt > PATIENCE_MS) throw new Error(`no 202 in ${PATIENCE_MS / 1_000} s: ${output}`)
      await sleep(LOOK_MS)
    }
    return (performance.now() - startedAt) / 1_000
  } finally {
    await stop()
  }
}

export const firstStart: Bench = {
  id: 'B10',
  load: '`npm start` in the clone, after the install, until the first POST is answered with 202',
  async run({ quick, closers, directory, say }) {
    const rounds = quick ? 1 : 5
    const seconds = { new: [] as number[], initialised: [] as number[] }
    // the first round finds cold files, as a first start after the install would not: the install has just written them
    for (let round = 0; round <= rounds; round++) {
      const dataDir = path.join(directory, `clone-${round}`)
      mkdirSync(dataDir)
      chmodSync(dataDir, 0o755)
      for (const state of ['new', 'initialised'] as const) {
        const took = await start(closers, dataDir)
        if (round > 0) seconds[state].push(took)
        say(`${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}: ${state} data directory ${short(took)} s`)
      }
      rmSync(dataDir, { recursive: true, force: true })
    }
    const line = (state: keyof typeof seconds) =>
      judge({
        id: 'B10',
        what: `\`npm start\` to the first 202, ${state} data directory`,
        against: `${LIMIT_S[state]} s`,
        goal: atMost(1),
        ratios: seconds[state].map((took) => took / LIMIT_S[state]),
        absolute: `${short(median(seconds[state]))} s`,
      })
    return { results: [line('initialised'), line('new')], chart: null }
  },
}
