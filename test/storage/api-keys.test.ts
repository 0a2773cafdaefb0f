import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Scope } from '../../src/domain/scope.ts'
import { createApiKey, hashApiKey, renewApiKey } from '../../src/services/api-keys.ts'
import { authenticate } from '../../src/services/authenticate.ts'
import { openKeyUses } from '../../src/services/key-uses.ts'
import { createTenant, openTenantNames, tenantIdOf } from '../../src/services/tenants.ts'
import { listApiKeys, noteKeysUsed, revokeApiKey } from '../../src/storage/api-keys.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 4, name: 'test' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => database.query(({ script }) => script('truncate api_keys; delete from tenants where id <> 1')))

const SCOPES_OF_KEY: Scope[] = ['operations:read', 'replay']
const make = (change: { tenantId?: number; expiresInDays?: number | null } = {}) =>
  createApiKey(database, { name: 'ci', scopes: SCOPES_OF_KEY, expiresInDays: null, ...change })
const noUses = { note: () => {} }
const callerOf = async (key: string) =>
  (await authenticate({ database, keyUses: noUses }, hashApiKey(key)))?.principal ?? null
const set = (sql: string) => database.query(({ script }) => script(`update api_keys set ${sql}`))
const usedAt = async () => (await database.query((connection) => listApiKeys(connection, null)))[0]?.lastUsedAt ?? null

describe('a key', () => {
  test('is long, random, and nowhere in the database', async () => {
    const [a, b] = [await make(), await make()]
    expect(a.key).toMatch(/^opl_[\w-]{43}$/)
    expect(a.key).not.toBe(b.key)
    const [row] = await database.query(
      ({ sql }) => sql<{ all: string }>`select string_agg(k::text, ' ') as all from api_keys k`,
    )
    for (const { key } of [a, b]) expect(row?.all).not.toContain(key.slice('opl_'.length))
    expect(row?.all).toContain(hashApiKey(a.key))
  })

  test('is its tenant, its name and its scopes', async () => {
    const tenantId = await createTenant(database, 'acme')
    const { key } = await make({ tenantId })
    expect(await callerOf(key)).toEqual({ tenantId, name: 'ci', scopes: SCOPES_OF_KEY })
    expect(await callerOf(`${key}x`)).toBeNull()
  })

  test('ends when it has expired or was revoked', async () => {
    const { id, key } = await make({ expiresInDays: 1 })
    expect(await callerOf(key)).not.toBeNull()
    await set("expires_at = now() - interval '1 second'")
    expect(await callerOf(key)).toBeNull()
    await set('expires_at = null')
    const revoke = () => database.query((connection) => revokeApiKey(connection, { id, tenantId: null }))
    expect([await revoke(), await revoke()]).toEqual([true, false])
    expect(await callerOf(key)).toBeNull()
  })

  test('of one tenant is not ended or renewed as that of another', async () => {
    const tenantId = await createTenant(database, 'acme')
    const { id, key } = await make({ tenantId })
    expect(await database.query((connection) => revokeApiKey(connection, { id, tenantId: 1 }))).toBe(false)
    expect(await renewApiKey(database, { id, tenantId: 1 }, { graceHours: 1, expiresInDays: null })).toBeNull()
    expect(await callerOf(key)).not.toBeNull()
    const listed = (of: number | null) => database.query((connection) => listApiKeys(connection, of))
    expect([(await listed(1)).length, (await listed(tenantId)).map(({ tenant }) => tenant)]).toEqual([0, ['acme']])
  })
})

describe('a rotation', () => {
  const rotate = (id: string, graceHours: number, expiresInDays: number | null = null) =>
    renewApiKey(database, { id, tenantId: null }, { graceHours, expiresInDays })

  test('leaves the secret before valid for its grace time, and is the same caller', async () => {
    const { id, key } = await make()
    const next = await rotate(id, 24)
    expect(next?.name).toBe('ci')
    expect(await callerOf(next?.key ?? '')).toEqual(await callerOf(key))
    await set("previous_until = now() - interval '1 second'")
    expect(await callerOf(key)).toBeNull()
    expect(await callerOf(next?.key ?? '')).not.toBeNull()
  })

  test('without a grace time ends the secret before at once', async () => {
    const { id, key } = await make()
    await rotate(id, 0)
    expect(await callerOf(key)).toBeNull()
  })

  test('once more ends the secret before the one before', async () => {
    const { id, key } = await make()
    const second = await rotate(id, 24)
    const third = await rotate(id, 24)
    expect(await callerOf(key)).toBeNull()
    for (const valid of [second, third]) expect(await callerOf(valid?.key ?? '')).not.toBeNull()
  })

  test('keeps the end of the key, or sets a new one, and revoking ends both secrets', async () => {
    const { id, key } = await make({ expiresInDays: 1 })
    const ends = async () => (await database.query((connection) => listApiKeys(connection, null)))[0]?.expiresAt
    const before = await ends()
    const next = await rotate(id, 24)
    expect(await ends()).toBe(before)
    await rotate(id, 24, 90)
    expect(await ends()).not.toBe(before)
    await database.query((connection) => revokeApiKey(connection, { id, tenantId: null }))
    for (const secret of [key, next?.key ?? '']) expect(await callerOf(secret)).toBeNull()
  })

  test('is for valid keys only', async () => {
    const { id } = await make()
    expect(await rotate(randomUUID(), 1)).toBeNull()
    await set("expires_at = now() - interval '1 second'")
    expect(await rotate(id, 1)).toBeNull()
    await set('expires_at = null, revoked_at = now()')
    expect(await rotate(id, 1)).toBeNull()
  })
})

describe('the last use of a key', () => {
  test('is noted once a minute, and not in the way of requests', async () => {
    const uses = openKeyUses({ database }, { flushMs: 60_000 })
    const { key } = await make()
    for (let request = 0; request < 5; request++) await authenticate({ database, keyUses: uses }, hashApiKey(key))
    expect(await usedAt()).toBeNull()
    await uses.close()
    const first = await usedAt()
    expect(first).not.toBeNull()
    const note = vi.fn()
    await authenticate({ database, keyUses: { note } }, hashApiKey(key))
    expect(note).not.toHaveBeenCalled()
    await set("last_used_at = now() - interval '61 seconds'")
    await authenticate({ database, keyUses: { note } }, hashApiKey(key))
    expect(note).toHaveBeenCalledOnce()
  })

  test('is written by one of several processes', async () => {
    const { id } = await make()
    const keys = [{ tenantId: 1, id }]
    await database.query((connection) => noteKeysUsed(connection, keys))
    const first = await usedAt()
    await database.query((connection) => noteKeysUsed(connection, keys))
    expect(await usedAt()).toBe(first)
  })

  test('waits in a list that is bounded', async () => {
    const written: number[] = []
    const counting = {
      query: async (work: (connection: unknown) => Promise<unknown>) => {
        await work({ sql: async (_strings: unknown, tenants: string) => written.push(tenants.split(',').length) })
      },
    } as unknown as Database
    const uses = openKeyUses({ database: counting }, { flushMs: 60_000, waitingMax: 3 })
    for (let key = 0; key < 10; key++) uses.note({ tenantId: 1, id: `key-${key}` })
    await uses.close()
    expect(written).toEqual([3])
  })

  test('that cannot be written is forgotten', async () => {
    const away = { query: () => Promise.reject(new Error('away')) } as unknown as Database
    const uses = openKeyUses({ database: away }, { flushMs: 60_000 })
    uses.note({ tenantId: 1, id: 'a' })
    await expect(uses.close()).resolves.toBeUndefined()
  })
})

describe('tenants', () => {
  test('are made once, by names that can be typed', async () => {
    expect(await createTenant(database, 'acme.eu-1')).toBe(2)
    await expect(createTenant(database, 'acme.eu-1')).rejects.toThrow(/is the name taken/)
    for (const name of ['', 'A', '-a', 'a-', 'a b', 'a/b', 'a'.repeat(65)]) {
      await expect(createTenant(database, name), name).rejects.toThrow(/lower-case/)
    }
    expect(await tenantIdOf(database, 'acme.eu-1')).toBe(2)
    await expect(tenantIdOf(database, 'acme')).rejects.toThrow(/^--tenant: there is no tenant "acme"/)
  })

  test('are found by name, and a name that nobody has is looked for each time', async () => {
    const names = openTenantNames(database)
    expect(await names.find('late')).toBeNull()
    const id = await createTenant(database, 'late')
    expect([await names.find('late'), await names.find('late'), await names.find('default')]).toEqual([id, id, 1])
  })
})
