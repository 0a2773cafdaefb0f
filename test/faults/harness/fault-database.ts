/**
 * A database of the suite in which statements fail, wait and are ended early, by triggers and settings of its own: the
 * processes under test are told nothing of it.
 */
import postgres from 'postgres'
import { createTestDatabase } from '../../support/database.ts'
import { prepareDatabase } from './prepare-database.ts'

export interface FaultDatabase {
  url: string
  /** A superuser's sessions, besides those under test. */
  sql: postgres.Sql
  /** What new sessions of the service get instead of the limits that they set for themselves; null: their own. */
  limit(limits: { statementMs?: number; lockMs?: number } | null): Promise<void>
  /** Before each statement that writes to one of these tables, `body` (plpgsql) runs. */
  before(tables: readonly string[], body: string): Promise<void>
  /** Ends what `before` has begun. */
  calm(): Promise<void>
  /** Ends the sessions of the service: the next ones are new. */
  endSessions(): Promise<void>
  drop(): Promise<void>
}

/**
 * The pools of the service set their limits by `set_config`, after the settings of role and database. A function of that name
 * in front of PostgreSQL's own has the last word.
 */
const SHADOW = `
  create schema faults;
  create table faults.limits (name text primary key, value text not null);
  create function faults.set_config(name text, value text, is_local boolean) returns text language sql as $$
    select pg_catalog.set_config(name, coalesce((select l.value from faults.limits l where l.name = $1), value), is_local) $$;
  create sequence faults.tries;`

export const openFaultDatabase = async (settings: Readonly<Record<string, string>> = {}): Promise<FaultDatabase> => {
  const own = await createTestDatabase()
  await prepareDatabase(own.url)
  const name = new URL(own.url).pathname.slice(1)
  const sql = postgres(own.url, { max: 3, onnotice: () => {} })
  await sql.unsafe(SHADOW)
  for (const [key, value] of Object.entries({ search_path: 'faults, pg_catalog, public', ...settings })) {
    await sql.unsafe(`alter database ${name} set ${key} = ${value}`)
  }
  const database: FaultDatabase = {
    url: own.url,
    sql,
    async limit(limits) {
      const { statementMs, lockMs } = limits ?? {}
      await sql`delete from faults.limits`
      if (statementMs) await sql`insert into faults.limits values ('statement_timeout', ${String(statementMs)})`
      if (lockMs) await sql`insert into faults.limits values ('lock_timeout', ${String(lockMs)})`
      await database.endSessions()
    },
    async before(tables, body) {
      await sql.unsafe(`create or replace function faults.before() returns trigger language plpgsql as
        $$ declare n bigint; begin ${body} return null; end $$`)
      for (const table of tables) {
        await sql.unsafe(`create or replace trigger faults before insert or update on public.${table}
          for each statement execute function faults.before()`)
      }
    },
    async calm() {
      await sql.unsafe(`create or replace function faults.before() returns trigger language plpgsql as
        $$ begin return null; end $$`)
    },
    async endSessions() {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'opledger %'`
    },
    async drop() {
      await sql.end()
      await own.drop()
    },
  }
  return database
}
