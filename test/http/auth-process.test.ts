/** Who may do what, of a real api process: the way from the environment to the refusal. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { createApiKey } from '../../src/services/api-keys.ts'
import { createTenant } from '../../src/services/tenants.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { spawnScript, until, waitForExit } from '../support/processes.ts'

const PROCESS_MS = 120_000
let testDatabase: TestDatabase
let database: Database
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 1, name: 'test' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})

describe('without keys', { timeout: PROCESS_MS }, () => {
  it.each(['0.0.0.0', '::', '192.0.2.1'])('the start on %s is refused, in one line', async (HOST) => {
    const port = await choosePort(null)
    const env = { PATH: '/usr/bin:/bin', DATABASE_URL: testDatabase.url, PORT: String(port), AUTH: 'off', HOST }
    const child = spawnScript('../../src/api.ts', [], { env })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (text += String(chunk)))
    expect((await waitForExit(child)).code).not.toBe(0)
    expect(text.trim()).toBe(
      `opledger: AUTH: off is allowed on a loopback HOST only, and HOST is ${HOST}; use AUTH=keys`,
    )
  })
})

describe('with keys and tokens', { timeout: PROCESS_MS }, () => {
  it('both are callers of one process, each of its tenant, and nobody else is', async () => {
    const { publicKey, privateKey } = await generateKeyPair('ES256')
    const jwk = { ...(await exportJWK(publicKey)), kid: 'k1', alg: 'ES256' }
    const issuer = createServer((_request, response) => response.end(JSON.stringify({ keys: [jwk] })))
    await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve))
    await createTenant(database, 'acme')
    const { key } = await createApiKey(database, { name: 'ci', scopes: ['operations:read'], expiresInDays: null })
    const api = await startApi({
      databaseUrl: testDatabase.url,
      typeFiles: [],
      env: {
        AUTH: 'keys',
        OPLEDGER_JWT_ISSUER: 'https://id.example/',
        OPLEDGER_JWT_AUDIENCE: 'ops',
        OPLEDGER_JWT_JWKS_URL: `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`,
      },
    })
    try {
      const ask = (credential: string | null, method = 'GET', body?: object) =>
        fetch(`${api.url}/operations`, {
          method,
          headers: {
            ...(credential !== null && { authorization: `Bearer ${credential}` }),
            ...(body && { 'content-type': 'application/json' }),
          },
          ...(body && { body: JSON.stringify(body) }),
        })
      const tokenFor = (tenant: string) =>
        new SignJWT({ tenant, scope: 'operations:read operations:write' })
          .setProtectedHeader({ alg: 'ES256', kid: 'k1' })
          .setIssuer('https://id.example/')
          .setAudience('ops')
          .setSubject('alice')
          .setExpirationTime('5 minutes')
          .sign(privateKey)
      expect((await ask(null)).status).toBe(401)
      expect((await ask('opl_nobodys')).status).toBe(401)
      expect((await ask(await tokenFor('elsewhere'))).status).toBe(403)
      const token = await tokenFor('acme')
      const items = [{ key: 'a', input: {} }]
      const submitted = await ask(token, 'POST', { type: 'example-notify', items, draft: true })
      expect([202, 400, 422]).toContain(submitted.status)
      expect((await ask(key, 'POST', { type: 'example-notify', items })).status).toBe(403)
      for (const credential of [token, key]) expect((await ask(credential)).status).toBe(200)
      await until('the use of the key is noted', async () => {
        const [row] = await database.query(
          ({ sql }) => sql<{ used: boolean }>`select last_used_at is not null as used from api_keys`,
        )
        return row?.used === true
      })
    } finally {
      await api.kill()
      issuer.close()
    }
  })
})
