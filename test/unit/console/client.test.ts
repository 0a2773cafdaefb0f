import { describe, expect, it } from 'vitest'
import { ApiClient, type Caller, urlOf } from '../../../src/console/api/client.ts'
import { Problem, UNREACHABLE } from '../../../src/console/api/problem.ts'
import type { Case } from '../../../src/console/api/types.ts'
import { resolveCases } from '../../../src/console/resolve-cases.ts'

interface Sent {
  url: string
  method: string
  headers: Headers
  body: string | null
}

const KEYLESS: Caller = { key: null, name: null }

/** A client whose `fetch` answers with what `answer` makes of the request. */
const open = (answer: (sent: Sent) => Response | Promise<Response>, caller: Caller = KEYLESS) => {
  const sent: Sent[] = []
  const state = { caller, unauthenticated: 0 }
  const client = new ApiClient({
    fetch: async (input, init) => {
      const headers = new Headers(init?.headers)
      const request = {
        url: String(input),
        method: init?.method ?? 'GET',
        headers,
        body: (init?.body as string) ?? null,
      }
      sent.push(request)
      return answer(request)
    },
    caller: () => state.caller,
    onUnauthenticated: () => {
      state.unauthenticated += 1
    },
  })
  return { client, sent, state }
}

const json = (body: unknown, init: ResponseInit = {}): Response =>
  new Response(JSON.stringify(body), { ...init, headers: { 'content-type': 'application/json', ...init.headers } })

const problem = (status: number, code: string): Response =>
  json(
    { type: `/problems/${code}`, code, title: 'Refused', status, detail: `because of ${code}`, request_id: 'r1' },
    { status },
  )

const refusalOf = async (promise: Promise<unknown>): Promise<Problem> => {
  const error = await promise.then(
    () => null,
    (caught: unknown) => caught,
  )
  if (!(error instanceof Problem)) throw new Error('was not refused')
  return error
}

const ID = { path: { id: 'op_1' } }

describe('requests', () => {
  it('fill the path and the query, and leave out what is not chosen', () => {
    expect(
      urlOf('/operations/{id}/items/{key}/history', { id: 'op_1', key: 'a/b ?ü' }, { limit: 5, cursor: undefined }),
    ).toBe('/operations/op_1/items/a%2Fb%20%3F%C3%BC/history?limit=5')
    expect(urlOf('/operations', {}, { status: '', 'label.a': 'x&y' })).toBe('/operations?label.a=x%26y')
  })

  it('carry the key in a header, and never in the URL', async () => {
    const { client, sent } = open(() => json({ items: [] }), { key: 'opl_secret', name: 'mia' })
    await client.get('/operations', { query: { type: 't' } })
    expect(sent[0]?.headers.get('authorization')).toBe('Bearer opl_secret')
    expect(sent[0]?.headers.has('x-principal')).toBe(false)
    expect(sent[0]?.url).not.toContain('secret')
  })

  it('carry the name where there is no key, as bytes of UTF-8', async () => {
    const { client, sent } = open(() => json({ items: [] }), { key: null, name: '미아' })
    await client.get('/operations')
    const header = sent[0]?.headers.get('x-principal') ?? ''
    expect(Buffer.from(header, 'latin1').toString('utf8')).toBe('미아')
  })

  it('post JSON', async () => {
    const { client, sent } = open(() => json({ id: 'op_1' }, { status: 202 }))
    await client.post('/operations/{id}/cancel', { ...ID, body: { reason: 'wrong button' } })
    expect(sent[0]).toMatchObject({ url: '/operations/op_1/cancel', method: 'POST', body: '{"reason":"wrong button"}' })
    await client.post('/operations/{id}/cancel', ID)
    expect(sent[1]?.body).toBe('{}')
  })
})

describe('ETags', () => {
  it('make an unchanged resource the same object', async () => {
    let version = 1
    const { client, sent } = open(({ headers }) => {
      const etag = `"${version}"`
      if (headers.get('if-none-match') === etag) return new Response(null, { status: 304 })
      return json({ id: 'op_1', version }, { headers: { etag } })
    })
    const first = await client.get('/operations/{id}', ID)
    expect(await client.get('/operations/{id}', ID)).toBe(first)
    version = 2
    expect(await client.get('/operations/{id}', ID)).toMatchObject({ version: 2 })
    expect(sent.map(({ headers }) => headers.get('if-none-match'))).toEqual([null, '"1"', '"1"'])
  })

  it('are of one caller', async () => {
    const { client, sent } = open(() => json({ id: 'op_1' }, { headers: { etag: '"1"' } }))
    await client.get('/operations/{id}', ID)
    client.forget()
    await client.get('/operations/{id}', ID)
    expect(sent[1]?.headers.has('if-none-match')).toBe(false)
  })

  it('are remembered of the latest only', async () => {
    const { client, sent } = open(() => json({}, { headers: { etag: '"1"' } }))
    for (let n = 0; n < 40; n += 1) await client.get('/operations/{id}', { path: { id: `op_${n}` } })
    await client.get('/operations/{id}', { path: { id: 'op_39' } })
    await client.get('/operations/{id}', { path: { id: 'op_0' } })
    expect(sent.slice(-2).map(({ headers }) => headers.get('if-none-match'))).toEqual(['"1"', null])
  })
})

describe('refusals', () => {
  it('are the words of the API', async () => {
    const { client } = open(() => problem(409, 'operation-already-final'))
    const refusal = await refusalOf(client.post('/operations/{id}/cancel', ID))
    expect(refusal.body).toMatchObject({
      code: 'operation-already-final',
      detail: 'because of operation-already-final',
      request_id: 'r1',
    })
  })

  it('ask for a key', async () => {
    const { client, state } = open(() => problem(401, 'unauthenticated'))
    expect((await refusalOf(client.get('/workers'))).status).toBe(401)
    expect(state.unauthenticated).toBe(1)
  })

  it.each([
    ['a page of a proxy', () => new Response('<h1>Bad gateway</h1>', { status: 502 }), 'HTTP 502'],
    ['no JSON', () => new Response('hello'), 'The answer is not JSON'],
    ['no network', () => Promise.reject(new TypeError('fetch failed')), 'fetch failed'],
  ])('are told apart from no answer: %s', async (_name, answer, detail) => {
    const { client } = open(answer)
    const refusal = await refusalOf(client.get('/workers'))
    expect([refusal.code, refusal.body.detail]).toEqual([UNREACHABLE, detail])
  })

  it('are none when the page has left', async () => {
    const controller = new AbortController()
    const { client } = open(() => {
      controller.abort(new Error('left'))
      throw controller.signal.reason
    })
    await expect(client.get('/workers', { signal: controller.signal })).rejects.toThrow('left')
  })
})

describe('resolving cases in bulk', () => {
  const cases = Array.from({ length: 9 }, (_none, n) => ({ id: `case_${n}`, send: n + 1 }) as Case)
  const evidence = { evidenceRef: 'TICKET-1', effectRef: null, note: null, retry: false }

  it('closes each with the one evidence, and goes on when one is refused', async () => {
    const { client, sent } = open(({ url }) =>
      url.includes('case_3') ? problem(409, 'case-already-resolved') : json({}),
    )
    const outcomes = new Map<string, string | null>()
    await resolveCases(client, cases, { ...evidence, resolution: 'not_applied' }, ({ id }, refusal) =>
      outcomes.set(id, refusal?.code ?? null),
    )
    expect(outcomes.size).toBe(9)
    expect([...outcomes].filter(([, code]) => code !== null)).toEqual([['case_3', 'case-already-resolved']])
    const bodies = sent.map(({ body }) => JSON.parse(body ?? ''))
    expect(bodies.every((body) => body.evidence_ref === 'TICKET-1')).toBe(true)
    // about the send that was shown
    expect(bodies.map((body) => body.send).sort()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('sends nothing that an applied effect cannot have', async () => {
    const { client, sent } = open(() => json({}))
    await resolveCases(client, cases.slice(0, 1), { ...evidence, resolution: 'applied' }, () => {})
    expect(JSON.parse(sent[0]?.body ?? '')).toEqual({
      resolution: 'applied',
      evidence_ref: 'TICKET-1',
      effect_ref: null,
      note: null,
    })
  })

  it('asks for few at a time', async () => {
    let running = 0
    let most = 0
    const { client } = open(async () => {
      running += 1
      most = Math.max(most, running)
      await Promise.resolve()
      running -= 1
      return json({})
    })
    await resolveCases(client, cases, { ...evidence, resolution: 'applied' }, () => {})
    expect(most).toBe(4)
  })
})
