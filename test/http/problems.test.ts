import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ERROR_CODES } from '../../src/domain/errors.ts'
import { formatId } from '../../src/domain/ids.ts'
import { PROBLEMS } from '../../src/http/problems.ts'
import { untilClosed } from '../support/socket-close.ts'
import { type Edge, openEdge } from './fake-services.ts'

let edge: Edge
let operation: string
let final: string
let port: number

beforeAll(async () => {
  edge = await openEdge()
  operation = `/operations/${formatId('op', edge.fake.add().id)}`
  final = `/operations/${formatId('op', edge.fake.add('succeeded').id)}`
  await edge.app.listen({ port: 0, host: '127.0.0.1' })
  port = (edge.app.server.address() as AddressInfo).port
})
afterAll(() => edge.app.close())

const JSON_HEADERS = { 'content-type': 'application/json' }
const SUBMISSION = JSON.stringify({ type: 't', items: [{ key: 'a', input: {} }] })
const CASE = `/reconciliation/case_${'0'.repeat(32)}`

const sent = (payload: unknown, headers: Record<string, string> = {}): Asked => ({
  method: 'POST',
  url: '/operations',
  headers: { ...JSON_HEADERS, ...headers },
  payload: typeof payload === 'string' ? payload : JSON.stringify(payload),
})
const keyed = (key: string): Asked => sent(SUBMISSION, { 'idempotency-key': key })
const resolve = (body: unknown): Asked => ({ ...sent(body), url: `${CASE}/resolve` })
const labels = (count: number) => Array.from({ length: count }, (_, i) => `l${i}`)

type Asked = { method?: string; url: string | (() => string); headers?: Record<string, string>; payload?: string }

// every refusal has the right status and a problem body, whatever the response schemas say
const REFUSALS: [string, Asked, number, string][] = [
  ['an unknown path', { url: '/nowhere' }, 404, 'not-found'],
  ['an unknown path, with a body of another type', { method: 'POST', url: '/nowhere', payload: 'x' }, 404, 'not-found'],
  ['an empty id', { url: '/operations/' }, 404, 'operation-not-found'],
  ['a trailing slash', { url: '/workers/' }, 404, 'not-found'],
  ['an id of another kind', { url: '/operations/op_nope' }, 404, 'operation-not-found'],
  ['a NUL in an id', { url: '/operations/%00' }, 404, 'operation-not-found'],
  ['a very long id', { url: `/operations/op_${'a'.repeat(500)}` }, 404, 'operation-not-found'],
  ['an unknown operation', { url: `/operations/op_${'0'.repeat(32)}` }, 404, 'operation-not-found'],
  [
    'an unknown operation, cancel',
    { method: 'POST', url: `/operations/op_${'0'.repeat(32)}/cancel` },
    404,
    'operation-not-found',
  ],
  ['an unknown case', { url: CASE }, 404, 'case-not-found'],
  ['an unknown type', { url: '/operation-types/nope' }, 404, 'operation-type-not-found'],
  ['an unknown problem', { url: '/problems/nope' }, 404, 'not-found'],
  ['a missing file of the documentation', { url: '/docs/static/nope.js' }, 404, 'not-found'],
  ['DELETE /operations', { method: 'DELETE', url: '/operations' }, 405, 'method-not-allowed'],
  ['PROPFIND', { method: 'PROPFIND', url: '/operations' }, 405, 'method-not-allowed'],
  [
    'a method before its body is looked at',
    { method: 'PUT', url: '/operations', payload: 'x' },
    405,
    'method-not-allowed',
  ],
  ['a bad escape in the path', { url: '/%zz' }, 400, 'malformed-request'],
  ['a bad escape in a known path', { url: '/operations/%zz' }, 400, 'malformed-request'],
  ['escapes that are no UTF-8', { url: '/operations/%ff' }, 400, 'malformed-request'],
  ['a bad escape in the query', { url: '/operations?type=%zz' }, 400, 'malformed-request'],
  ['a NUL in the query', { url: '/operations?type=%00' }, 400, 'invalid-text'],
  ['an unknown parameter', { url: '/operations?colour=red' }, 400, 'invalid-request'],
  ['a parameter given twice', { url: '/operations?type=a&type=b' }, 400, 'invalid-request'],
  ['an unknown status', { url: '/operations?status=walking' }, 400, 'invalid-request'],
  ['limit 0', { url: '/operations?limit=0' }, 400, 'invalid-request'],
  ['limit 1.5', { url: '/operations?limit=1.5' }, 400, 'invalid-request'],
  ['limit -1', { url: '/operations?limit=-1' }, 400, 'invalid-request'],
  ['limit of nothing', { url: '/operations?limit=' }, 400, 'invalid-request'],
  ['a time that is none', { url: '/operations?created_after=yesterday' }, 400, 'invalid-request'],
  ['a 30th of February', { url: '/operations?created_after=2026-02-30T00:00:00Z' }, 400, 'invalid-request'],
  ['an offset of a day', { url: '/operations?created_after=2026-01-01T00:00:00%2B23:00' }, 400, 'invalid-request'],
  ['the year zero', { url: '/operations?created_after=0000-01-01T00:00:00Z' }, 400, 'invalid-request'],
  ['label without a name', { url: '/operations?label.=x' }, 400, 'invalid-request'],
  ['a label value over its limit', { url: `/operations?label.a=${'x'.repeat(256)}` }, 400, 'invalid-request'],
  [
    '33 labels',
    {
      url: `/operations?${labels(33)
        .map((name) => `label.${name}=1`)
        .join('&')}`,
    },
    400,
    'invalid-request',
  ],
  ['a rubbish cursor', { url: '/operations?cursor=rubbish' }, 400, 'invalid-cursor'],
  ['a cursor with other signs', { url: '/operations?cursor=%2A%2A' }, 400, 'invalid-cursor'],
  ['a URL over 8 KiB', { url: `/operations?type=${'x'.repeat(8_200)}` }, 414, 'url-too-long'],
  ['an Accept that excludes JSON', { url: '/operations', headers: { accept: 'text/html' } }, 406, 'not-acceptable'],
  ['q=0', { url: '/operations', headers: { accept: 'application/json;q=0, text/html' } }, 406, 'not-acceptable'],
  ['CSV where there is none', { url: () => operation, headers: { accept: 'text/csv' } }, 406, 'not-acceptable'],
  ['text/plain', sent('x', { 'content-type': 'text/plain' }), 415, 'unsupported-media-type'],
  ['a form', sent('a=b', { 'content-type': 'application/x-www-form-urlencoded' }), 415, 'unsupported-media-type'],
  ['no content type', { method: 'POST', url: '/operations', payload: '{}' }, 415, 'unsupported-media-type'],
  ['a broken content type', sent('{}', { 'content-type': 'json' }), 415, 'unsupported-media-type'],
  ['a compressed body', sent('{}', { 'content-encoding': 'gzip' }), 415, 'unsupported-media-type'],
  ['a body over 10 MiB', sent(`"${'x'.repeat(10 * 1024 * 1024)}"`), 413, 'body-too-large'],
  ['half a body', sent('{"type":'), 400, 'malformed-json'],
  [
    'no body where one is needed',
    { method: 'POST', url: '/operations', headers: JSON_HEADERS },
    400,
    'invalid-request',
  ],
  ['a body of null where one is needed', sent('null'), 400, 'invalid-request'],
  ['a list for a body', sent('[]'), 400, 'invalid-request'],
  ['an unknown member', sent('{"type":"t","colour":1}'), 400, 'invalid-request'],
  ['an item without input', sent('{"type":"t","items":[{"key":"a"}]}'), 400, 'invalid-request'],
  [
    'an item key of 256 bytes',
    sent({ type: 't', items: [{ key: 'ä'.repeat(128), input: 1 }] }),
    400,
    'invalid-request',
  ],
  ['an empty item key', sent('{"type":"t","items":[{"key":"","input":1}]}'), 400, 'invalid-request'],
  [
    '33 labels in a body',
    sent({ type: 't', labels: Object.fromEntries(labels(33).map((name) => [name, 'x'])) }),
    400,
    'invalid-request',
  ],
  ['an Idempotency-Key of 3,000 bytes (case 37)', keyed('k'.repeat(3_000)), 400, 'invalid-request'],
  ['an Idempotency-Key with a space', keyed('a b'), 400, 'invalid-request'],
  ['an Idempotency-Key with half its quotes', keyed('"a'), 400, 'invalid-request'],
  ['an empty Idempotency-Key', keyed('""'), 400, 'invalid-request'],
  ['an empty principal', { url: '/operations', headers: { 'x-principal': ' ' } }, 400, 'invalid-request'],
  [
    'a principal of 256 bytes',
    { url: '/operations', headers: { 'x-principal': 'p'.repeat(256) } },
    400,
    'invalid-request',
  ],
  ['a cancel after the end', { method: 'POST', url: () => `${final}/cancel` }, 409, 'operation-already-final'],
  [
    'a stale If-Match',
    { method: 'POST', url: () => `${operation}/cancel`, headers: { 'if-match': '"6"' } },
    412,
    'version-conflict',
  ],
  [
    'a weak If-Match',
    { method: 'POST', url: () => `${operation}/cancel`, headers: { 'if-match': 'W/"7"' } },
    412,
    'version-conflict',
  ],
  [
    'an If-Match that is no version',
    { method: 'POST', url: () => `${operation}/cancel`, headers: { 'if-match': '"abc"' } },
    412,
    'version-conflict',
  ],
  ['a resolve without evidence', resolve({ resolution: 'applied' }), 400, 'invalid-request'],
  [
    'a retry of what was applied',
    resolve({ resolution: 'applied', evidence_ref: 'e', retry: true }),
    400,
    'invalid-request',
  ],
  ['a second resolve', resolve({ resolution: 'applied', evidence_ref: 'e' }), 409, 'case-already-resolved'],
  ['a lookup that there is not', { method: 'POST', url: `${CASE}/lookup` }, 409, 'lookup-not-available'],
  [
    'a scope of unknown states',
    {
      method: 'POST',
      url: () => `${operation}/replay-preflight`,
      headers: JSON_HEADERS,
      payload: '{"scope":{"states":["applied"]}}',
    },
    400,
    'invalid-request',
  ],
]

describe('every refusal is a problem', () => {
  it.each(REFUSALS)('%s (case 81)', async (_name, asked, status, code) => {
    const url = typeof asked.url === 'string' ? asked.url : asked.url()
    const answer = await edge.app.inject({
      method: (asked.method ?? 'GET') as 'GET',
      url,
      headers: { 'x-request-id': 'req-1', ...asked.headers },
      ...(asked.payload === undefined ? {} : { payload: asked.payload }),
    })
    expect([answer.statusCode, answer.json().code]).toEqual([status, code])
    expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
    expect(answer.headers['x-request-id']).toBe('req-1')
    expect(answer.json()).toMatchObject({
      type: `/problems/${code}`,
      title: expect.any(String),
      status,
      detail: expect.any(String),
      instance: url.split('?')[0],
      request_id: 'req-1',
    })
  })

  it('points to what is wrong', async () => {
    const answer = await edge.app.inject({
      method: 'POST',
      url: '/operations',
      payload: {
        type: 5,
        items: [
          { key: 'a', input: {} },
          { key: '', input: {} },
        ],
        'a/b': 1,
      },
    })
    const pointers = answer.json().errors.map((fault: { pointer: string }) => fault.pointer)
    expect(pointers).toEqual(expect.arrayContaining(['/type', '/items/1/key', '/a~1b']))
  })

  it('lists a bounded number of faults', async () => {
    const items = Array.from({ length: 1_000 }, () => ({ key: '', input: 1 }))
    const answer = await edge.app.inject({ method: 'POST', url: '/operations', payload: { type: 't', items } })
    expect(answer.statusCode).toBe(400)
    expect(answer.json().errors).toHaveLength(100)
  })

  it('leaks nothing of an unexpected error', async () => {
    const broken = await openEdge()
    broken.fake.find = () => {
      throw new Error('password=hunter2 at db.internal')
    }
    const answer = await broken.app.inject({ method: 'POST', url: `/operations/op_${'0'.repeat(32)}/cancel` })
    expect([answer.statusCode, answer.json().code]).toEqual([500, 'internal'])
    expect(answer.body).not.toMatch(/hunter2|db\.internal|stack/)
    await broken.app.close()
  })

  it('logs the cause of an unexpected error, but no parameters of a statement', async () => {
    const lines: string[] = []
    const logged = await openEdge({}, pino({ level: 'error' }, { write: (line: string) => void lines.push(line) }))
    logged.fake.find = () => {
      const cause = new Error('relation does not exist')
      throw Object.assign(new Error('Failed query … params: hunter2', { cause }), { params: ['hunter2'] })
    }
    const url = `/operations/op_${'0'.repeat(32)}/cancel`
    await logged.app.inject({ method: 'POST', url, headers: { 'x-request-id': 'req-9' } })
    expect(lines.join('')).toContain('relation does not exist')
    expect(lines.join('')).toContain('req-9')
    expect(lines.join('')).not.toContain('hunter2')
    await logged.app.close()
  })

  it('carries Retry-After where trying again helps', async () => {
    edge.fake.isDatabaseUp = false
    const answer = await edge.app.inject('/readyz')
    edge.fake.isDatabaseUp = true
    expect([answer.statusCode, answer.json().code, answer.headers['retry-after']]).toEqual([503, 'not-ready', '2'])
  })

  it('replaces a request id that cannot be repeated safely', async () => {
    for (const id of ['a b', 'x'.repeat(129), 'ü']) {
      const answer = await edge.app.inject({ url: '/nowhere', headers: { 'x-request-id': id } })
      expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/)
      expect(answer.json().request_id).toBe(answer.headers['x-request-id'])
    }
  })

  it('is absolute with a PUBLIC_URL', async () => {
    const named = await openEdge({ publicUrl: 'https://ops.test' })
    expect((await named.app.inject('/nowhere')).json().type).toBe('https://ops.test/problems/not-found')
    await named.app.close()
  })
})

describe('405', () => {
  it('names the methods of every path', async () => {
    const paths = Object.entries(edge.app.swagger().paths ?? {}) as [string, Record<string, unknown>][]
    expect(paths.length).toBeGreaterThan(20)
    for (const [pattern, operations] of paths) {
      const url = pattern.replace(/\{\w+\}/g, 'x')
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const) {
        if (method.toLowerCase() in operations) continue
        const answer = await edge.app.inject({ method, url })
        expect([method, url, answer.statusCode, answer.json().code]).toEqual([method, url, 405, 'method-not-allowed'])
        const allowed = Object.keys(operations).map((each) => each.toUpperCase())
        if (allowed.includes('GET')) allowed.push('HEAD')
        expect(String(answer.headers.allow).split(', ').sort()).toEqual(allowed.sort())
      }
    }
  })
})

describe('problem pages', () => {
  it.each(ERROR_CODES.map((code) => [code]))('%s explains itself', async (code) => {
    const page = await edge.app.inject({ url: `/problems/${code}`, headers: { accept: 'text/html,*/*;q=0.8' } })
    expect(page.statusCode).toBe(200)
    expect(page.headers['content-type']).toMatch(/^text\/html/)
    expect(page.body).toContain(PROBLEMS[code].action)
    const json = await edge.app.inject({ url: `/problems/${code}`, headers: { accept: 'application/json' } })
    expect(json.json()).toMatchObject({ code, status: PROBLEMS[code].status })
  })
})

/** What comes back on a raw connection. */
const exchange = async (bytes: string): Promise<string> => {
  const socket = connect(port, '127.0.0.1')
  let text = ''
  socket.on('data', (chunk) => {
    text += String(chunk)
  })
  socket.write(bytes)
  await untilClosed(socket)
  return text
}

describe('below HTTP requests', () => {
  it.each([
    ['rubbish', 'rubbish\r\n\r\n', 400, 'malformed-request'],
    ['a header without a name', 'GET / HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n', 400, 'malformed-request'],
    [
      'both ways to say a length',
      'POST /operations HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
      'malformed-request',
    ],
    [
      'headers over 16 KiB',
      `GET / HTTP/1.1\r\nhost: x\r\nbig: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers-too-large',
    ],
    ['no host', 'GET /livez HTTP/1.1\r\nconnection: close\r\n\r\n', 400, 'malformed-request'],
    ['an expectation', 'GET /livez HTTP/1.1\r\nhost: x\r\nexpect: tea\r\n\r\n', 417, 'expectation-failed'],
  ])('%s', async (_name, bytes, status, code) => {
    const answer = await exchange(bytes)
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    expect(answer.toLowerCase()).toContain('content-type: application/problem+json')
    expect(JSON.parse(answer.slice(answer.indexOf('{'), answer.lastIndexOf('}') + 1))).toMatchObject({ code, status })
  })

  it('says 408 to a request that does not arrive', async () => {
    const slow = await openEdge()
    slow.app.server.headersTimeout = 50
    slow.app.server.requestTimeout = 50
    const handled = new Promise<string>((resolve) => {
      slow.app.server.once('clientError', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''))
    })
    await slow.app.listen({ port: 0, host: '127.0.0.1' })
    const socket = connect((slow.app.server.address() as AddressInfo).port, '127.0.0.1')
    let text = ''
    socket.on('data', (chunk) => {
      text += String(chunk)
    })
    // Node looks for expired requests at intervals only, so the event is raised by hand, on the real socket.
    slow.app.server.once('connection', (served) => {
      const error = Object.assign(new Error('timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
      slow.app.server.emit('clientError', error, served)
    })
    await untilClosed(socket)
    expect(await handled).toBe('ERR_HTTP_REQUEST_TIMEOUT')
    expect(text).toMatch(/^HTTP\/1.1 408 /)
    expect(text).toContain('"code":"request-timeout"')
    await slow.app.close()
  })

  it('answers HEAD without a body, errors too', async () => {
    for (const [path, status] of [
      [operation, 200],
      ['/nowhere', 404],
      ['/operations?limit=0', 400],
    ] as const) {
      const request = httpRequest({ port, host: '127.0.0.1', method: 'HEAD', path }).end()
      const [answer] = await once(request, 'response')
      answer.resume()
      expect(answer.statusCode).toBe(status)
    }
  })
})
