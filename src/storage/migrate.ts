/**
 * Forward-only migrations from `drizzle/`, each in the one transaction that holds the advisory lock, so that processes
 * that start together take turns, and a crash in the middle leaves nothing. The lock is a transaction's lock: it works
 * behind PgBouncer. drizzle-orm reads the files; its own `migrate()` takes no lock and skips what is dated earlier.
 */
import { fileURLToPath } from 'node:url'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import { ConfigurationError } from '../domain/errors.ts'
import { type Connection, openDatabase } from './database.ts'

/** pg_advisory_xact_lock key: "opledger" in hex, cut to 63 bits. */
const MIGRATION_LOCK = '8029187338458228082'
const MIGRATION_MS = 600_000

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
  } finally {
    await database.close()
  }
}

/** True when the schema is exactly the one this binary was built for. */
export const schemaIsCurrent = async ({ sql }: Connection): Promise<boolean> => {
  const [row] = await sql<{ applied: number }>`select count(*)::int as applied from opledger_meta.migrations`
  return row?.applied === readMigrationFiles({ migrationsFolder }).length
}
