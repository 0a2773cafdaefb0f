/**
 * The service as real processes, with workers that can be killed and frozen: PostgreSQL, api, two workers that are
 * started again within a second, and the effect server with its fsynced log.
 */
import type { ChildProcess } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { createLog } from '../../src/log.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { spawnScript, until, waitForExit, waitForLine } from '../support/processes.ts'

const RESTART_MS = { min: 100, max: 900 }
const GRACE_MS = 20_000

export interface SupervisedWorker {
  /** SIGKILL; false when it is not running at this moment. */
  kill(): boolean
  /** SIGSTOP now and SIGCONT after `ms`; false when it is not running. */
  freeze(ms: number): boolean
  readonly isFrozen: boolean
}

export interface Stack {
  url: string
  databaseUrl: string
  effectsUrl: string
  workers: readonly SupervisedWorker[]
  directory: string
  stop(options: { keepDirectory: boolean }): Promise<void>
}

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))

type Launch = (file: string, args?: string[]) => ChildProcess

const superviseWorker = (launch: Launch, random: () => number): SupervisedWorker & { stop(): Promise<void> } => {
  let stopping = false
  let frozen = false
  let restart: NodeJS.Timeout | undefined
  let child: ChildProcess
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null
  const start = (): void => {
    child = launch('../../src/worker.ts')
    child.once('exit', () => {
      if (!stopping) restart = setTimeout(start, RESTART_MS.min + random() * (RESTART_MS.max - RESTART_MS.min))
    })
  }
  start()
  return {
    get isFrozen() {
      return frozen
    },
    kill: () => isRunning() && child.kill('SIGKILL'),
    freeze(ms) {
      if (!isRunning() || frozen) return false
      const victim = child
      frozen = victim.kill('SIGSTOP')
      setTimeout(() => {
        victim.kill('SIGCONT')
        frozen = false
      }, ms)
      return frozen
    },
    async stop() {
      stopping = true
      clearTimeout(restart)
      child.kill('SIGCONT')
      child.kill('SIGTERM')
      const killer = setTimeout(() => child.kill('SIGKILL'), GRACE_MS)
      await waitForExit(child)
      clearTimeout(killer)
    },
  }
}

export const startStack = async (random: () => number): Promise<Stack> => {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'opledger-faults-'))
  fs.chmodSync(directory, 0o755) // as root, PostgreSQL runs under another account and has to get in
  const log = createLog({ level: 'silent', name: 'faults' })
  const database = await startEmbeddedPostgres({ dataDir: path.join(directory, 'data'), log })
  await migrate({ url: database.url })

  const effects = spawnScript('effect-server.ts', ['0', path.join(directory, 'effects.log')])
  const effectsUrl = (await waitForLine(effects, /^effect server on /)).replace(/^effect server on /, '')

  const port = await choosePort(null)
  const output = fs.createWriteStream(path.join(directory, 'service.log'))
  const env = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    DATABASE_URL: database.url,
    PORT: String(port),
    AUTH: 'off',
    WORKER_CONCURRENCY: '12', // room for every shard of a round on both workers
    LOG_LEVEL: 'info',
    OPLEDGER_TYPES: `${here('types.yaml')},${here('types.ts')}`,
    FAULTS_EFFECTS_URL: effectsUrl,
  }
  // The channel tells each of them when we are gone, whatever ended us.
  const launch: Launch = (file, args = []) => {
    const child = spawnScript(file, args, { env, ipc: true })
    child.stdout?.pipe(output, { end: false })
    child.stderr?.pipe(output, { end: false })
    return child
  }
  const api = launch('../../src/api.ts')
  const workers = [superviseWorker(launch, random), superviseWorker(launch, random)]
  const url = `http://127.0.0.1:${port}`
  const stop: Stack['stop'] = async ({ keepDirectory }) => {
    await Promise.all(workers.map((worker) => worker.stop()))
    api.kill('SIGTERM')
    await waitForExit(api)
    effects.kill('SIGTERM')
    await waitForExit(effects)
    await database.stop()
    output.end()
    if (!keepDirectory) fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    await until('the api is ready', async () => {
      if (api.exitCode !== null) throw new Error(`the api ended; see ${directory}/service.log`)
      await sleep(100)
      return fetch(`${url}/readyz`).then(
        (response) => response.ok,
        () => false,
      )
    })
  } catch (error) {
    await stop({ keepDirectory: true })
    throw error
  }
  return { url, databaseUrl: database.url, effectsUrl, workers, directory, stop }
}
