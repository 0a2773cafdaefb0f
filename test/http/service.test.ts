import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { Scope } from '../../src/domain/scope.ts'
import { openEdge } from './fake-services.ts'

describe('AUTH=keys', () => {
  const KEY = 'opl_0123456789'
  const open = async (scopes: Scope[]) => {
    const edge = await openEdge({ auth: 'keys' })
    const keyHash = createHash('sha256').update(KEY).digest('hex')
    edge.fake.keys.set(keyHash, { principal: { tenantId: 5, name: 'ci', scopes }, keyHash })
    return edge
  }

  it.each([
    ['no header', {}],
    ['another scheme', { authorization: `Basic ${KEY}` }],
    ['an unknown key', { authorization: 'Bearer opl_unknown' }],
    ['a key of another kind', { authorization: 'Bearer abc' }],
    ['a huge key', { authorization: `Bearer opl_${'x'.repeat(1_000)}` }],
    ['only a principal', { 'x-principal': 'root' }],
  ])('refuses %s', async (_name, headers) => {
    const { app } = await open(['operations:read'])
    const answer = await app.inject({ url: '/operations', headers: headers as Record<string, string> })
    expect([answer.statusCode, answer.json().code]).toEqual([401, 'unauthenticated'])
    expect(answer.headers['www-authenticate']).toMatch(/^Bearer/)
    await app.close()
  })

  it('gives the tenant and name of the key', async () => {
    const { app, fake } = await open(['operations:read'])
    const answer = await app.inject({ url: '/operations', headers: { authorization: `bearer ${KEY}` } })
    expect(answer.statusCode).toBe(200)
    const call = fake.calls.find(({ name }) => name === 'listOperations')
    expect(call?.arguments[0]).toMatchObject({ tenantId: 5, name: 'ci' })
    await app.close()
  })

  it('asks for the scope of the route', async () => {
    const { app } = await open(['operations:read'])
    const headers = { authorization: `Bearer ${KEY}` }
    const answer = await app.inject({ method: 'POST', url: '/operations', headers, payload: { type: 't' } })
    expect([answer.statusCode, answer.json().code, answer.json().scope]).toEqual([403, 'forbidden', 'operations:write'])
    await app.close()
  })

  it('shows the metrics of the process also while the database, which knows the keys, is away', async () => {
    const { app, fake } = await open(['metrics:read', 'metrics:service'])
    const headers = { authorization: `Bearer ${KEY}` }
    const scrape = async (key = KEY) =>
      (await app.inject({ url: '/metrics', headers: { authorization: `Bearer ${key}` } })).statusCode
    fake.isDatabaseUp = false
    expect(await scrape()).toBe(503)
    fake.isDatabaseUp = true
    expect(await scrape()).toBe(200)
    fake.isDatabaseUp = false
    const { statusCode, body } = await app.inject({ url: '/metrics', headers })
    expect([statusCode, /opledger_http_request_duration/.test(body)]).toEqual([200, true])
    expect(await scrape('opl_another')).toBe(503)
    expect((await app.inject({ url: '/operations', headers })).statusCode).toBe(503)
    await app.close()
  })

  it('asks for reconcile to send a webhook again', async () => {
    const { app } = await open(['operations:read', 'operations:write'])
    const url = `/webhook-deliveries/wh_${'0'.repeat(32)}`
    const headers = { authorization: `Bearer ${KEY}` }
    expect((await app.inject({ url, headers })).json().code).toBe('webhook-delivery-not-found')
    const answer = await app.inject({ method: 'POST', url: `${url}/redeliver`, headers, payload: {} })
    expect([answer.statusCode, answer.json().code]).toEqual([403, 'forbidden'])
    await app.close()
  })

  it.each(['/livez', '/readyz', '/openapi.json', '/docs', '/problems/internal'])('leaves %s open', async (url) => {
    const { app } = await open([])
    expect((await app.inject(url)).statusCode).toBeLessThan(400)
    await app.close()
  })
})

describe('AUTH=off', () => {
  it.each([
    [undefined, 'dev'],
    ['alice', 'alice'],
    [Buffer.from('Jürgen').toString('latin1'), 'Jürgen'],
  ])('takes X-Principal %s for %s', async (header, name) => {
    const { app, fake } = await openEdge()
    await app.inject({ url: '/operations', ...(header === undefined ? {} : { headers: { 'x-principal': header } }) })
    expect(fake.calls[0]?.arguments[0]).toMatchObject({ tenantId: 1, name })
    await app.close()
  })
})

describe('AUTH=off and web pages', () => {
  it.each([
    ['http://127.0.0.1:3000', 202],
    [undefined, 202],
    ['https://evil.test', 403],
    ['null', 403],
    ['http://127.0.0.1:3001', 403],
  ])('a post from the origin %s → %i', async (origin, status) => {
    const { app, fake } = await openEdge()
    const answer = await app.inject({
      method: 'POST',
      url: `/operations/${formatId('op', fake.add().id)}/cancel`,
      headers: { host: '127.0.0.1:3000', ...(origin === undefined ? {} : { origin }) },
    })
    expect(answer.statusCode).toBe(status)
    await app.close()
  })
})

describe('without API keys, a page whose name was made to point here', () => {
  const asked = async (
    host: string,
    publicUrl: string | null,
    url?: string,
  ): Promise<{ status: number; code?: string }> => {
    const { app, fake } = await openEdge({ publicUrl })
    const answer = await app.inject({
      url: url ?? `/operations/${formatId('op', fake.add().id)}`,
      // its own origin is then the same as the host
      headers: { host, origin: `http://${host}` },
    })
    await app.close()
    return { status: answer.statusCode, code: answer.json().code }
  }

  it.each([
    ['localhost:3000', null],
    ['LOCALHOST', null],
    ['127.0.0.1:3000', null],
    ['127.4.5.6', null],
    ['[::1]:3000', null],
    ['ops.test', 'https://ops.test'],
    ['ops.test:443', 'https://ops.test/below'],
    ['OPS.test:8443', 'https://ops.test:8443'],
  ])('is not %s', async (host, publicUrl) => {
    expect(await asked(host, publicUrl)).toMatchObject({ status: 200 })
  })

  it.each([
    ['evil.test:3000', null],
    ['evil.test', 'https://ops.test'],
    ['ops.test:3000', 'https://ops.test'],
    ['localhost.evil.test', null],
    ['127.0.0.1.evil.test', null],
    ['evil.test#localhost', null],
    ['', null],
  ])('is %s', async (host, publicUrl) => {
    expect(await asked(host, publicUrl)).toEqual({ status: 403, code: 'forbidden' })
  })

  it('may see what everybody may', async () => {
    expect(await asked('evil.test', null, '/livez')).toMatchObject({ status: 200 })
  })
})

describe('pages', () => {
  it('serves metrics under one prefix, with routes instead of paths', async () => {
    const { app, fake } = await openEdge()
    await app.inject(`/operations/${formatId('op', fake.add().id)}`)
    const { body, headers } = await app.inject({
      url: '/metrics',
      headers: { accept: 'application/openmetrics-text,text/plain;q=0.5,*/*;q=0.1' },
    })
    expect(headers['content-type']).toMatch(/^text\/plain/)
    expect(body).toContain('opledger_shards_ready{type="t"} 3')
    expect(body).toContain('route="/operations/:id",status="200"')
    const names = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
    expect(names.filter((line) => !line.startsWith('opledger_'))).toEqual([])
    await app.close()
  })

  it('sets safe headers, and the documentation still runs', async () => {
    const { app } = await openEdge()
    const api = await app.inject('/livez')
    expect(api.headers['content-security-policy']).toContain("default-src 'none'")
    expect(api.headers['x-content-type-options']).toBe('nosniff')
    const docs = await app.inject('/docs/')
    expect(docs.statusCode).toBe(200)
    expect(String(docs.headers['content-security-policy'])).not.toContain("default-src 'none'")
    await app.close()
  })
})

describe('shutdown', () => {
  it('is not ready first, serves on, and then closes without waiting for idle connections (case 85)', async () => {
    const { app, fake, state } = await openEdge()
    const operation = fake.add()
    const path = `/operations/${formatId('op', operation.id)}`
    await app.listen({ port: 0, host: '127.0.0.1' })
    const { port } = app.server.address() as AddressInfo
    const agent = new Agent({ keepAlive: true, maxSockets: 10 })
    const ask = async (url: string, headers: Record<string, string> = {}): Promise<IncomingMessage> => {
      const request = get({ port, path: url, agent, headers })
      const [answer] = (await once(request, 'response')) as [IncomingMessage]
      answer.resume()
      await once(answer, 'end')
      return answer
    }
    expect((await ask('/readyz')).statusCode).toBe(200)
    state.draining = true
    expect((await ask('/readyz')).statusCode).toBe(503)
    const served = await ask(path)
    expect([served.statusCode, served.headers.connection]).toEqual([200, 'close'])
    state.draining = false
    await ask('/livez')
    // one idle keep-alive connection and one long poll are open now
    const polling = ask(path, { prefer: 'wait=60' })
    while (fake.waiting === 0) await new Promise((resolve) => setImmediate(resolve))
    const started = performance.now()
    await app.close()
    expect((await polling).statusCode).toBe(200)
    expect(performance.now() - started).toBeLessThan(5_000)
    agent.destroy()
  })
})
