/** The service of the demo: the real `start` as a child process, in a data directory of its own, on a free port. */
import { type ChildProcess, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { createLog } from '../../src/log.ts'

const READY_MS = 120_000
const POLL_MS = 100
const LOG_TAIL_LINES = 20

export interface Service {
  url: string
  /** Of its embedded PostgreSQL: to compare what the ledger says with what the target holds. */
  databaseUrl: string
  stop(): Promise<void>
}

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url))

/** Nothing of the caller's own installation: no other database, no other types. */
const environment = (own: Record<string, string>): Record<string, string | undefined> => {
  const inherited = Object.entries(process.env).filter(
    ([key]) => !/^(OPLEDGER_|DATABASE_|HOST$|PORT$|PUBLIC_URL$|AUTH$|WORKER)/.test(key),
  )
  return { ...Object.fromEntries(inherited), ...own }
}

const exited = (child: ChildProcess): Promise<void> =>
  new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve()
    else child.once('exit', () => resolve())
  })

const isReady = async (url: string): Promise<boolean> => {
  try {
    return (await fetch(`${url}/readyz`)).ok
  } catch {
    return false
  }
}

export const startService = async (options: {
  directory: string
  workers: number
  providerUrl: string
  /** Gives the start up. */
  signal: AbortSignal
}): Promise<Service> => {
  const port = await choosePort(null)
  const dataDir = path.join(options.directory, 'data')
  const logFile = path.join(options.directory, 'service.log')
  const output = fs.openSync(logFile, 'a')
  // The channel tells `start` when we are gone, whatever ended us: it then stops everything.
  const child = spawn(process.execPath, ['--import', 'tsx', here('../../src/start.ts')], {
    stdio: ['ignore', output, output, 'ipc'],
    env: environment({
      PORT: String(port),
      OPLEDGER_DATA_DIR: dataDir,
      OPLEDGER_TYPES: `${here('types.yaml')},${here('types.ts')}`,
      WORKERS: String(options.workers),
      LOG_LEVEL: 'warn',
      DEMO_PROVIDER_URL: options.providerUrl,
    }),
  })
  fs.closeSync(output)
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM')
    await exited(child)
  }

  const url = `http://127.0.0.1:${port}`
  const giveUpAt = performance.now() + READY_MS
  while (!(await isReady(url))) {
    if (child.exitCode !== null || options.signal.aborted || performance.now() > giveUpAt) {
      await stop()
      options.signal.throwIfAborted()
      const tail = fs.readFileSync(logFile, 'utf8').trim().split('\n').slice(-LOG_TAIL_LINES)
      throw new Error(`the service did not become ready:\n${tail.join('\n')}`)
    }
    await sleep(POLL_MS)
  }
  // A second user of the same server: it is adopted, and stays until its last user leaves.
  const database = await startEmbeddedPostgres({ dataDir, log: createLog({ level: 'silent', name: 'demo' }) })
  return {
    url,
    databaseUrl: database.url,
    async stop() {
      await database.stop()
      await stop()
    },
  }
}
