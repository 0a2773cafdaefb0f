import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parse } from 'csv-parse/sync'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { csvCell } from '../../src/domain/csv.ts'
import { formatId } from '../../src/domain/ids.ts'
import type { ItemView } from '../../src/services/views.ts'
import { DB_TIME, type Edge, openEdge } from './fake-services.ts'

let edge: Edge
let url: string
beforeEach(async () => {
  edge = await openEdge()
  url = `/operations/${formatId('op', edge.fake.add().id)}`
})
afterEach(() => edge.app.close())

const item = (ord: number, changes: Partial<ItemView> = {}): ItemView => ({
  ord,
  key: `k${ord}`,
  state: 'applied',
  failureClass: null,
  reasonCode: null,
  attempt: 1,
  retryAt: null,
  step: null,
  effectKey: `e${ord}`,
  effectRef: null,
  evidenceRef: null,
  observedAt: DB_TIME,
  ...changes,
})

describe('csvCell', () => {
  it.each([
    ['plain', 'plain'],
    ['a,b', '"a,b"'],
    ['say "hi"', '"say ""hi"""'],
    ['two\nlines', '"two\nlines"'],
    ['=1+1', "'=1+1"],
    ['+1', "'+1"],
    ['-1', "'-1"],
    ['@x', "'@x"],
    ['\tx', "'\tx"],
    ['\rx', '"\'\rx"'],
    ['=a,"b"', '"\'=a,""b"""'],
    ['a=b', 'a=b'],
  ])('%j → %j', (text, cell) => expect(csvCell(text)).toBe(cell))

  it('leaves numbers and nothing alone', () => expect([csvCell(-1), csvCell(null)]).toEqual(['-1', '']))
})

describe('exports', () => {
  it('gives all items as NDJSON, whatever the limit', async () => {
    edge.fake.items = Array.from({ length: 2_500 }, (_, ord) => item(ord))
    const answer = await edge.app.inject({ url: `${url}/items`, headers: { accept: 'application/x-ndjson' } })
    const rows = answer.body
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(answer.headers['content-type']).toBe('application/x-ndjson; charset=utf-8')
    expect(rows.map(({ ord }) => ord)).toEqual(edge.fake.items.map(({ ord }) => ord))
    expect(rows[0]).toMatchObject({ key: 'k0', observed_at: '2026-11-29T14:20:18.123456Z' })
  })

  it('gives all items as CSV with a header row', async () => {
    edge.fake.items = [item(0), item(1, { key: '=HYPERLINK("x")', state: 'failed', failureClass: 'conflict' })]
    const answer = await edge.app.inject({ url: `${url}/items`, headers: { accept: 'text/csv' } })
    const [head, first, second] = answer.body.split('\r\n')
    expect(head).toBe(
      'key,ord,state,failure_class,reason_code,attempt,retry_at,effect_key,effect_ref,evidence_ref,observed_at,step',
    )
    expect(first).toBe('k0,0,applied,,,1,,e0,,,2026-11-29T14:20:18.123456Z,')
    expect(second).toMatch(/^"'=HYPERLINK\(""x""\)",1,failed,conflict,/)
  })

  it.each(['=', '+', '-', '@', '\t', '\r', '\n'])(
    'gives no cell that begins with %j, whatever an item holds',
    async (sign) => {
      const text = `${sign}cmd|'/c calc'!A0`
      edge.fake.items = [
        item(0, { key: text, reasonCode: text, effectKey: text, effectRef: text, evidenceRef: text, step: text }),
      ]
      const answer = await edge.app.inject({ url: `${url}/items`, headers: { accept: 'text/csv' } })
      const [, cells = []] = parse(answer.body) as string[][]
      expect(cells.filter((cell) => cell === `'${text}`)).toHaveLength(6)
      expect(cells.filter((cell) => cell.startsWith(sign))).toEqual([])
    },
  )

  it('gives an empty list its header row', async () => {
    const answer = await edge.app.inject({ url: `${url}/ledger`, headers: { accept: 'text/csv' } })
    expect(answer.body.split('\r\n')).toHaveLength(2)
  })

  it.each([
    [undefined, 'application/json'],
    ['*/*', 'application/json'],
    ['text/*', 'text/csv'],
    ['text/csv;q=0.5, application/json;q=0.9', 'application/json'],
    ['application/json;q=0.5, text/csv', 'text/csv'],
    ['text/html, application/x-ndjson', 'application/x-ndjson'],
    ['rubbish, text/csv', 'text/csv'],
  ])('answers Accept: %s with %s', async (accept, mediaType) => {
    const answer = await edge.app.inject({
      url: `${url}/items`,
      ...(accept === undefined ? {} : { headers: { accept } }),
    })
    expect(answer.headers['content-type']).toContain(mediaType)
  })

  it('reads no further than the client takes', async () => {
    let pagesRead = 0
    const rows = Array.from({ length: 100_000 }, (_, ord) => item(ord, { effectRef: 'x'.repeat(400) }))
    edge.fake.items = new Proxy(rows, {
      get: (target, member, receiver) => {
        if (member !== 'slice') return Reflect.get(target, member, receiver)
        pagesRead++
        return target.slice.bind(target)
      },
    })
    await edge.app.listen({ port: 0, host: '127.0.0.1' })
    const { port } = edge.app.server.address() as AddressInfo
    const request = get({ port, path: `${url}/items`, headers: { accept: 'application/x-ndjson' } })
    const [answer] = (await once(request, 'response')) as [IncomingMessage]
    answer.pause()
    // The sockets' buffers fill up, and then nothing more is read.
    for (let calm = 0, before = -1; calm < 10; calm = pagesRead === before ? calm + 1 : 0) {
      before = pagesRead
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    expect(pagesRead).toBeLessThan(80)
    let bytes = 0
    answer.on('data', (chunk: Buffer) => {
      bytes += chunk.length
    })
    answer.resume()
    await once(answer, 'end')
    expect(pagesRead).toBe(100)
    expect(bytes).toBeGreaterThan(40_000_000)
  })

  it('cuts the connection when the source fails in the middle', async () => {
    edge.fake.items = new Proxy(
      Array.from({ length: 5_000 }, (_, ord) => item(ord)),
      {
        get: (target, member, receiver) => {
          if (member === 'slice')
            return (from: number, to: number) => {
              if (from >= 2_000) throw new Error('the database is gone')
              return target.slice(from, to)
            }
          return Reflect.get(target, member, receiver)
        },
      },
    )
    await edge.app.listen({ port: 0, host: '127.0.0.1' })
    const { port } = edge.app.server.address() as AddressInfo
    const request = get({ port, path: `${url}/items`, headers: { accept: 'application/x-ndjson' } })
    const [answer] = (await once(request, 'response')) as [IncomingMessage]
    answer.resume()
    const [error] = await once(answer, 'error')
    expect((error as NodeJS.ErrnoException).code).toBe('ECONNRESET')
    expect((await edge.app.inject('/livez')).statusCode).toBe(200)
  })
})

describe('event stream', () => {
  const event = (version: number, kind: string, status: string) => ({
    version,
    kind,
    status,
    at: DB_TIME,
    actor: 'dev',
    reason: null,
  })

  it('tells what was missed, then what comes, and ends after the final state, past buffering proxies (case 87)', async () => {
    const [operation] = edge.fake.operations
    if (operation === undefined) throw new Error('no operation')
    edge.fake.events = [event(1, 'submitted', 'pending'), event(2, 'started', 'running')]
    const answering = edge.app.inject({
      url: `${url}/events`,
      headers: { accept: 'text/event-stream', 'last-event-id': '1' },
    })
    while (edge.fake.waiting === 0) await new Promise((resolve) => setImmediate(resolve))
    edge.fake.events.push(event(3, 'settled', 'succeeded'))
    edge.fake.change(operation, 'succeeded')
    const answer = await answering
    expect(answer.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'x-accel-buffering': 'no',
      'cache-control': 'no-store, no-transform',
    })
    const ids = [...answer.body.matchAll(/^id: (\d+)$/gm)].map((match) => match[1])
    expect(ids).toEqual(['2', '3'])
    expect(answer.body).toMatch(/^retry: [23]\d{3}\n\n/)
    const data = JSON.parse(/data: (.*settled.*)/.exec(answer.body)?.[1] ?? '')
    expect(data).toMatchObject({ version: 3, kind: 'settled', status: 'succeeded', at: '2026-11-29T14:20:18.123456Z' })
  })

  it('is a page without the header, and 404 without the operation', async () => {
    edge.fake.events = [event(1, 'submitted', 'pending')]
    expect((await edge.app.inject(`${url}/events`)).json().items).toHaveLength(1)
    const missing = `/operations/op_${'0'.repeat(32)}/events`
    expect((await edge.app.inject({ url: missing, headers: { accept: 'text/event-stream' } })).statusCode).toBe(404)
  })
})
