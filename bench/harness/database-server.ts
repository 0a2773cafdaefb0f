/**
 * The PostgreSQL that a run is measured on: one embedded server of our own, or that of DATABASE_URL. Both sides of every ratio
 * use the same one, with a database each.
 */
import path from 'node:path'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts'
import { createLog } from '../../src/log.ts'
import { migrate } from '../../src/storage/migrate.ts'
import type { Closers } from './closers.ts'

/**
 * What one sets for a machine that only does this; everything that durability rests on stays as it is. Checkpoints are ours,
 * between two turns: one that came by itself would be paid by whose turn it is.
 */
const SETTINGS = {
  shared_buffers: '512MB',
  max_connections: '300',
  max_wal_size: '8GB',
  checkpoint_timeout: '1h',
  synchronous_commit: 'on',
  fsync: 'on',
}

export interface BenchDatabase {
  url: string
  /** For set-up and for looks, never for what is timed. */
  sql: postgres.Sql
}

export interface DatabaseServer {
  /** What it is, for the report. */
  description: string
  /** A new database, with our schema where `migrated`. Dropped at the end of the bench. */
  open(closers: Closers, name: string, options: { migrated: boolean }): Promise<BenchDatabase>
  /** Writes out what the last turn left dirty. */
  settle(): Promise<void>
  close(): Promise<void>
}

const named = (url: string, name: string): string => {
  const changed = new URL(url)
  changed.pathname = `/${name}`
  return changed.href
}

export const openDatabaseServer = async (dataDir: string): Promise<DatabaseServer> => {
  const given = process.env.DATABASE_URL
  const embedded =
    given === undefined || given === ''
      ? await startEmbeddedPostgres({
          dataDir: path.resolve(dataDir),
          log: createLog({ level: 'warn', name: 'bench' }),
          settings: SETTINGS,
        })
      : null
  const serverUrl = embedded?.url ?? given ?? ''
  const admin = postgres(serverUrl, { max: 1, onnotice: () => {} })
  const [row] = await admin<{ version: string; commit: string; sync: string }[]>`
    select split_part(version(), ' on ', 1) as version, current_setting('synchronous_commit') as commit,
      current_setting('fsync') as sync`
  return {
    description: `${row?.version} (${embedded ? 'embedded' : 'of DATABASE_URL'}, synchronous_commit ${row?.commit}, fsync ${row?.sync})`,
    async open(closers, name, { migrated }) {
      const database = `bench_${name}_${process.pid}`
      await admin.unsafe(`drop database if exists ${database} with (force)`)
      await admin.unsafe(`create database ${database}`)
      closers.add(() => admin.unsafe(`drop database if exists ${database} with (force)`))
      const url = named(serverUrl, database)
      if (migrated) await migrate({ url })
      const sql = postgres(url, { max: 2, onnotice: () => {} })
      closers.add(() => sql.end({ timeout: 1 }))
      return { url, sql }
    },
    async settle() {
      await admin`checkpoint`
    },
    async close() {
      await admin.end({ timeout: 1 })
      await embedded?.stop()
    },
  }
}
