/** Callers with a JWT, against an issuer of our own: its keys are served over HTTP, and the test signs what it likes. */
import { createHash } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Scope } from '../../src/domain/scope.ts'
import { JWKS_FAILED_MS, JWT_CLOCK_TOLERANCE_SECONDS, MAX_JWKS_BYTES } from '../../src/http/limits.ts'
import type { TokenSettings } from '../../src/http/tokens.ts'
import { type Edge, openEdge } from './fake-services.ts'

const ISSUER = 'https://id.example/'
const AUDIENCE = 'https://ops.example'
const KEY = 'opl_beside'

type PrivateKey = Awaited<ReturnType<typeof generateKeyPair>>['privateKey']

let issuer: Server
let jwksUrl: string
let asked: number
/** What the issuer answers with. */
let publish: () => { status: number; body: string }
let keys: { name: string; privateKey: PrivateKey; jwk: object }[]

const newKey = async (name: string, algorithm: string) => {
  const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true })
  return { name, privateKey, jwk: { ...(await exportJWK(publicKey)), kid: name, alg: algorithm, use: 'sig' } }
}

beforeAll(async () => {
  keys = await Promise.all([
    newKey('rsa', 'RS256'),
    newKey('ec', 'ES256'),
    newKey('ed', 'EdDSA'),
    newKey('other', 'ES256'),
  ])
  issuer = createServer((_request, response) => {
    asked++
    const { status, body } = publish()
    response.writeHead(status, { 'content-type': 'application/json' }).end(body)
  })
  await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve))
  jwksUrl = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`
})
afterAll(() => new Promise((resolve) => issuer.close(resolve)))
afterEach(() => {
  vi.useRealTimers()
})
beforeEach(() => {
  asked = 0
  publish = () => ({ status: 200, body: JSON.stringify({ keys: keys.slice(0, 3).map(({ jwk }) => jwk) }) })
})

const now = () => Math.floor(Date.now() / 1_000)

const sign = (claims: JWTPayload = {}, { by = 'rsa', header = {} }: { by?: string; header?: object } = {}) => {
  const key = keys.find(({ name }) => name === by)
  if (!key) throw new Error('there is no such key')
  const { alg } = key.jwk as { alg: string }
  const payload: JWTPayload = {
    iss: ISSUER,
    aud: AUDIENCE,
    sub: 'alice',
    tenant: 'acme',
    scope: 'openid operations:read root',
    exp: now() + 300,
    ...claims,
  }
  return new SignJWT(payload).setProtectedHeader({ alg, kid: by, ...header }).sign(key.privateKey)
}

const open = async (change: Partial<TokenSettings> = {}): Promise<Edge> => {
  const jwt = {
    issuer: ISSUER,
    audience: AUDIENCE,
    jwksUrl,
    tenant: null,
    tenantClaim: 'tenant',
    nameClaim: 'sub',
    scopesClaim: 'scope',
    ...change,
  }
  const edge = await openEdge({ auth: 'keys', jwt })
  edge.fake.tenants.set('acme', 7)
  const keyHash = createHash('sha256').update(KEY).digest('hex')
  edge.fake.keys.set(keyHash, { principal: { tenantId: 1, name: 'ci', scopes: ['operations:read'] }, keyHash })
  return edge
}
const ask = async ({ app }: Edge, token: string, url = '/operations') => {
  const answer = await app.inject({ url, headers: { authorization: `Bearer ${token}` } })
  return { status: answer.statusCode, ...answer.json() }
}
/** Who the use case was told is asking. */
const callerOf = ({ fake }: Edge) => fake.calls.filter(({ name }) => name === 'listOperations').at(-1)?.arguments[0]

describe('a token', () => {
  it.each(['rsa', 'ec', 'ed'])('signed with a published key (%s) is its caller', async (by) => {
    const edge = await open()
    expect(await ask(edge, await sign({}, { by }))).toMatchObject({ status: 200 })
    expect(callerOf(edge)).toMatchObject({ tenantId: 7, name: 'alice', scopes: ['operations:read'] })
    await edge.app.close()
  })

  it('may carry its claims under other names, and its scopes as a list', async () => {
    const names = { tenantClaim: 'https://acme.example/org', nameClaim: 'email', scopesClaim: 'permissions' }
    const edge = await open(names)
    const claims = {
      'https://acme.example/org': 'acme',
      email: 'a@acme.example',
      permissions: ['operations:read', 'replay'],
    }
    expect(await ask(edge, await sign(claims))).toMatchObject({ status: 200 })
    expect(callerOf(edge)).toMatchObject({ tenantId: 7, name: 'a@acme.example', scopes: ['operations:read', 'replay'] })
    await edge.app.close()
  })

  it('may belong to one tenant for all', async () => {
    const edge = await open({ tenant: 'acme' })
    expect(await ask(edge, await sign({ tenant: 'elsewhere' }))).toMatchObject({ status: 200 })
    expect(callerOf(edge)).toMatchObject({ tenantId: 7 })
    await edge.app.close()
  })

  it('is taken beside keys', async () => {
    const edge = await open()
    expect(await ask(edge, KEY)).toMatchObject({ status: 200 })
    expect(callerOf(edge)).toMatchObject({ tenantId: 1, name: 'ci' })
    await edge.app.close()
  })

  it('is bound by clocks that differ no more than is allowed', async () => {
    const edge = await open()
    const late = await sign({ exp: now() - JWT_CLOCK_TOLERANCE_SECONDS + 10 })
    const early = await sign({ nbf: now() + JWT_CLOCK_TOLERANCE_SECONDS - 10 })
    for (const token of [late, early]) expect(await ask(edge, token)).toMatchObject({ status: 200 })
    const tooLate = await sign({ exp: now() - JWT_CLOCK_TOLERANCE_SECONDS - 10 })
    expect(await ask(edge, tooLate)).toMatchObject({ status: 401, detail: 'The token has expired' })
    const tooEarly = await sign({ nbf: now() + JWT_CLOCK_TOLERANCE_SECONDS + 10 })
    expect(await ask(edge, tooEarly)).toMatchObject({ status: 401, detail: expect.stringContaining('"nbf"') })
    await edge.app.close()
  })
})

describe('a token is refused', () => {
  const cases: [string, JWTPayload, string][] = [
    ['of another issuer', { iss: 'https://evil.example/' }, '"iss"'],
    ['for another audience', { aud: 'https://other.example' }, '"aud"'],
    ['without an end', { exp: undefined as never }, '"exp"'],
    ['without a name', { sub: undefined as never }, '"sub"'],
    ['with a name that is no text', { sub: 7 as never }, '"sub"'],
    ['with a name that is too long', { sub: 'a'.repeat(300) }, '"sub"'],
    ['with a name that cannot be stored', { sub: 'a\u0000' }, '"sub"'],
  ]
  it.each(cases)('%s', async (_name, claims, told) => {
    const edge = await open()
    const answer = await ask(edge, await sign(claims))
    expect(answer).toMatchObject({ status: 401, code: 'unauthenticated', detail: expect.stringContaining(told) })
    expect(callerOf(edge)).toBeUndefined()
    await edge.app.close()
  })

  it('with a key that is not published', async () => {
    const edge = await open()
    expect(await ask(edge, await sign({}, { by: 'other' }))).toMatchObject({ status: 401 })
    expect(await ask(edge, await sign({}, { by: 'other', header: { kid: 'ec' } }))).toMatchObject({ status: 401 })
    await edge.app.close()
  })

  it('with a symmetric algorithm, or none, whatever else it says', async () => {
    const edge = await open()
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const claims = {
      iss: ISSUER,
      aud: AUDIENCE,
      sub: 'alice',
      tenant: 'acme',
      scope: 'operations:read',
      exp: now() + 300,
    }
    // the classic: what is public taken for a secret
    const secret = new TextEncoder().encode(JSON.stringify(keys[0]?.jwk))
    const symmetric = await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'rsa' }).sign(secret)
    const unsigned = `${part({ alg: 'none' })}.${part(claims)}.${'A'.repeat(8)}`
    for (const token of [symmetric, unsigned]) expect(await ask(edge, token)).toMatchObject({ status: 401 })
    expect(asked).toBe(0)
    await edge.app.close()
  })

  it('with a changed claim', async () => {
    const edge = await open()
    const [header = '', , signature = ''] = (await sign()).split('.')
    const [, payload = ''] = (await sign({ scope: 'types:admin' })).split('.')
    expect(await ask(edge, `${header}.${payload}.${signature}`)).toMatchObject({ status: 401 })
    await edge.app.close()
  })

  it.each(['a.b', 'a.b.c', 'a.b.c.d', 'eyJhbGciOiJSUzI1NiJ9..', 'x'.repeat(9_000)])(
    'that is none: %s',
    async (token) => {
      const edge = await open()
      expect(await ask(edge, token)).toMatchObject({ status: 401, code: 'unauthenticated' })
      await edge.app.close()
    },
  )

  it('where none are taken', async () => {
    const edge = await openEdge({ auth: 'keys' })
    expect(await ask(edge, await sign())).toMatchObject({ status: 401, detail: expect.not.stringContaining('JWT') })
    await edge.app.close()
  })

  it('of a tenant that is not known here, or of none', async () => {
    const edge = await open()
    expect(await ask(edge, await sign({ tenant: 'nobody' }))).toMatchObject({ status: 403, code: 'forbidden' })
    const none = await ask(edge, await sign({ tenant: undefined }))
    expect(none).toMatchObject({ status: 403, detail: expect.stringContaining('"tenant"') })
    expect((await ask(edge, await sign({ tenant: 'constructor' }))).status).toBe(403)
    await edge.app.close()
  })

  it.each([
    ['with U+0000', 'acme\u0000'],
    ['with half of a pair', 'acme\ud800'],
    ['that is too long', 'a'.repeat(300)],
    ['that is no text', 7],
    ['that is empty', ' '],
  ])('of a tenant %s, which nobody can have: nothing is looked up', async (_name, tenant) => {
    const edge = await open()
    edge.fake.tenants.set(String(tenant), 7)
    const answer = await ask(edge, await sign({ tenant: tenant as never }))
    expect(answer).toMatchObject({ status: 403, code: 'forbidden', detail: expect.stringContaining('"tenant"') })
    expect(callerOf(edge)).toBeUndefined()
    await edge.app.close()
  })

  it('that lacks the scope of the route', async () => {
    const edge = await open()
    const needs: [string, Scope][] = [
      ['/reconciliation', 'ledger:read'],
      ['/metrics', 'metrics:read'],
    ]
    for (const [url, scope] of needs) {
      expect(await ask(edge, await sign({ scope: 'operations:read admin' }), url)).toMatchObject({ status: 403, scope })
    }
    await edge.app.close()
  })
})

describe('the keys of the issuer', () => {
  it('are fetched once for many tokens, and not more often for keys that nobody publishes', async () => {
    const edge = await open()
    await Promise.all(Array.from({ length: 20 }, async () => ask(edge, await sign())))
    expect(asked).toBe(1)
    for (let token = 0; token < 20; token++) await ask(edge, await sign({}, { by: 'other' }))
    expect(asked).toBe(1)
    await edge.app.close()
  })

  it.each<[string, () => { status: number; body: string }]>([
    ['are away', () => ({ status: 500, body: '{}' })],
    ['are no keys', () => ({ status: 200, body: '[]' })],
    ['are no JSON', () => ({ status: 200, body: '<html>' })],
    ['are more than they can be', () => ({ status: 200, body: `{"keys": [], "x": "${'x'.repeat(MAX_JWKS_BYTES)}"}` })],
    ['are somewhere else', () => ({ status: 302, body: '' })],
  ])('%s: tokens wait, and keys go on', async (_name, answer) => {
    publish = answer
    const edge = await open()
    const refused = await edge.app.inject({ url: '/operations', headers: { authorization: `Bearer ${await sign()}` } })
    expect([refused.statusCode, refused.json().code]).toEqual([503, 'token-keys-unavailable'])
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect(await ask(edge, KEY)).toMatchObject({ status: 200 })
    await edge.app.close()
  })

  it.each<[string, () => { status: number; body: string }]>([
    ['are away', () => ({ status: 500, body: '{}' })],
    ['are no keys', () => ({ status: 200, body: '[]' })],
  ])('%s: their issuer is left alone for a while, then asked once more', async (_name, answer) => {
    vi.useFakeTimers({ toFake: ['performance'] })
    const good = publish
    publish = answer
    const edge = await open()
    const unavailable = { status: 503, code: 'token-keys-unavailable' }
    expect(await ask(edge, await sign())).toMatchObject(unavailable)
    expect(asked).toBe(1)
    for (let token = 0; token < 20; token++) {
      expect(await ask(edge, await sign({}, { by: token % 2 === 0 ? 'rsa' : 'other' }))).toMatchObject(unavailable)
      vi.advanceTimersByTime(JWKS_FAILED_MS / 50)
    }
    expect(asked).toBe(1)
    // what is refused meanwhile does not put it off
    vi.advanceTimersByTime(JWKS_FAILED_MS)
    expect(await ask(edge, await sign())).toMatchObject(unavailable)
    expect(asked).toBe(2)
    publish = good
    vi.advanceTimersByTime(JWKS_FAILED_MS)
    expect(await ask(edge, await sign())).toMatchObject({ status: 200 })
    expect(asked).toBe(3)
    await edge.app.close()
  })
})
