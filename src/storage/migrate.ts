/**
 * Forward-only migrations from `drizzle/`, each in the one transaction that holds the advisory lock, so that processes
 * that start together take turns, and a crash in the middle leaves nothing. The lock is a transaction's lock: it works
 * behind PgBouncer. drizzle-orm reads the files; its own `migrate()` takes no lock and skips what is dated earlier.
 */
import { fileURLToPath } from 'node:url'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import { AppError, ConfigurationError } from '../domain/errors.ts'
import type { Connection } from './connection.ts'
import { type Database, openDatabase } from './database.ts'
import { faultCode, isDatabaseFault, isRetryable } from './database-faults.ts'

/** pg_advisory_xact_lock key: "opledger" in hex, cut to 63 bits. */
const MIGRATION_LOCK = '8029187338458228082'
const MIGRATION_MS = 600_000
/**
 * A change of a table waits for whoever reads it, and everybody else waits behind it. So it waits briefly and, once the
 * others had their turn, comes again.
 */
const TABLE_LOCK_MS = 2_000

const migrationsFolder = fileURLToPath(new URL('../../drizzle', import.meta.url))

/**
 * Brings the schema up to this binary's version. `applied` counts the migrations of this run.
 * Throws ConfigurationError when the schema is newer than this binary, or was migrated by other files.
 */
export const migrate = async ({ url }: { url: string }): Promise<{ applied: number }> => {
  const migrations = readMigrationFiles({ migrationsFolder })
  const database = openDatabase({
    url,
    size: 1,
    name: 'opledger migrate',
    statementMs: MIGRATION_MS,
    lockMs: MIGRATION_MS,
  })
  try {
    return await database.transaction(async (connection) => {
      const { sql } = connection
      await sql`select pg_advisory_xact_lock(${MIGRATION_LOCK}::bigint)`
      await sql`select set_config('lock_timeout', ${String(TABLE_LOCK_MS)}, true)`
      await sql`create schema if not exists opledger_meta`
      await sql`create table if not exists opledger_meta.migrations (
        position integer primary key, hash text not null, applied_at timestamptz not null default clock_timestamp())`
      const done = await sql<{
        position: number
        hash: string
      }>`select position, hash from opledger_meta.migrations order by position`
      if (done.length > migrations.length) {
        throw new ConfigurationError(
          `DATABASE_URL: the schema has ${done.length} migrations and this version of opledger knows ${migrations.length}: start a newer version`,
        )
      }
      for (const { position, hash } of done) {
        if (migrations[position]?.hash !== hash) {
          throw new ConfigurationError(
            `DATABASE_URL: migration ${position} of the schema is not this version's: restore drizzle/ as released`,
          )
        }
      }
      for (const [position, migration] of migrations.entries()) {
        if (position < done.length) continue
        for (const statement of migration.sql) await connection.script(statement)
        await sql`insert into opledger_meta.migrations (position, hash) values (${position}, ${migration.hash})`
      }
      return { applied: migrations.length - done.length }
    })
  } catch (error) {
    if (isRetryable(error)) {
      throw new ConfigurationError(
        'DATABASE_URL: a table that has to change is in use all the time: end long transactions and backups, or try again later',
        { cause: error },
      )
    }
    if (!isDatabaseFault(error)) throw error
    throw new ConfigurationError(
      `DATABASE_URL: the server cannot be used (${faultCode(error)}): is it running, and is the URL right?`,
      {
        cause: error,
      },
    )
  } finally {
    await database.close()
  }
}

let migrationsKnown: number | null = null

/**
 * How the schema compares with this binary. `newer`: a later version of opledger has migrated it, and this one must not touch
 * it; `older`: `opledger migrate` has to run first.
 */
export const compareSchema = async ({ sql }: Connection): Promise<'current' | 'newer' | 'older'> => {
  const [exists] = await sql<{ exists: boolean }>`
    select to_regclass('opledger_meta.migrations') is not null as exists`
  if (!exists?.exists) return 'older'
  const [row] = await sql<{ applied: number }>`select count(*)::int as applied from opledger_meta.migrations`
  migrationsKnown ??= readMigrationFiles({ migrationsFolder }).length
  const applied = row?.applied ?? 0
  return applied === migrationsKnown ? 'current' : applied > migrationsKnown ? 'newer' : 'older'
}

/** For the start of api and worker. A server that is away is no reason to refuse: it may come back. */
export const refuseNewerSchema = async (database: Database): Promise<void> => {
  const schema = await database.query(compareSchema).catch((error: unknown) => {
    if (error instanceof AppError) return null
    throw error
  })
  if (schema === 'newer') {
    throw new ConfigurationError(
      'DATABASE_URL: the schema is newer than this version of opledger: start a newer version',
    )
  }
}
