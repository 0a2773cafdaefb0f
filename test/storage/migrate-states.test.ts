/** Case 107: an installation may stand at any released state, with rows in it, when a new version comes. */
import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import postgres from 'postgres'
import { uuidv7 } from 'uuidv7'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { OPERATION_STATUSES, type OperationStatus } from '../../src/domain/operation.ts'
import { knownScopes, TENANT_SCOPES } from '../../src/domain/scope.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { readOperationStates } from '../../src/storage/operation-state.ts'
import { claimReadyShards } from '../../src/storage/run/claim-shards.ts'
import { GRANT, TENANT, untilWaiting } from '../support/races.ts'

const MIGRATIONS = readMigrationFiles({ migrationsFolder: fileURLToPath(new URL('../../drizzle', import.meta.url)) })

let server: postgres.Sql
const created: string[] = []
beforeAll(() => {
  server = postgres(inject('databaseUrl'), { max: 1, onnotice: () => {} })
})
afterAll(async () => {
  for (const name of created) await server.unsafe(`drop database if exists ${name} with (force)`)
  await server.end()
})

/** A database without anything in it. */
const createEmpty = async (): Promise<string> => {
  const name = `states_${randomBytes(6).toString('hex')}`
  await server.unsafe(`create database ${name}`)
  created.push(name)
  const url = new URL(inject('databaseUrl'))
  url.pathname = `/${name}`
  return url.href
}

/** Does what a release with so many migrations did, from where the database stands. */
const release = async (sql: postgres.Sql, from: number, to: number): Promise<void> => {
  await sql.begin(async (transaction) => {
    await transaction.unsafe(`create schema if not exists opledger_meta;
      create table if not exists opledger_meta.migrations (
        position integer primary key, hash text not null, applied_at timestamptz not null default clock_timestamp())`)
    for (let position = from; position < to; position++) {
      for (const statement of MIGRATIONS[position]?.sql ?? []) await transaction.unsafe(statement)
      await transaction`
        insert into opledger_meta.migrations (position, hash) values (${position}, ${MIGRATIONS[position]?.hash ?? ''})`
    }
  })
}

const CANCELLED: readonly OperationStatus[] = ['cancel_requested', 'cancelled', 'completed_after_cancel']
const PAUSED: readonly OperationStatus[] = ['pause_requested', 'paused']
const FINAL: readonly OperationStatus[] = [
  'succeeded',
  'partially_succeeded',
  'failed',
  'cancelled',
  'completed_after_cancel',
]

/** An operation of each status with a row in each table, in the columns of the first release: each later one must take them. */
const plant = async (sql: postgres.Sql, name: string): Promise<string[]> => {
  const ids: string[] = []
  // all on one connection, one behind the other, without a wait in between
  const inserts: Promise<unknown>[] = []
  const insert = (statement: postgres.PendingQuery<postgres.Row[]>): void => void inserts.push(statement.execute())
  for (const status of OPERATION_STATUSES) {
    const id = uuidv7()
    const key = `${name}:${status}`
    ids.push(id)
    insert(sql`
      insert into operations (tenant_id, id, type, type_version, code_version, status, items_total, requested_by, risk, root_id,
        labels, stop_if, error, result_summary, completed_at, cancel_requested_at, pause_requested_at)
      values (1, ${id}, 'grant', 1, 'c1', ${status}, 4, 'tester', 'low', ${id}, '{"from": "old"}', '["ambiguous_effect_targets > 0"]',
        '{"code": "x", "detail": "y"}', '{"counts": {}}', case when ${FINAL.includes(status)} then now() end,
        case when ${CANCELLED.includes(status)} then now() end, case when ${PAUSED.includes(status)} then now() end)`)
    insert(sql`
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select 1, ${id}, o, 'i' || o, ${key} || ':' || o, '{}', 'h' from generate_series(0, 3) o`)
    insert(sql`
      insert into operation_shards (tenant_id, operation_id, shard, type, type_version, from_ord, to_ord, cursor, state, applied,
        failed, uncertain, failed_transient, waiting)
      values (1, ${id}, 0, 'grant', 1, 0, 4, 3, ${status === 'pending' || status === 'running' ? 'ready' : 'done'}, 1, 1, 1, 1, 1)`)
    insert(sql`
      insert into effects (tenant_id, effect_key, state, send, operation_id, shard, ord, attempt, lease_epoch, item_key,
        input_hash, item_state, send_by)
      select 1, ${key} || ':' || o, s, 1, ${id}, 0, o, 1, 1, 'i' || o, 'h', i, now()
      from (values (0, 'applied', 'applied'), (1, 'absent', 'failed'), (2, 'uncertain', 'uncertain')) as v (o, s, i)`)
    insert(sql`
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, input_hash,
        source, code_version)
      select 1, ${id}, o, 'i' || o, 1, s, c, ${key} || ':' || o, 'h', 'worker', 'c1'
      from (values (0, 'applied', null), (1, 'failed', 'transient'), (2, 'uncertain', 'ambiguous_effect')) as v (o, s, c)`)
    insert(sql`
      insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, reason, prior_state, prior_class)
      values (1, ${id}, 1, 0, ${`${key}:1`}, 2, 'failed', 'failed', 'transient')`)
    insert(sql`
      insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause)
      values (1, ${id}, 0, 2, 'grant', 'i2', ${`${key}:2`}, 1, 'send_outcome_unknown')`)
    insert(sql`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, attempts, fingerprint)
      values (1, ${id}, 1, 'grant', 'i1', ${`${key}:1`}, 'transient', 3, 'fp')`)
    insert(sql`
      insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
      values (1, ${id}, 1, 'accepted', 'pending', 'tester')`)
    insert(sql`
      insert into replay_preflights (tenant_id, operation_id, scope, facts, facts_hash, requested_by, expires_at)
      values (1, ${id}, '{}', '{}', 'h', 'tester', now())`)
  }
  await Promise.all(inserts)
  await sql`
    insert into workers (id, host, pid, code_version, types, beat_ms)
    values (gen_random_uuid(), 'h', 1, 'c1', '["grant@1"]', 2000)`
  return ids
}

const TABLES = [
  'operations',
  'operation_items',
  'operation_shards',
  'effects',
  'ledger_entries',
  'item_retries',
  'reconciliation_cases',
  'dead_letters',
  'operation_events',
  'replay_preflights',
  'workers',
] as const

const countRows = async (sql: postgres.Sql): Promise<Record<string, number>> => {
  const counts: Record<string, number> = {}
  for (const table of TABLES) {
    const [row] = await sql.unsafe(`select count(*)::int as n from ${table}`)
    counts[table] = row?.n
  }
  return counts
}

/** What this version makes of them: each is read as it was, and what was ready is claimed. */
const expectReadable = async (url: string, ids: readonly string[]): Promise<void> => {
  const database = openDatabase({ url, size: 2, name: 'states' })
  try {
    const states = await database.query((connection) =>
      readOperationStates(
        connection,
        ids.map((id) => ({ tenantId: TENANT, id })),
      ),
    )
    const byId = new Map(states.map((state) => [state.id, state]))
    for (const [index, id] of ids.entries()) {
      const status = OPERATION_STATUSES[index % OPERATION_STATUSES.length]
      expect(byId.get(id)).toMatchObject({
        status,
        itemsTotal: 4,
        applied: 1,
        failed: 1,
        uncertain: 1,
        waiting: 1,
        labels: { from: 'old' },
        stopIf: ['ambiguous_effect_targets > 0'],
        after: [],
        compensates: null,
        callbackUrl: null,
      })
    }
    const runnable = ids.length / OPERATION_STATUSES.length
    const claim = { workerId: crypto.randomUUID(), types: [GRANT], limit: 1_000, perTenant: 1_000, afterTenant: 0 }
    const { shards: claimed } = await database.query((connection) => claimReadyShards(connection, claim))
    expect(claimed).toHaveLength(2 * runnable)
    expect(new Set(claimed.map(({ cursor, steps, compensating }) => `${cursor} ${steps} ${compensating}`))).toEqual(
      new Set(['3  false']),
    )
  } finally {
    await database.close()
  }
}

describe('a database at a released state, with rows of that release', { timeout: MIGRATIONS.length * 20_000 }, () => {
  test.each(MIGRATIONS.slice(0, -1).map((_, index) => [index + 1]))(
    'of %i migrations is brought up in one transaction, and every row is there and is read (case 107)',
    async (state) => {
      const url = await createEmpty()
      const sql = postgres(url, { max: 1, onnotice: () => {} })
      try {
        await release(sql, 0, state)
        const ids = await plant(sql, `at ${state}`)
        const before = await countRows(sql)
        expect(await migrate({ url })).toEqual({ applied: MIGRATIONS.length - state })
        expect(await countRows(sql)).toEqual(before)
        await expectReadable(url, ids)
      } finally {
        await sql.end()
      }
    },
  )

  test('is brought up one release at a time, with rows of each release in between (case 107)', async () => {
    const url = await createEmpty()
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    try {
      const ids: string[] = []
      for (let state = 1; state <= MIGRATIONS.length; state++) {
        await release(sql, state - 1, state)
        ids.push(...(await plant(sql, `at ${state}`)))
      }
      expect(await migrate({ url })).toEqual({ applied: 0 })
      await expectReadable(url, ids)
    } finally {
      await sql.end()
    }
  })
})

test('a table that somebody reads for long is waited for, and nobody is kept waiting behind that', async () => {
  const url = await createEmpty()
  // it changes operation_shards
  const before = MIGRATIONS.findIndex(({ sql }) => sql.join().includes('ADD COLUMN schema_version'))
  const connect = () => postgres(url, { max: 1, onnotice: () => {} })
  const [reader, writer] = [connect(), connect()]
  const watch = openDatabase({ url, size: 1, name: 'watch' })
  try {
    await release(writer, 0, before)
    await reader.unsafe('begin')
    await reader`select 1 from operation_shards`
    const migrating = migrate({ url })
    migrating.catch(() => {}) // told below
    await untilWaiting(watch, 1)
    // while the reader still reads
    await writer`update operation_shards set version = version + 1`
    await reader.unsafe('commit')
    expect(await migrating).toEqual({ applied: MIGRATIONS.length - before })
  } finally {
    await watch.close()
    await Promise.all([reader.end(), writer.end()])
  }
})

test('states are text with a CHECK, not enum types: a new one is used in the transaction that adds it (case 107)', async () => {
  const url = await createEmpty()
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    await migrate({ url })
    expect(await sql`select typname from pg_type where typtype = 'e'`).toEqual([])
    // what a later release would do; with an enum type, PostgreSQL refuses the second statement (55P04)
    await sql.begin(async (transaction) => {
      await transaction.unsafe(`
        alter table operations drop constraint operations_status;
        alter table operations add constraint operations_status check (status in ('pending', 'quarantined'));
        alter table operations alter column status set default 'quarantined';
        insert into operations (tenant_id, id, type, type_version, code_version, requested_by, risk, root_id)
          values (1, gen_random_uuid(), 'grant', 1, 'c1', 'tester', 'low', gen_random_uuid())`)
    })
    expect(await sql`select status from operations`).toEqual([{ status: 'quarantined' }])
  } finally {
    await sql.end()
  }
})

test('keys of before the fine scopes keep exactly their rights, and processes of before still know them', async () => {
  const url = await createEmpty()
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const BEFORE = 15
  const keys: Record<string, string[]> = {
    reader: ['read'],
    all: ['read', 'write', 'operate', 'admin', 'work'],
    worker: ['work'],
    odd: ['admin', 'unheard_of'],
    none: [],
  }
  try {
    await release(sql, 0, BEFORE)
    for (const [name, scopes] of Object.entries(keys)) {
      await sql`insert into api_keys (tenant_id, name, key_hash, scopes) values (1, ${name}, ${name}, ${scopes})`
    }
    await sql`
      insert into bulk_actions (tenant_id, id, action, status, filter, reason, rate_per_second, requested_by, requester_scopes,
        request_hash, targets, expires_at)
      values (1, gen_random_uuid(), 'cancel', 'dry_run', '{}', 'r', 1, 'tester', '["read", "write"]', 'h', 0, now())`
    await sql`insert into tenants (id, name) values (2, 'default')`
    await sql`insert into operation_types (name, version, code_version, paused_at, paused_by) values ('a', 1, 'c', now(), 'me')`
    await migrate({ url })
    const rows = await sql<{ name: string; scopes: string[] }[]>`select name, to_jsonb(scopes) as scopes from api_keys`
    const fine = new Map(rows.map(({ name, scopes }) => [name, knownScopes(scopes)]))
    expect(fine.get('reader')).toEqual(['operations:read', 'ledger:read', 'metrics:read'])
    expect(fine.get('all')).toEqual(TENANT_SCOPES)
    expect(fine.get('worker')).toEqual(['work'])
    expect(fine.get('odd')).toEqual(['types:admin', 'audit:read'])
    expect(fine.get('none')).toEqual([])
    for (const { name, scopes } of rows) expect(scopes).toEqual(expect.arrayContaining(keys[name] ?? []))
    const [bulk] = await sql<{ scopes: string[] }[]>`select requester_scopes as scopes from bulk_actions`
    expect(knownScopes(bulk?.scopes ?? [])).toEqual([
      'operations:read',
      'operations:write',
      'ledger:read',
      'replay',
      'metrics:read',
    ])
    expect((await sql`select name from tenants order by id`).map(({ name }) => name)).toEqual(['default', 'default-2'])
    // two tenants: nobody can say whose the pause is
    expect(await sql`select paused_tenant_id from operation_types`).toEqual([{ paused_tenant_id: null }])
  } finally {
    await sql.end()
  }
})

test('tenants of before with one name each get a name of their own, whatever the others are called', async () => {
  const url = await createEmpty()
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const names: [number, string, string][] = [
    [1, 'default', 'default'],
    [2, 'default-3', 'default-3'],
    [3, 'default', 'default-3-3'],
    [4, 'acme', 'acme'],
    [5, 'acme', 'acme-5'],
    // taken before, also by what stands behind it
    [6, 'acme', 'acme-6-6'],
    [7, 'acme-6', 'acme-6'],
    [8, 'acme-6', 'acme-6-8'],
    [9, 'acme', 'acme-9-9-9'],
    [10, 'acme-9', 'acme-9'],
    [11, 'acme-9-9', 'acme-9-9'],
    [12, '', ''],
    [13, '', '-13'],
  ]
  try {
    await release(sql, 0, 15)
    for (const [id, name] of names.slice(1)) await sql`insert into tenants (id, name) values (${id}, ${name})`
    await migrate({ url })
    const now = await sql`select id, name from tenants order by id`
    expect(now.map(({ id, name }) => [id, name])).toEqual(names.map(([id, , name]) => [id, name]))
  } finally {
    await sql.end()
  }
})
