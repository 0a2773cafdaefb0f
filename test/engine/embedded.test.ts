import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { acceptsSessions, choosePort, readPostmasterFile } from '../../src/embedded/postmaster.ts'
import { isAlive, isOccupied, ownIdentity, worksIn } from '../../src/embedded/process-table.ts'
import { createLog } from '../../src/log.ts'
import { spawnScript, until, waitForExit, waitForLine } from '../support/processes.ts'

const onLinux = process.platform === 'linux'
const log = createLog({ level: 'silent', name: 'test' })
const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-embedded-'))
const dataDir = path.join(root, 'data')
const cluster = path.join(dataDir, 'postgres')
const running: EmbeddedPostgres[] = []

const start = async (directory = dataDir): Promise<EmbeddedPostgres> => {
  const server = await startEmbeddedPostgres({ dataDir: directory, log, settings: { fsync: 'off' } })
  running.push(server)
  return server
}
const query = async (url: string, statement: string): Promise<postgres.Row[]> => {
  const sql = postgres(url, { max: 1, connect_timeout: 5, onnotice: () => {} })
  try {
    return await sql.unsafe(statement)
  } finally {
    await sql.end()
  }
}
const postmasterPid = (): number => {
  const file = readPostmasterFile(cluster)
  if (!file) throw new Error('no postmaster.pid')
  return file.pid
}
const user = () => spawnScript('./postgres-user.ts', [dataDir])
const readyUser = async (child: ReturnType<typeof user>): Promise<{ url: string; adopted: boolean }> =>
  JSON.parse(await waitForLine(child, /^{/)) as { url: string; adopted: boolean }

beforeAll(async () => {
  chmodSync(root, 0o755)
  const server = await start()
  await query(server.url, 'create table kept (n int)')
  await query(server.url, 'insert into kept values (42)')
})
afterEach(async () => {
  for (const server of running.splice(0)) await server.stop()
  expect(isOccupied(cluster)).toBe(false)
  expect(existsSync(path.join(cluster, 'postmaster.pid'))).toBe(false)
})
afterAll(() => rmSync(root, { recursive: true, force: true, maxRetries: 5 }))

it('is PostgreSQL 18, UTF-8, durable, on loopback, and never without its password', async () => {
  const server = await start()
  const [row] = await query(
    server.url,
    `select current_setting('server_version_num')::int / 10000 as major, current_setting('server_encoding') as encoding,
      current_setting('synchronous_commit') as commit, current_setting('listen_addresses') as address,
      (select datctype from pg_database where datname = current_database()) as ctype`,
  )
  expect(row).toEqual({ major: 18, encoding: 'UTF8', commit: 'on', address: '127.0.0.1', ctype: 'C.UTF-8' })
  const open = new URL(server.url)
  open.password = 'guess'
  await expect(query(open.href, 'select 1')).rejects.toMatchObject({ code: '28P01' })
  expect(statSync(path.join(dataDir, 'password')).mode & 0o777).toBe(0o600)
  expect(statSync(cluster).mode & 0o777).toBe(0o700)
})

it('keeps the data over a stop, and over a kill -9 of the postmaster', async () => {
  const first = await start()
  process.kill(postmasterPid(), 'SIGKILL')
  await first.stop()
  const second = await start()
  expect(await query(second.url, 'select n from kept')).toEqual([{ n: 42 }])
})

it('comes back on its own port when it dies while it is used', async () => {
  const server = await start()
  const pid = postmasterPid()
  process.kill(pid, 'SIGKILL')
  await until('another postmaster answers', async () => {
    const file = readPostmasterFile(cluster)
    return file !== null && file.pid !== pid && (await acceptsSessions(file.port))
  })
  expect(await query(server.url, 'select n from kept')).toEqual([{ n: 42 }])
})

it('adopts the orphan of a starter that was killed', async () => {
  const starter = user()
  const { url } = await readyUser(starter)
  const pid = postmasterPid()
  starter.kill('SIGKILL')
  await waitForExit(starter)
  expect(worksIn(pid, cluster)).toBe(true)
  const server = await start()
  expect([server.adopted, server.url, postmasterPid()]).toEqual([true, url, pid])
})

it('comes back on its own port, as soon as whoever took that port has gone', async () => {
  const { url } = await start()
  const port = Number(new URL(url).port)
  const stranger = net.createServer()
  process.kill(postmasterPid(), 'SIGKILL')
  await until('the port is taken', async () => {
    stranger.listen({ host: '127.0.0.1', port, exclusive: true })
    return once(stranger, 'listening').then(
      () => true,
      () => false,
    )
  })
  await until('it was started elsewhere, and stopped again', async () =>
    existsSync(path.join(cluster, 'opledger.conf'))
      ? !readFileSync(path.join(cluster, 'opledger.conf'), 'utf8').includes(`port = '${port}'`)
      : false,
  )
  await new Promise((resolve) => stranger.close(resolve))
  await until('it answers where it was', () =>
    query(url, 'select 1').then(
      () => true,
      () => false,
    ),
  )
})

it('is shared, and stopped by its last user', async () => {
  const [one, two] = [user(), user()]
  const [first, second] = await Promise.all([readyUser(one), readyUser(two)])
  expect(first.url).toBe(second.url)
  expect([first.adopted, second.adopted].sort()).toEqual([false, true])
  one.kill('SIGTERM')
  expect(await waitForExit(one)).toEqual({ code: 0, signal: null })
  expect(await query(second.url, 'select n from kept')).toEqual([{ n: 42 }])
  two.kill('SIGTERM')
  expect(await waitForExit(two)).toEqual({ code: 0, signal: null })
  expect(isOccupied(cluster)).toBe(false)
})

describe.runIf(onLinux)('a stale postmaster.pid', () => {
  const writeStale = (pid: number) =>
    writeFileSync(path.join(cluster, 'postmaster.pid'), `${pid}\n${cluster}\n1\n5432\n\n127.0.0.1\n 1 2\nready   \n`)

  it('whose pid is another process now is removed, and that process left alone', async () => {
    const stranger = spawn('sleep', ['60'])
    try {
      writeStale(stranger.pid ?? 0)
      const server = await start()
      expect(server.adopted).toBe(false)
      expect(stranger.exitCode).toBeNull()
    } finally {
      stranger.kill('SIGKILL')
    }
  })
  it('whose pid nobody has is removed', async () => {
    writeStale(4_190_000)
    expect((await start()).adopted).toBe(false)
  })
  it('that is empty is removed', async () => {
    writeFileSync(path.join(cluster, 'postmaster.pid'), '')
    expect((await start()).adopted).toBe(false)
  })
})

it('recovers from a crash in the middle of initdb and from a dead holder of the lock', async () => {
  const directory = path.join(root, 'half made')
  mkdirSync(path.join(directory, 'init-dead', 'data', 'base'), { recursive: true })
  writeFileSync(path.join(directory, 'lock'), '4190000 1')
  const server = await start(directory)
  expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }])
  expect(existsSync(path.join(directory, 'init-dead'))).toBe(false)
  expect(existsSync(path.join(directory, 'lock'))).toBe(false)
})

it.runIf(onLinux)('works below a directory that its account cannot enter', async () => {
  const closed = path.join(root, 'closed')
  mkdirSync(closed, { mode: 0o700 })
  const server = await start(path.join(closed, 'data'))
  expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }])
})

it('refuses a cluster of another version in one line', async () => {
  const directory = path.join(root, 'old')
  mkdirSync(path.join(directory, 'postgres'), { recursive: true })
  writeFileSync(path.join(directory, 'postgres', 'PG_VERSION'), '13\n')
  await expect(start(directory)).rejects.toThrow(/^OPLEDGER_DATA_DIR: .* PostgreSQL 13, and 18 is installed/)
})

it('takes another port when the preferred one is busy', async () => {
  const holder = net.createServer()
  await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve))
  const { port } = holder.address() as net.AddressInfo
  expect(await choosePort(port)).not.toBe(port)
  await new Promise((resolve) => holder.close(resolve))
  expect(await choosePort(port)).toBe(port)
})

describe.runIf(onLinux)('processes are told apart', () => {
  it('by start time, as pids are used again', () => {
    const own = ownIdentity()
    expect(isAlive(own)).toBe(true)
    expect(isAlive({ ...own, startedAt: '1' })).toBe(false)
  })
  it('and a user file names both', async () => {
    await start()
    const own = ownIdentity()
    const users = path.join(dataDir, 'users')
    const texts = readdirSync(users).map((name) => readFileSync(path.join(users, name), 'utf8'))
    expect(texts).toContain(`${own.pid} ${own.startedAt}`)
  })
})
