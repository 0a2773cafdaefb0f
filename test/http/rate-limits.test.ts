/** Who asks too often is told so, before anything is looked up for it. The clock of the limits is the test's own. */
import { createHash } from 'node:crypto'
import type { InjectOptions } from 'fastify'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { RATE_WINDOW_SECONDS, type RateLimits } from '../../src/domain/rate-limit.ts'
import { SCOPES, type Scope } from '../../src/domain/scope.ts'
import type { HttpConfig } from '../../src/http/deps.ts'
import { MAX_RATE_CALLERS } from '../../src/http/limits.ts'
import { type Edge, openEdge } from './fake-services.ts'

const LIMITS: RateLimits = { read: 2, write: 1, work: 3, address: 1 }
const FULL = Object.fromEntries(
  Object.entries(LIMITS).map(([policy, perSecond]) => [policy, perSecond * RATE_WINDOW_SECONDS]),
) as RateLimits

let edge: Edge
const open = async (config: Partial<HttpConfig> = {}): Promise<void> => {
  edge = await openEdge({ auth: 'keys', rateLimits: LIMITS, ...config })
  addKey('opl_one')
  addKey('opl_two', 'two')
}
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
})
afterEach(async () => {
  vi.useRealTimers()
  await edge.app.close()
})

const addKey = (key: string, name = 'one', scopes: readonly Scope[] = SCOPES): void => {
  const keyHash = createHash('sha256').update(key).digest('hex')
  edge.fake.keys.set(keyHash, { principal: { tenantId: 1, name, scopes }, keyHash })
}
const ask = (url: string, options: InjectOptions & { key?: string | null } = {}) => {
  const { key = 'opl_one', headers, ...others } = options
  return edge.app.inject({
    url,
    ...others,
    headers: { ...(key === null ? {} : { authorization: `Bearer ${key}` }), ...headers },
  })
}
const times = async (count: number, one: () => ReturnType<typeof ask>): Promise<number[]> => {
  const statuses: number[] = []
  for (let index = 0; index < count; index++) statuses.push((await one()).statusCode)
  return statuses
}
const allOf = (count: number, status: number): number[] => Array.from({ length: count }, () => status)
const looksUp = (): number => edge.fake.calls.filter(({ name }) => name === 'authenticate').length
const cancelOf = (): string => `/operations/${formatId('op', edge.fake.add().id)}/cancel`

describe('a caller', () => {
  it('gets what its bucket holds, then 429 with what to wait for, and goes on when it has waited', async () => {
    await open()
    const first = await ask('/operations')
    expect(first.headers['ratelimit-policy']).toBe(`"read";q=${FULL.read};w=${RATE_WINDOW_SECONDS}`)
    expect(first.headers.ratelimit).toBe(`"read";r=${FULL.read - 1};t=1`)
    expect(await times(FULL.read - 1, () => ask('/operations'))).toEqual(allOf(FULL.read - 1, 200))
    const refused = await ask('/operations')
    expect(refused.statusCode).toBe(429)
    expect(refused.headers['content-type']).toMatch(/^application\/problem\+json/)
    expect(refused.headers['retry-after']).toBe('1')
    expect(refused.headers.ratelimit).toBe(`"read";r=0;t=${RATE_WINDOW_SECONDS}`)
    expect(refused.json()).toMatchObject({ code: 'too-many-requests', policy: 'read', status: 429 })
    vi.advanceTimersByTime(1_000)
    expect(await times(LIMITS.read + 1, () => ask('/operations'))).toEqual([...allOf(LIMITS.read, 200), 429])
  })

  it('is not looked up once its bucket is empty, and stands in nobody’s way', async () => {
    await open()
    await times(FULL.read, () => ask('/operations'))
    const before = looksUp()
    expect((await ask('/operations')).statusCode).toBe(429)
    expect(looksUp()).toBe(before)
    expect((await ask('/operations', { key: 'opl_two' })).statusCode).toBe(200)
  })

  it('is one caller under all its keys', async () => {
    await open()
    addKey('opl_second', 'one')
    await times(FULL.read, () => ask('/operations'))
    expect((await ask('/operations', { key: 'opl_second' })).statusCode).toBe(429)
  })

  it('is one caller however its key is spelled, and whatever it sends beside it', async () => {
    await open()
    await ask('/operations')
    const before = looksUp()
    const statuses: number[] = []
    for (let index = 0; index < FULL.read; index++) {
      const authorization = `${index % 2 === 0 ? 'Bearer' : 'bEARER'}${' '.repeat(1 + index)}opl_one`
      const answer = await ask('/operations', { key: null, headers: { authorization, 'x-principal': `name ${index}` } })
      statuses.push(answer.statusCode)
    }
    expect(statuses).toEqual([...allOf(FULL.read - 1, 200), 429])
    expect(looksUp() - before).toBe(FULL.read - 1)
  })

  it('is remembered once, however its key is spelled: nobody else is forgotten for it', {
    timeout: 180_000,
  }, async () => {
    await open()
    await ask('/operations', { remoteAddress: '203.0.113.9' })
    for (let index = 0; index < MAX_RATE_CALLERS + 1; index++) {
      vi.advanceTimersByTime(1_000)
      await ask('/operations', { key: 'opl_two', headers: { 'x-principal': `name ${index}` } })
    }
    const guess = () => ask('/operations', { key: 'opl_guess', remoteAddress: '203.0.113.9' })
    expect(await times(FULL.address + 1, guess)).toContain(429)
    expect((await ask('/operations', { remoteAddress: '203.0.113.9' })).statusCode).toBe(200)
  })

  it('has its reads, writes and work counted apart', async () => {
    await open()
    const submit = () =>
      ask('/operations', { method: 'POST', payload: { type: 't', items: [{ key: 'a', input: {} }] } })
    const claim = () =>
      ask('/worker/claims', {
        method: 'POST',
        payload: { host: 'h', pid: 1, code_version: '1', types: [{ name: 't', version: 1 }] },
      })
    expect(await times(FULL.write + 1, submit)).toEqual([...allOf(FULL.write, 202), 429])
    expect(await times(FULL.work + 1, claim)).toEqual([...allOf(FULL.work, 200), 429])
    expect((await ask('/operations')).statusCode).toBe(200)
  })

  it('may cancel and beat when it may not submit any more', async () => {
    await open()
    const submit = () =>
      ask('/operations', { method: 'POST', payload: { type: 't', items: [{ key: 'a', input: {} }] } })
    await times(FULL.write, submit)
    expect((await submit()).statusCode).toBe(429)
    const url = cancelOf()
    expect(await times(FULL.write + 1, () => ask(url, { method: 'POST' }))).toEqual([...allOf(FULL.write, 202), 429])
  })

  it('polls with an ETag for ever, also when its bucket is empty', async () => {
    await open()
    const url = `/operations/${formatId('op', edge.fake.add().id)}`
    const etag = String((await ask(url)).headers.etag)
    const poll = () => ask(url, { headers: { 'if-none-match': etag } })
    expect(await times(5 * FULL.read, poll)).toEqual(allOf(5 * FULL.read, 304))
    expect((await poll()).headers.ratelimit).toBe(`"read";r=${FULL.read - 1};t=1`)
    await times(FULL.read, () => ask('/operations'))
    expect((await ask('/operations')).statusCode).toBe(429)
    expect(await times(5 * FULL.read, poll)).toEqual(allOf(5 * FULL.read, 304))
  })

  it('that lacks the scope is charged all the same', async () => {
    await open()
    addKey(
      'opl_poor',
      'poor',
      SCOPES.filter((scope) => !scope.includes('read')),
    )
    const read = () => ask('/operations', { key: 'opl_poor' })
    // before it was ever let in: to its address
    expect(await times(FULL.address + 1, read)).toEqual([...allOf(FULL.address, 403), 429])
    vi.advanceTimersByTime(RATE_WINDOW_SECONDS * 1_000)
    expect((await ask(cancelOf(), { method: 'POST', key: 'opl_poor' })).statusCode).toBe(202)
    expect(await times(FULL.read + 1, read)).toEqual([...allOf(FULL.read, 403), 429])
  })
})

describe('an address', () => {
  const guess = (key: string | null = 'opl_guess', remoteAddress = '203.0.113.9') =>
    ask('/operations', { key, remoteAddress })

  it('is refused after too many wrong keys, before another one is looked up', async () => {
    await open()
    expect(await times(FULL.address, guess)).toEqual(allOf(FULL.address, 401))
    const before = looksUp()
    const refused = await guess()
    expect(refused.json()).toMatchObject({ code: 'too-many-requests', policy: 'address' })
    expect(refused.headers['retry-after']).toBe('1')
    expect(looksUp()).toBe(before)
    expect((await guess(null)).statusCode).toBe(429)
    expect((await guess('opl_guess', '203.0.113.10')).statusCode).toBe(401)
    vi.advanceTimersByTime(1_000)
    expect((await guess()).statusCode).toBe(401)
  })

  it('does not lock out those behind it whose keys were good', async () => {
    await open()
    expect((await ask('/operations', { remoteAddress: '203.0.113.9' })).statusCode).toBe(200)
    await times(FULL.address, guess)
    expect((await guess('opl_one')).statusCode).toBe(200)
    // of a key that was never seen nobody can tell whether it is a guess
    expect((await guess('opl_two')).statusCode).toBe(429)
  })

  it('lets keys that are new here keep work safe when it is empty, out of the reserve', async () => {
    await open()
    await times(FULL.address, guess)
    const safe = (key: string) => ask(cancelOf(), { method: 'POST', key, remoteAddress: '203.0.113.9' })
    expect((await safe('opl_two')).statusCode).toBe(202)
    // and then they are known
    expect((await guess('opl_two')).statusCode).toBe(200)
    // who guesses there runs up a debt, until the reserve is used up too
    expect(await times(FULL.address + 1, () => safe('opl_guess'))).toEqual([...allOf(FULL.address, 401), 429])
    const before = looksUp()
    expect((await safe('opl_one')).statusCode).toBe(429)
    expect(looksUp()).toBe(before)
  })

  it('has refused keys, open routes and callbacks counted apart', async () => {
    await open()
    const page = () => ask('/problems/internal', { key: null, remoteAddress: '203.0.113.9' })
    const callback = (query: string) => () =>
      ask(`/callbacks/t${query}`, {
        method: 'POST',
        key: null,
        payload: {},
        remoteAddress: '203.0.113.9',
        headers: { 'webhook-id': 'evt_1' },
      })
    const kinds = [
      { one: guess, statuses: [...allOf(FULL.address, 401), 429] },
      { one: page, statuses: [...allOf(FULL.address, 200), 429] },
      { one: callback('?tenant=x'), statuses: [...allOf(2 * FULL.address, 400), 429] },
    ]
    // a key that is new here and a signed callback pass as long as nobody of their own kind has used the bucket up
    expect(await times(2 * FULL.address, page)).toContain(429)
    expect((await guess('opl_one')).statusCode).toBe(200)
    expect((await callback('')()).statusCode).toBe(202)
    vi.advanceTimersByTime(2 * RATE_WINDOW_SECONDS * 1_000)
    for (const { one, statuses } of kinds) expect(await times(statuses.length, one)).toEqual(statuses)
  })

  it('that lets a revoked key be tried is charged for it', async () => {
    await open()
    await ask('/operations')
    edge.fake.keys.clear()
    expect(await times(FULL.address + 2, () => ask('/operations'))).toEqual([...allOf(FULL.address + 1, 401), 429])
  })

  it('is a /64 of IPv6', async () => {
    await open()
    await times(FULL.address, () => guess('opl_guess', '2001:db8:1:2::1'))
    expect((await guess('opl_guess', '2001:db8:1:2:ffff::1')).statusCode).toBe(429)
    expect((await guess('opl_guess', '2001:db8:1:3::1')).statusCode).toBe(401)
  })

  it('is what a proxy says, if the proxy is trusted, and only then', async () => {
    await open({ trustedProxies: ['10.0.0.0/8'] })
    const through = (proxy: string, client: string) =>
      ask('/operations', { key: 'opl_guess', remoteAddress: proxy, headers: { 'x-forwarded-for': client } })
    await times(FULL.address, () => through('10.0.0.1', '203.0.113.9'))
    expect((await through('10.0.0.1', '203.0.113.9')).statusCode).toBe(429)
    expect((await through('10.0.0.1', '203.0.113.10')).statusCode).toBe(401)
    await times(FULL.address, () => through('192.0.2.1', '203.0.113.11'))
    expect((await through('192.0.2.1', '203.0.113.12')).statusCode).toBe(429)
    expect((await through('10.0.0.1', `${'x'.repeat(5_000)}, unknown`)).statusCode).toBe(401)
  })

  it('is charged on open routes, but never on probes', async () => {
    await open()
    const page = () => ask('/problems/internal', { key: null })
    expect(await times(FULL.address + 1, page)).toEqual([...allOf(FULL.address, 200), 429])
    for (const url of ['/livez', '/readyz'])
      expect(await times(2 * FULL.address, () => ask(url, { key: null }))).toEqual(allOf(2 * FULL.address, 200))
  })
})

it('a provider may call back as often as it has something to say', async () => {
  await open()
  const call = () => ask('/callbacks/t', { method: 'POST', key: null, payload: {}, headers: { 'webhook-id': 'evt_1' } })
  expect(await times(5 * FULL.address, call)).toEqual(allOf(5 * FULL.address, 202))
  const refused = () => ask('/callbacks/t?tenant=x', { method: 'POST', key: null, payload: {} })
  // the reserve is theirs too
  expect(await times(2 * FULL.address + 1, refused)).toEqual([...allOf(2 * FULL.address, 400), 429])
})

it('without keys a caller is the name that it sends', async () => {
  await open({ auth: 'off' })
  const as = (name: string) => () => ask('/operations', { key: null, headers: { 'x-principal': name } })
  expect(await times(FULL.read + 1, as('ann'))).toEqual([...allOf(FULL.read, 200), 429])
  expect((await as('bob')()).statusCode).toBe(200)
})

it('nobody is limited where no limits are set', async () => {
  await open({ rateLimits: null })
  const answers = await times(3 * FULL.read, () => ask('/operations'))
  expect(answers).toEqual(allOf(3 * FULL.read, 200))
  expect((await ask('/operations')).headers).not.toHaveProperty('ratelimit')
})

it('forgets who came long ago, and no more', { timeout: 180_000 }, async () => {
  await open()
  for (let index = 0; index < FULL.address; index++)
    await ask('/problems/internal', { key: null, remoteAddress: '203.0.113.9' })
  const fill = async (count: number): Promise<void> => {
    for (let index = 0; index < count; index++)
      await ask('/problems/internal', {
        key: null,
        remoteAddress: `198.${Math.floor(index / 65_536)}.${Math.floor(index / 256) % 256}.${index % 256}`,
      })
  }
  await fill(MAX_RATE_CALLERS - 1)
  expect((await ask('/problems/internal', { key: null, remoteAddress: '203.0.113.9' })).statusCode).toBe(429)
  await fill(MAX_RATE_CALLERS)
  expect((await ask('/problems/internal', { key: null, remoteAddress: '203.0.113.9' })).statusCode).toBe(200)
})
