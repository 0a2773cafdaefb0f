/**
 * A PostgreSQL server of a test's own, for faults of the server itself: stopped in every way, frozen with all its processes,
 * its sessions killed, its settings changed while it runs. What takes two servers or a backup is in postgres-copies.ts.
 *
 * The port stays the same over restarts, so that a URL stays right. `fsync` is off unless the settings say otherwise: it
 * protects from a crash of the machine, and here only processes die.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { type Account, chooseAccount, giveTo, runAs } from '../../../src/embedded/account.ts'
import { type Binaries, findBinaries } from '../../../src/embedded/binaries.ts'
import { type Cluster, ensureCluster, readPassword } from '../../../src/embedded/cluster.ts'
import { choosePort, readPostmasterFile } from '../../../src/embedded/postmaster.ts'
import { isOccupied, worksIn } from '../../../src/embedded/process-table.ts'

/** fast: sessions are ended, a checkpoint is written. immediate: everything is killed, and the next start recovers. */
export type StopMode = 'fast' | 'immediate'
export type Settings = Readonly<Record<string, string>>

export interface PostgresServerOptions {
  /** On top of ours, from the first start on. */
  settings?: Settings
  /** An empty directory that other users may enter; a temporary one when not given. Its contents are removed by `remove`. */
  directory?: string
  /** Of Debian's packages instead of the embedded one; see `debianMajors`. */
  debian?: string
  /** Of the server's processes, for example LD_PRELOAD. */
  env?: Readonly<Record<string, string>>
}

export interface PostgresServer {
  /** A superuser's URL of the database `opledger`. */
  readonly url: string
  readonly port: number
  /** Of the data; processes of the server have it as their working directory. */
  readonly data: string
  readonly cluster: Cluster
  /** Its version, when it is one of Debian's. */
  readonly debian: string | undefined
  /** Returns when sessions are accepted: on an immediate stop or a kill, recovery comes first. */
  start(): Promise<void>
  /** Returns when none of its processes is left. */
  stop(mode: StopMode): Promise<void>
  restart(mode: StopMode): Promise<void>
  /** To each of its processes, the postmaster first: it then starts no new one. Answers with their number. SIGKILL is a crash. */
  signalAll(signal: 'SIGSTOP' | 'SIGCONT' | 'SIGKILL'): number
  /** `pg_terminate_backend` of the clients' sessions, or of those of one application_name; answers with their number once they are gone. */
  terminateBackends(application?: string): Promise<number>
  /** SIGKILL of one client's session: PostgreSQL then ends all of them. Answers once it has recovered; false: there was none. */
  crashBackend(application?: string): Promise<boolean>
  /** ALTER SYSTEM and reload; null takes a setting back. Returns when a new session sees it. */
  configure(settings: Readonly<Record<string, string | null>>): Promise<void>
  /** One statement on a session of its own. */
  query<Row extends postgres.Row = postgres.Row>(statement: string): Promise<Row[]>
  /** Stops it and removes its data. */
  remove(): Promise<void>
}

/** A client's session: a number of a process may be used again. */
interface Session {
  pid: number
  began: string
}

const DEBIAN_ROOT = '/usr/lib/postgresql'
const START_SECONDS = 60
const GONE_MS = 30_000
const POLL_MS = 20
const NAME = 'opledger'

/** The major versions of Debian's server packages that are installed, newest first. */
export const debianMajors = (): string[] =>
  existsSync(DEBIAN_ROOT)
    ? readdirSync(DEBIAN_ROOT)
        .filter((major) => existsSync(path.join(DEBIAN_ROOT, major, 'bin', 'postgres')))
        .sort((a, b) => Number(b) - Number(a))
    : []

const SETTINGS: Settings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  timezone: 'UTC',
  log_timezone: 'UTC',
  synchronous_commit: 'on',
  fsync: 'off',
  max_connections: '200',
}

const quote = (value: string): string => `'${value.replaceAll("'", "''")}'`

/** Pids of all processes that work in the directory, the postmaster first. */
const processesIn = (data: string): number[] => {
  const postmaster = readPostmasterFile(data)?.pid
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => worksIn(pid, data))
  return pids.sort((a, b) => Number(b === postmaster) - Number(a === postmaster))
}

const stateOf = (pid: number): string => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return text.slice(text.lastIndexOf(')') + 2, text.lastIndexOf(')') + 3)
  } catch {
    return 'gone'
  }
}

const sendTo = (pid: number, signal: NodeJS.Signals): boolean => {
  try {
    return process.kill(pid, signal)
  } catch {
    return false // it ended meanwhile
  }
}

/** Where one stood already, or a new cluster: made, not started. */
const openCluster = async (options: PostgresServerOptions, root: string): Promise<Cluster> => {
  const account: Account = chooseAccount(path.join(root, 'postgres'))
  const binaries: Binaries = options.debian
    ? { directory: path.join(DEBIAN_ROOT, options.debian), major: options.debian }
    : await findBinaries(account, root)
  const cluster = { dataDir: root, directory: path.join(root, 'postgres'), account, binaries, settings: {} }
  await ensureCluster(cluster)
  return cluster
}

const makeRoot = (given: string | undefined): string => {
  const root = given ?? mkdtempSync(path.join(os.tmpdir(), 'opledger-server-'))
  mkdirSync(root, { recursive: true })
  chmodSync(root, 0o755) // as root, PostgreSQL runs under another account and has to get in
  return root
}

/** Makes a cluster, or takes the one that stands in `directory`, and starts it. */
export const openPostgresServer = async (options: PostgresServerOptions = {}): Promise<PostgresServer> => {
  const root = makeRoot(options.directory)
  const cluster = await openCluster(options, root)
  const { account, directory: data } = cluster
  const port = await choosePort(null)
  const url = `postgres://${NAME}:${readPassword(root)}@127.0.0.1:${port}/${NAME}`

  const query = async <Row extends postgres.Row>(statement: string): Promise<Row[]> => {
    const sql = postgres(url, { max: 1, connect_timeout: 10, fetch_types: false, onnotice: () => {} })
    try {
      return await sql.unsafe<Row[]>(statement)
    } finally {
      await sql.end({ timeout: 1 })
    }
  }

  const pgCtl = async (...args: string[]): Promise<void> => {
    const env = Object.entries(options.env ?? {}).map(([key, value]) => `${key}=${value}`)
    const program = path.join(cluster.binaries.directory, 'bin', 'pg_ctl')
    const { ok, output } = await runAs(account, '/usr/bin/env', [...env, program, '-D', data, '-s', '-w', ...args], {
      cwd: data,
    })
    if (!ok) throw new Error(`pg_ctl ${args[0]} failed: ${output} ${logTail(data)}`)
  }

  const awaitEnd = async (): Promise<void> => {
    const giveUpAt = performance.now() + GONE_MS
    while (isOccupied(data)) {
      if (performance.now() > giveUpAt) throw new Error(`processes of the PostgreSQL in ${data} do not end`)
      await sleep(POLL_MS)
    }
  }

  const start = async (): Promise<void> => {
    await awaitEnd()
    // what a kill left behind: nobody works here
    rmSync(path.join(data, 'postmaster.pid'), { force: true })
    const settings = { ...SETTINGS, ...options.settings, port: String(port) }
    const file = path.join(data, 'opledger.conf')
    writeFileSync(
      file,
      Object.entries(settings)
        .map(([key, value]) => `${key} = ${quote(value)}\n`)
        .join(''),
    )
    giveTo(account, file)
    await pgCtl('start', '-t', String(START_SECONDS), '-l', path.join(data, 'server.log'))
  }

  const stop = async (mode: StopMode): Promise<void> => {
    for (const pid of processesIn(data)) sendTo(pid, 'SIGCONT')
    if (readPostmasterFile(data) !== null && isOccupied(data))
      await pgCtl('stop', '-m', mode, '-t', String(START_SECONDS))
    await awaitEnd()
  }

  const clients = (application?: string): string =>
    `from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()${
      application === undefined ? '' : ` and application_name = ${quote(application)}`
    }`

  const sessions = (application?: string): Promise<Session[]> =>
    query<Session>(`select pid, backend_start::text as began ${clients(application)}`)

  /** Until the server answers, and none of these is among its sessions: from then on what they did is over. */
  const untilGone = async (gone: readonly Session[]): Promise<void> => {
    const giveUpAt = performance.now() + GONE_MS
    const isLeft = ({ pid, began }: Session): boolean => gone.some((one) => one.pid === pid && one.began === began)
    // it refuses while it recovers
    while (
      await sessions().then(
        (left) => left.some(isLeft),
        () => true,
      )
    ) {
      if (performance.now() > giveUpAt) throw new Error('sessions that were ended are still there')
      await sleep(POLL_MS)
    }
  }

  const server: PostgresServer = {
    url,
    port,
    data,
    cluster,
    debian: options.debian,
    start,
    stop,
    async restart(mode) {
      await stop(mode)
      await start()
    },
    signalAll(signal) {
      const reached = new Set<number>()
      // one that was forked while we looked is found by looking again
      for (let found = -1; found !== reached.size; ) {
        found = reached.size
        for (const pid of processesIn(data)) if (!reached.has(pid) && sendTo(pid, signal)) reached.add(pid)
      }
      return reached.size
    },
    async terminateBackends(application) {
      const ended = await query<Session>(
        `select pid, began from (
          select pid, backend_start::text as began, pg_terminate_backend(pid) as done ${clients(application)}) t where done`,
      )
      await untilGone(ended)
      return ended.length
    },
    async crashBackend(application) {
      const all = await sessions()
      const [one] = await sessions(application)
      if (one === undefined || !sendTo(one.pid, 'SIGKILL')) return false
      await untilGone(all)
      return true
    },
    async configure(settings) {
      for (const [key, value] of Object.entries(settings)) {
        await query(value === null ? `alter system reset ${key}` : `alter system set ${key} = ${quote(value)}`)
      }
      const [before] = await query<{ at: string }>('select pg_conf_load_time()::text as at')
      await query('select pg_reload_conf()')
      for (;;) {
        const [now] = await query<{ at: string }>('select pg_conf_load_time()::text as at')
        if (now?.at !== before?.at) return
        await sleep(POLL_MS)
      }
    },
    query,
    async remove() {
      if (existsSync(data)) await stop('immediate')
      if (options.directory === undefined) rmSync(root, { recursive: true, force: true, maxRetries: 5 })
      else for (const name of readdirSync(root)) rmSync(path.join(root, name), { recursive: true, force: true })
    },
  }
  await start()
  return server
}

const LOG_TAIL_LINES = 5

const logTail = (data: string): string => {
  const file = path.join(data, 'server.log')
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').slice(-LOG_TAIL_LINES).join(' | ') : ''
}

/** True when every process of the server stands still. */
export const isFrozen = (server: PostgresServer): boolean => {
  const pids = processesIn(server.data)
  return pids.length > 0 && pids.every((pid) => stateOf(pid) === 'T')
}
