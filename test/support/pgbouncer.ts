/** A PgBouncer in transaction mode in front of a test's database: Debian's program, with fewer connections than its clients have. */
import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { chooseAccount, giveTo } from '../../src/embedded/account.ts'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { until, waitForExit } from './processes.ts'

const PROGRAM = '/usr/sbin/pgbouncer'

/** Why there is none here; null: there is one. */
export const missingPgbouncer = (): string | null =>
  existsSync(PROGRAM) ? null : 'there is no pgbouncer here: test/faults/set-up.sh installs it'

export interface Pgbouncer {
  /** Of the same database, through it. */
  url: string
  /** What it printed. */
  output(): string
  stop(): Promise<void>
}

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1')
    socket.on('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.on('error', () => resolve(false))
  })

/** `poolSize`: connections to the server. */
export const startPgbouncer = async (databaseUrl: string, poolSize: number): Promise<Pgbouncer> => {
  const server = new URL(databaseUrl)
  const port = await choosePort(null)
  const directory = mkdtempSync(path.join(os.tmpdir(), 'opledger-pgbouncer-'))
  // it refuses to run as root, as PostgreSQL does
  const account = chooseAccount(directory)
  chmodSync(directory, 0o755)
  const write = (name: string, lines: readonly string[]): string => {
    const file = path.join(directory, name)
    writeFileSync(file, lines.map((line) => `${line}\n`).join(''), { mode: 0o600 })
    giveTo(account, file)
    return file
  }
  const users = write('users.txt', [`"${server.username}" "${decodeURIComponent(server.password)}"`])
  const config = write('pgbouncer.ini', [
    '[databases]',
    `* = host=${server.hostname} port=${server.port}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = scram-sha-256',
    `auth_file = ${users}`,
    'pool_mode = transaction',
    `default_pool_size = ${poolSize}`,
    'max_client_conn = 500',
    'query_wait_timeout = 10',
    'server_reset_query =',
  ])
  const child: ChildProcess = spawn(PROGRAM, [config], { ...(account ?? {}), stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      text += String(chunk)
    })
  }
  await until('pgbouncer answers', () => {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended: ${text}`)
    return answers(port)
  })
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  return {
    url: url.href,
    output: () => text,
    async stop() {
      child.kill('SIGKILL')
      await waitForExit(child)
      rmSync(directory, { recursive: true, force: true })
    },
  }
}
