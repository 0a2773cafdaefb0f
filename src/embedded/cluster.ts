import { randomBytes } from 'node:crypto'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ConfigurationError } from '../domain/errors.ts'
import { type Account, type CommandResult, canEnter, giveTo, runAs } from './account.ts'
import type { Binaries } from './binaries.ts'
import { acceptsSessions, choosePort, readPostmasterFile } from './postmaster.ts'
import { isOccupied, worksIn } from './process-table.ts'

/**
 * One PostgreSQL cluster in `<data dir>/postgres`: create, start or adopt, stop. All of it is called under the
 * directory's lock.
 *
 * Safe under a crash at each line: a cluster is made in a directory of its own and renamed when whole, so a half-made
 * one is never started; its password is on disk before it. A server that outlived its starter is adopted. Its
 * `postmaster.pid` is removed only when neither the postmaster nor one of its backends runs any more: PostgreSQL uses
 * that file to keep a second server away from the data.
 */
export interface Cluster {
  dataDir: string
  directory: string
  account: Account
  binaries: Binaries
  /** Server settings on top of ours; tests switch `fsync` off. */
  settings: Readonly<Record<string, string>>
}

export interface RunningServer {
  pid: number
  port: number
  /** True when it was running already. */
  adopted: boolean
}

const NAME = 'opledger'
const STAGING_PREFIX = 'init-'
const START_WAIT_MS = 60_000
const START_ATTEMPTS_MAX = 5
const STOP_WAIT_SECONDS = 30
const POLL_MS = 50
const LOG_BYTES_MAX = 8 * 1024 * 1024
const LOG_TAIL_LINES = 3

/**
 * Runs a program in a cluster directory. Where the account cannot reach the directory by its path (a home of mode 0700
 * above it), it is handed over as the working directory, which needs no search permission on the parents.
 */
const runIn = async (
  cluster: Cluster,
  directory: string,
  name: 'initdb' | 'pg_ctl' | 'postgres',
  args: (directory: string) => string[],
  input?: string,
): Promise<CommandResult> => {
  const reachable = await canEnter(cluster.account, directory)
  const program = path.join(cluster.binaries.directory, 'bin', name)
  const options = { cwd: directory, ...(input === undefined ? {} : { input }) }
  return runAs(cluster.account, program, args(reachable ? directory : '/proc/self/cwd'), options)
}

const must = (result: CommandResult, what: string): void => {
  if (!result.ok) throw new Error(`${what} failed: ${result.output.split('\n').slice(-LOG_TAIL_LINES).join(' ')}`)
}

const passwordFile = (dataDir: string): string => path.join(dataDir, 'password')

export const readPassword = (dataDir: string): string => readFileSync(passwordFile(dataDir), 'utf8').trim()

/** Creates the cluster, its superuser and its database unless they exist. 1–2 s the first time. */
export const ensureCluster = async (cluster: Cluster): Promise<void> => {
  const { dataDir, directory, account, binaries } = cluster
  for (const name of readdirSync(dataDir)) {
    if (name.startsWith(STAGING_PREFIX))
      rmSync(path.join(dataDir, name), { recursive: true, force: true, maxRetries: 5 })
  }
  const versionFile = path.join(directory, 'PG_VERSION')
  if (existsSync(versionFile)) {
    const version = readFileSync(versionFile, 'utf8').trim()
    if (version !== binaries.major) {
      throw new ConfigurationError(
        `OPLEDGER_DATA_DIR: ${dataDir} was made by PostgreSQL ${version}, and ${binaries.major} is installed; use another directory, or dump and restore`,
      )
    }
    if (!existsSync(passwordFile(dataDir))) {
      throw new ConfigurationError(
        `OPLEDGER_DATA_DIR: ${passwordFile(dataDir)} is missing; restore it, or remove ${dataDir}`,
      )
    }
    return
  }
  if (existsSync(directory)) {
    throw new ConfigurationError(`OPLEDGER_DATA_DIR: ${directory} exists but holds no PostgreSQL cluster; remove it`)
  }
  if (!existsSync(passwordFile(dataDir))) {
    writeFileSync(passwordFile(dataDir), randomBytes(24).toString('hex'), { mode: 0o600, flush: true })
  }

  const staging = mkdtempSync(path.join(dataDir, STAGING_PREFIX))
  const made = path.join(staging, 'data')
  mkdirSync(made, { mode: 0o700 })
  writeFileSync(path.join(staging, 'pwfile'), readPassword(dataDir), { mode: 0o600 })
  for (const file of [staging, made, path.join(staging, 'pwfile')]) giveTo(account, file)
  const options = ['-U', NAME, '-E', 'UTF8', '--locale=C.UTF-8', '-A', 'scram-sha-256', '--pwfile=../pwfile']
  must(await runIn(cluster, made, 'initdb', (at) => ['-D', at, ...options]), 'initdb')
  appendFileSync(path.join(made, 'postgresql.conf'), "\ninclude_if_exists = 'opledger.conf'\n")
  const statement = `CREATE DATABASE ${NAME}\n`
  must(await runIn(cluster, made, 'postgres', (at) => ['--single', '-D', at, 'postgres'], statement), statement.trim())
  renameSync(made, directory)
  rmSync(staging, { recursive: true, force: true })
}

const quote = (value: string): string => `'${value.replaceAll("'", "''")}'`

const writeSettings = (cluster: Cluster, port: number): void => {
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    timezone: 'UTC',
    log_timezone: 'UTC',
    synchronous_commit: 'on',
    ...cluster.settings,
  }
  const file = path.join(cluster.directory, 'opledger.conf')
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${quote(value)}\n`)
  writeFileSync(file, `# Written at every start.\n${lines.join('')}`)
  giveTo(cluster.account, file)
}

const logFile = (cluster: Cluster): string => path.join(cluster.directory, 'server.log')

const boundLog = (cluster: Cluster): void => {
  const file = logFile(cluster)
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > LOG_BYTES_MAX) renameSync(file, `${file}.1`)
}

const logTail = (cluster: Cluster): string => {
  const file = logFile(cluster)
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').slice(-LOG_TAIL_LINES).join(' ') : ''
}

/** The server that runs on this cluster now, once it accepts sessions; null when none does. */
const findRunning = async (cluster: Cluster): Promise<RunningServer | null> => {
  const giveUpAt = performance.now() + START_WAIT_MS
  for (;;) {
    const file = readPostmasterFile(cluster.directory)
    if (file === null || !worksIn(file.pid, cluster.directory)) return null
    // It may be starting, recovering or shutting down: each of them ends.
    if (file.port > 0 && (await acceptsSessions(file.port))) return { pid: file.pid, port: file.port, adopted: true }
    if (performance.now() > giveUpAt) {
      throw new Error(`PostgreSQL (process ${file.pid}) runs in ${cluster.directory} but does not answer; stop it`)
    }
    await sleep(POLL_MS)
  }
}

/** The backends of a killed postmaster notice its death within moments; then its lock file is stale. */
const clearStaleLockFile = async (cluster: Cluster): Promise<void> => {
  // Elsewhere we cannot see who works in the directory, and PostgreSQL judges its own file.
  if (process.platform !== 'linux') return
  const giveUpAt = performance.now() + START_WAIT_MS
  while (isOccupied(cluster.directory)) {
    if (performance.now() > giveUpAt) {
      throw new Error(`processes of a PostgreSQL that was killed still work in ${cluster.directory}; stop them`)
    }
    await sleep(POLL_MS)
  }
  rmSync(path.join(cluster.directory, 'postmaster.pid'), { force: true })
}

/** Adopts the running server, or starts one, if possible on the preferred port. */
export const ensureRunning = async (cluster: Cluster, preferredPort: number | null): Promise<RunningServer> => {
  const running = await findRunning(cluster)
  if (running) return running
  for (let attempt = 1; ; attempt++) {
    await clearStaleLockFile(cluster)
    boundLog(cluster)
    // Between this choice and the server's own bind another process can take the port: then the next attempt.
    const port = await choosePort(attempt === 1 ? preferredPort : null)
    writeSettings(cluster, port)
    const options = ['-w', '-t', String(START_WAIT_MS / 1000), '-s', '-l', 'server.log']
    const result = await runIn(cluster, cluster.directory, 'pg_ctl', (at) => ['start', '-D', at, ...options])
    const file = readPostmasterFile(cluster.directory)
    if (result.ok && file) return { pid: file.pid, port: file.port, adopted: false }
    if (attempt >= START_ATTEMPTS_MAX)
      throw new Error(`PostgreSQL does not start: ${result.output} ${logTail(cluster)}`)
  }
}

/** Ends all sessions and stops the server; returns when none of its processes is left. */
export const stopServer = async (cluster: Cluster): Promise<void> => {
  for (const mode of ['fast', 'immediate']) {
    const file = readPostmasterFile(cluster.directory)
    if (file === null || !worksIn(file.pid, cluster.directory)) break
    const options = ['-m', mode, '-w', '-t', String(STOP_WAIT_SECONDS), '-s']
    await runIn(cluster, cluster.directory, 'pg_ctl', (at) => ['stop', '-D', at, ...options])
  }
  const giveUpAt = performance.now() + STOP_WAIT_SECONDS * 1000
  while (isOccupied(cluster.directory) && performance.now() < giveUpAt) await sleep(POLL_MS)
}

/** The directory that holds everything of one embedded PostgreSQL. */
export const openDataDir = (dataDir: string): void => {
  if (existsSync(dataDir)) return
  mkdirSync(dataDir, { recursive: true })
  // Below it only the cluster (0700) and the password (0600) are secret; the account has to get through.
  chmodSync(dataDir, 0o755)
}
