/**
 * Copies of a PostgreSQL server, made while it runs: a standby that follows it, and a backup that it is taken back to. By the
 * low-level backup of the server itself (pg_backup_start, a copy of the files, pg_backup_stop), which needs no program that
 * the embedded PostgreSQL does not bring. (PostgreSQL documentation, "Making a Base Backup Using the Low Level API".)
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { giveTo } from '../../../src/embedded/account.ts'
import { openPostgresServer, type PostgresServer, type Settings } from './postgres-server.ts'

/** What a server's directory holds for itself; a copy must not have it. */
const NOT_COPIED = ['postmaster.pid', 'postmaster.opts', 'pg_replslot', 'pg_stat_tmp', 'server.log']
const POLL_MS = 20
const CAUGHT_UP_MS = 60_000
const STANDBY_NAME = 'standby'

const giveAllTo = (server: PostgresServer, directory: string): void => {
  giveTo(server.cluster.account, directory)
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name)
    if (entry.isDirectory()) giveAllTo(server, file)
    else giveTo(server.cluster.account, file)
  }
}

/** Copies data directory and password of a running server into `root`, as they were at one instant (the end of the copy). */
const copyRunning = async (server: PostgresServer, root: string): Promise<void> => {
  const from = server.data
  const to = path.join(root, path.basename(from))
  const sql = postgres(server.url, { max: 1, onnotice: () => {} })
  try {
    // the backup lasts as long as its session
    await sql`select pg_backup_start('copy', true)`
    cpSync(from, to, {
      recursive: true,
      // files come and go while we copy; what the log has of them is written again by the recovery
      filter: (file) => existsSync(file) && !NOT_COPIED.includes(path.relative(from, file)) && !isLog(from, file),
    })
    const [stop] = await sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`
    writeFileSync(path.join(to, 'backup_label'), stop?.labelfile ?? '')
  } finally {
    await sql.end()
  }
  // the log that leads from the beginning of the copy to its end
  for (const name of readdirSync(path.join(from, 'pg_wal'))) {
    if (/^[0-9A-F]{24}$|\.history$/.test(name)) cpSync(path.join(from, 'pg_wal', name), path.join(to, 'pg_wal', name))
  }
  for (const name of ['pg_replslot', 'pg_stat_tmp']) mkdirSync(path.join(to, name), { recursive: true, mode: 0o700 })
  cpSync(path.join(server.cluster.dataDir, 'password'), path.join(root, 'password'))
  giveAllTo(server, to)
}

const isLog = (from: string, file: string): boolean =>
  path.dirname(path.relative(from, file)) === 'pg_wal' && /[0-9A-F]{24}/.test(path.basename(file))

export interface Backup {
  /** Stops the server, and starts it with the data of the backup: what came after is gone. */
  restore(): Promise<void>
  remove(): void
}

/** The server as it is now, to be taken back to. */
export const takeBackup = async (server: PostgresServer): Promise<Backup> => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-backup-'))
  await copyRunning(server, root)
  return {
    async restore() {
      await server.stop('immediate')
      rmSync(server.data, { recursive: true, force: true })
      cpSync(path.join(root, path.basename(server.data)), server.data, { recursive: true })
      giveAllTo(server, server.data)
      await server.start()
    },
    remove: () => rmSync(root, { recursive: true, force: true }),
  }
}

export interface Standby {
  server: PostgresServer
  /** Resolves when it has everything that the primary had committed at the time of the call. */
  caughtUp(): Promise<void>
  /** Makes it a primary; resolves when it takes writes. */
  promote(): Promise<void>
}

/**
 * A second server that streams from `primary`. With `synchronous`, the primary answers a COMMIT only when the standby has it on
 * its disk too.
 */
export const openStandby = async (
  primary: PostgresServer,
  options: { synchronous: boolean; settings?: Settings },
): Promise<Standby> => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-standby-'))
  await copyRunning(primary, root)
  const data = path.join(root, path.basename(primary.data))
  writeFileSync(path.join(data, 'standby.signal'), '')
  giveTo(primary.cluster.account, path.join(data, 'standby.signal'))
  const { username, password } = new URL(primary.url)
  const server = await openPostgresServer({
    directory: root,
    ...(primary.debian === undefined ? {} : { debian: primary.debian }),
    settings: {
      ...options.settings,
      primary_conninfo: `host=127.0.0.1 port=${primary.port} user=${username} password=${password} application_name=${STANDBY_NAME}`,
      hot_standby: 'on',
    },
  })
  const standing = async (): Promise<boolean> => {
    const [row] = await primary.query<{ yes: boolean }>(
      `select coalesce(bool_or(state = 'streaming' and flush_lsn >= pg_current_wal_flush_lsn()), false) as yes
      from pg_stat_replication where application_name = '${STANDBY_NAME}'`,
    )
    return row?.yes ?? false
  }
  const caughtUp = async (): Promise<void> => {
    const giveUpAt = performance.now() + CAUGHT_UP_MS
    while (!(await standing())) {
      if (performance.now() > giveUpAt) throw new Error('the standby does not catch up')
      await sleep(POLL_MS)
    }
  }
  await caughtUp()
  if (options.synchronous) await primary.configure({ synchronous_standby_names: STANDBY_NAME })
  return {
    server,
    caughtUp,
    async promote() {
      const [row] = await server.query<{ done: boolean }>('select pg_promote(true, 60) as done')
      if (!row?.done) throw new Error('the standby was not promoted')
    },
  }
}
