import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { choosePort } from '../../src/embedded/postmaster.ts'
import type { Bench } from '../harness/bench.ts'
import { short } from '../harness/interleave.ts'
import { atMost, judge } from '../harness/result.ts'
import { median } from '../harness/statistics.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const LIMIT_S = { initialised: 5, new: 10 }
const LOOK_MS = 20
const PATIENCE_MS = 60_000
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
  }).then(
    ({ status }) => status,
    () => 0,
  )

/** Seconds from `npm start` to the first 202. Everything that it started has ended when this answers. */
const start = async (dataDir: string): Promise<number> => {
  const port = await choosePort(null)
  const { DATABASE_URL: _, ...env } = process.env
  const startedAt = performance.now()
  // a group of its own, as npm, a shell and node may all stand between us and the service
  const child = spawn('npm', ['start'], {
    cwd: ROOT,
    env: { ...env, PORT: String(port), OPLEDGER_DATA_DIR: dataDir, LOG_LEVEL: 'warn' },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output = (output + String(chunk)).slice(-OUTPUT_CHARS_MAX)
    })
  }
  const exited = once(child, 'exit')
  try {
    while ((await post(port)) !== 202) {
      if (child.exitCode !== null) throw new Error(`npm start ended: ${output}`)
      if (performance.now() - startedAt > PATIENCE_MS) throw new Error(`no 202 in ${PATIENCE_MS / 1_000} s: ${output}`)
      await sleep(LOOK_MS)
    }
    return (performance.now() - startedAt) / 1_000
  } finally {
    if (child.exitCode === null && child.pid !== undefined) process.kill(-child.pid, 'SIGTERM')
    await exited
  }
}

export const firstStart: Bench = {
  id: 'B10',
  load: '`npm start` in the clone, after the install, until the first POST is answered with 202',
  async run({ quick, directory, say }) {
    const seconds = { new: [] as number[], initialised: [] as number[] }
    for (let n = 0; n < (quick ? 1 : 5); n++) {
      const dataDir = path.join(directory, `clone-${n}`)
      mkdirSync(dataDir)
      chmodSync(dataDir, 0o755)
      for (const state of ['new', 'initialised'] as const) {
        const took = await start(dataDir)
        seconds[state].push(took)
        say(`${state} data directory: ${short(took)} s`)
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
