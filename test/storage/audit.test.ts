/** What the database itself promises of the audit: nothing is changed, and nothing is told of what did not happen. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { AUDIT_DAYS_MIN, type AuditEntry } from '../../src/domain/audit.ts'
import { auditRetention } from '../../src/maintenance/audit-retention.ts'
import { createApiKey, endApiKey, renewApiKey } from '../../src/services/api-keys.ts'
import { auditEntry } from '../../src/services/audit.ts'
import { derivedAudit } from '../../src/services/preflight-use.ts'
import { listAuditRows, purgeAudit, recordAudit } from '../../src/storage/audit.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { recordRestore } from '../../src/storage/restores.ts'
import { requestCancel } from '../../src/storage/stops.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { items, storeOperation, TENANT } from '../support/races.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 3, name: 'audit' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
/** Only the owner of the table can do this, and no process of the service does. */
beforeEach(() =>
  database.query(({ script }) =>
    script(`alter table audit_entries disable trigger audit_append_only; truncate audit_entries;
      alter table audit_entries enable trigger audit_append_only`),
  ),
)

const author = { actor: 'root@host', auth: 'command_line', scope: null, requestId: null, traceId: null } as const
const everything = { actor: null, action: [], subject: null, createdAfter: null, createdBefore: null }
const list = (tenantId = TENANT) =>
  database.query((connection) => listAuditRows(connection, tenantId, everything, null, 100))
const run = (statement: string, retention = false) =>
  database.transaction(async ({ script }) => {
    if (retention) await script(`set local opledger.retention = 'on'`)
    await script(statement)
  })
const plant = (count: number, age: string, tenantId = TENANT) =>
  database.query(
    ({ sql }) => sql`
      insert into audit_entries (tenant_id, at, actor, auth, action, subject_kind, subject_id)
      select ${tenantId}::int, now() - ${age}::text::interval, 'alice', 'key', 'operation.cancel', 'operation', 'op_' || n
      from generate_series(1, ${count}::int) as g (n)`,
  )

describe('the table', () => {
  test.each([
    ['update', `update audit_entries set actor = 'nobody'`],
    ['delete', 'delete from audit_entries'],
    ['truncate', 'truncate audit_entries'],
    ['an update of nothing', `update audit_entries set actor = 'nobody' where false`],
  ])('refuses %s', async (_what, statement) => {
    await plant(1, '400 days')
    await expect(run(statement)).rejects.toMatchObject({ code: '23001' })
    expect(await list()).toHaveLength(1)
  })

  test.each([
    ['update', `update audit_entries set actor = 'nobody'`],
    ['truncate', 'truncate audit_entries'],
  ])('refuses %s in the name of retention too', async (_what, statement) => {
    await plant(1, '400 days')
    await expect(run(statement, true)).rejects.toMatchObject({ code: '23001' })
  })

  test('lets retention delete what is old, and neither what is young nor all at once', async () => {
    await plant(2, `${AUDIT_DAYS_MIN + 1} days`)
    await plant(1, `${AUDIT_DAYS_MIN - 1} days`)
    await expect(run('delete from audit_entries', true)).rejects.toMatchObject({ code: '23001' })
    expect(await list()).toHaveLength(3)
    await run(`delete from audit_entries where at < now() - interval '${AUDIT_DAYS_MIN} days'`, true)
    expect(await list()).toHaveLength(1)
    await plant(10_001, '400 days')
    await expect(run(`delete from audit_entries where at < now() - interval '300 days'`, true)).rejects.toMatchObject({
      code: '23001',
    })
  })

  test('refuses details that are not small', async () => {
    const statement = (
      chars: number,
    ) => `insert into audit_entries (tenant_id, actor, auth, action, subject_kind, subject_id, details)
      values (1, 'a', 'key', 'operation.cancel', 'operation', 'x', jsonb_build_object('why', repeat('x', ${chars})))`
    await run(statement(1_900))
    await expect(run(statement(2_100))).rejects.toMatchObject({ code: '23514' })
  })
})

const cancel = (operationId: string, details: AuditEntry['details'] = {}) =>
  requestCancel(database, {
    tenantId: TENANT,
    operationId,
    actor: 'alice',
    reason: null,
    audit: auditEntry(author, 'operation.cancel', ['operation', operationId], null, details),
  })

describe('an entry', () => {
  test('is of the transaction of what it tells of: without the one there is not the other', async () => {
    const id = await storeOperation(database, { items: items(1) })
    // an entry that the table refuses
    await expect(cancel(id, { why: 'x'.repeat(3_000) })).rejects.toMatchObject({ code: '23514' })
    const [row] = await database.query(
      ({ sql }) => sql<{ open: boolean }>`
        select cancel_requested_at is null as open from operations where id = ${id}::uuid`,
    )
    expect([row?.open, await list()]).toEqual([true, []])
    expect(await cancel(id)).toBe(true)
    expect(await cancel(id)).toBe(false)
    expect(await list()).toMatchObject([{ action: 'operation.cancel', subjectId: id, actor: 'root@host' }])
  })

  test.each([
    ['half of a pair of a character that was cut', '😀'.slice(0, 1)],
    ['the other half', '😀'.slice(1)],
    ['U+0000', '\0'],
  ])('undoes no write for %s in a text: it becomes U+FFFD', async (_what, bad) => {
    const id = await storeOperation(database, { items: items(1) })
    const text = `a${bad}😀`
    const written = await requestCancel(database, {
      ...{ tenantId: TENANT, operationId: id, actor: 'alice', reason: null },
      audit: {
        ...auditEntry(
          { ...author, actor: text, scope: text, requestId: text, traceId: text },
          'operation.cancel',
          ['operation', text],
          text,
        ),
        details: { why: text, ok: true, count: 3 },
      },
    })
    expect(written).toBe(true)
    const kept = 'a\ufffd😀'
    expect(await list()).toMatchObject([
      {
        ...{ actor: kept, scope: kept, subjectId: kept, reason: kept, requestId: kept, traceId: kept },
        details: { why: kept, ok: true, count: 3 },
      },
    ])
  })

  test('of forced codes and of a key with the longest name is written, whatever stands at the border', async () => {
    const principal = { tenantId: TENANT, name: 'alice', scopes: [] }
    const forced = [`${'x'.repeat(299)}😀`]
    const made = { id: randomUUID(), of: randomUUID(), targets: 1, reason: 'r' }
    const entry = derivedAudit('operation.replay', made, principal, forced)
    await database.query(({ sql }) => recordAudit(sql, TENANT, entry))
    const name = `${'x'.repeat(199)}😀${'x'.repeat(52)}`
    await createApiKey(database, { name, scopes: [], expiresInDays: null })
    expect((await list()).map(({ details }) => details)).toMatchObject([
      { name },
      { forced: `${'x'.repeat(299)}\ufffd` },
    ])
  })

  test.each(['', 'x'.repeat(256), 'é'.repeat(128)])('is of no key whose name is empty or too long', async (name) => {
    const made = createApiKey(database, { name, scopes: [], expiresInDays: null })
    await expect(made).rejects.toThrow(/^--name: must have 1 to 255 bytes/)
    expect(await list()).toEqual([])
  })

  test('of the command line names its user: keys, and a restore, which every tenant is told of', async () => {
    const made = await createApiKey(
      database,
      { name: 'billing', scopes: ['operations:read'], expiresInDays: 9 },
      author,
    )
    const key = { id: made.id, tenantId: null }
    expect(await renewApiKey(database, key, { graceHours: 1, expiresInDays: null }, author)).not.toBeNull()
    expect(await endApiKey(database, key, author)).toBe(true)
    expect(await endApiKey(database, key, author)).toBe(false)
    await database.query(({ sql }) => sql`insert into tenants (id, name) values (7, 'seven')`)
    const audit = auditEntry(author, 'database.restored', ['database', 'opledger'], null)
    await recordRestore(database, { doubtDays: 1, audit })
    const entries = await list()
    expect(entries.map(({ action }) => action)).toEqual([
      'database.restored',
      'api_key.revoke',
      'api_key.rotate',
      'api_key.create',
    ])
    expect(entries[3]).toMatchObject({
      actor: 'root@host',
      auth: 'command_line',
      subjectKind: 'api_key',
      subjectId: made.id,
      details: { name: 'billing', scopes: 'operations:read', expires_in_days: 9 },
    })
    expect(JSON.stringify(entries)).not.toContain(made.key)
    expect(await list(7)).toMatchObject([{ action: 'database.restored' }])
  })
})

describe('retention', () => {
  test('deletes by age, oldest first, tenant by tenant, so many at once', async () => {
    for (const tenantId of [1, 3, 9]) {
      await plant(4, '366 days', tenantId)
      await plant(2, '364 days', tenantId)
    }
    expect(await purgeAudit(database, 365, 5)).toBe(5)
    const service = auditRetention({ database }, 365, 5)
    expect(await service.runOnce()).toEqual({ more: true })
    expect(await service.runOnce()).toEqual({ more: false })
    expect(await service.runOnce()).toEqual({ more: false })
    for (const tenantId of [1, 3, 9]) expect(await list(tenantId)).toHaveLength(2)
  })

  test('two at once delete everything once', async () => {
    await plant(40, '400 days')
    const counts = await Promise.all([purgeAudit(database, 365, 30), purgeAudit(database, 365, 30)])
    const rest = await purgeAudit(database, 365, 30)
    expect(counts.reduce((sum, count) => sum + count, rest)).toBe(40)
    expect(await list()).toEqual([])
  })
})
