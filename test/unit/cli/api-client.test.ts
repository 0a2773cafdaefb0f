/** The client against a real HTTP server that answers as it is told. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type ApiClient, openApiClient, Refusal } from '../../../src/cli/api-client.ts'
import { CommandFailure, EXIT } from '../../../src/cli/exit-codes.ts'
import { operationIn } from './operations.ts'

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void

let asked: { line: string; headers: IncomingMessage['headers']; body: string }[]
let handlers: Handler[]
let url: string
let api: ApiClient
const server = createServer(async (request, response) => {
  let body = ''
  if (!request.url?.includes('/items')) for await (const chunk of request) body += String(chunk)
  asked.push({ line: `${request.method} ${request.url}`, headers: request.headers, body })
  const handler = handlers.length > 1 ? handlers.shift() : handlers[0]
  handler?.(request, response, body)
})

beforeEach(async () => {
  asked = []
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  api = openApiClient({ url: `${url}/base`, key: 'opl_secret' }, 'grâce')
})
afterEach(async () => {
  await api.close()
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Handler =>
  (_request, response) =>
    void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

const problem = (status: number, code: string, headers: Record<string, string> = {}): Handler =>
  json(
    status,
    { type: `/problems/${code}`, code, title: 'No', status, detail: 'why', instance: '/', request_id: 'r' },
    { 'content-type': 'application/problem+json', ...headers },
  )

describe('requests', () => {
  it('carry the key, who asks, the idempotency key, and go below the path of the URL', async () => {
    handlers = [json(202, operationIn('pending'), { etag: '"1"', 'idempotent-replayed': 'true' })]
    const answer = await api.submit({ type: 'grant', draft: true }, 'key-1')
    expect(answer).toMatchObject({ etag: '"1"', replayed: true, body: { status: 'pending' } })
    const [{ line, headers, body } = { line: '', headers: {} as IncomingMessage['headers'], body: '' }] = asked
    expect(line).toBe('POST /base/operations')
    expect(headers).toMatchObject({ authorization: 'Bearer opl_secret', 'idempotency-key': 'key-1' })
    expect(Buffer.from(String(headers['x-principal']), 'latin1').toString('utf8')).toBe('grâce')
    expect(JSON.parse(body)).toEqual({ type: 'grant', draft: true })
  })

  it('wait with a condition, and take 304 for no news', async () => {
    handlers = [(_request, response) => void response.writeHead(304).end()]
    expect(await api.getOperation('op_1', { seen: '"7"', seconds: 20 })).toBeNull()
    expect(asked[0]?.headers).toMatchObject({ 'if-none-match': '"7"', prefer: 'wait=20' })
  })

  it('follow pages up to what is wanted', async () => {
    handlers = [json(200, { items: [1, 2], next_cursor: 'c' }), json(200, { items: [3] })]
    expect(await api.cases({ status: 'open' }, 10)).toEqual([1, 2, 3])
    expect(asked.map(({ line }) => line)).toEqual([
      'GET /base/reconciliation?status=open&limit=10',
      'GET /base/reconciliation?status=open&limit=8&cursor=c',
    ])
  })
})

describe('a service that cannot answer now', () => {
  it('is asked again, where asking twice is the same as asking once', async () => {
    const cut: Handler = (request) => void request.socket.destroy()
    handlers = [problem(503, 'overloaded', { 'retry-after': '0' }), cut, json(200, operationIn('running'))]
    expect((await api.getOperation('op_1'))?.body.status).toBe('running')
    expect(asked).toHaveLength(3)
  })

  it('is not asked again for what might have been done, but told as not reached', async () => {
    handlers = [(request) => void request.socket.destroy()]
    const failure = await api
      .resolveCase('case_1', { resolution: 'applied', evidence_ref: 'e' })
      .catch((error: unknown) => error)
    expect(failure).toMatchObject({ exitCode: EXIT.unavailable })
    expect(asked).toHaveLength(1)
    handlers = [problem(503, 'database-unavailable')]
    await expect(api.resolveCase('case_1', { resolution: 'applied', evidence_ref: 'e' })).rejects.toBeInstanceOf(
      Refusal,
    )
    expect(asked).toHaveLength(2)
  })

  it('names the URL and what to set when nothing listens there', async () => {
    const nobody = openApiClient({ url: 'http://127.0.0.1:9', key: null }, null)
    const failure = await nobody.lookupCase('case_1').catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(CommandFailure)
    expect((failure as CommandFailure).message).toMatch(/^http:\/\/127\.0\.0\.1:9 cannot be reached \(ECONNREFUSED\)$/)
    expect((failure as CommandFailure).hints.join()).toContain('OPLEDGER_URL')
    await nobody.close()
  }, 30_000)

  it('is left alone when the command is interrupted', async () => {
    handlers = [() => {}]
    const controller = new AbortController()
    const asking = api.getOperation('op_1', null, controller.signal)
    while (asked.length === 0) await new Promise((resolve) => setImmediate(resolve))
    controller.abort(new Error('SIGINT'))
    await expect(asking).rejects.toThrow()
    expect(asked).toHaveLength(1)
  })
})

describe('a refusal', () => {
  it('is the problem, with the address of its page', async () => {
    handlers = [problem(404, 'operation-not-found')]
    const failure = await api.getOperation('op_1').catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(Refusal)
    expect((failure as Refusal).problem).toMatchObject({
      status: 404,
      type: `${url}/base/problems/operation-not-found`,
    })
  })

  it('of something else than an opledger is told as such', async () => {
    handlers = [(_request, response) => void response.writeHead(404).end('<h1>nginx\u001b[2J</h1>')]
    await expect(api.getOperation('op_1')).rejects.toThrow(/answered 404 with no problem document: <h1>nginx\\u\{1b\}/)
  })

  it('of an upload is read although its bytes are still being sent', async () => {
    handlers = [problem(422, 'invalid-row')]
    const endless = (): Readable =>
      Readable.from(
        (async function* () {
          for (;;) {
            yield Buffer.alloc(65_536, 'x')
            await new Promise((resolve) => setImmediate(resolve))
          }
        })(),
        { objectMode: false },
      )
    const upload = { contentType: 'text/csv', bytes: endless, keyColumn: 'user', idempotencyKey: 'rows-1' }
    const failure = await api.upload('op_1', upload).catch((error: unknown) => error)
    expect((failure as Refusal).problem?.code).toBe('invalid-row')
    expect(asked[0]?.line).toBe('POST /base/operations/op_1/items?key=user')
  })

  it('is not met when the rows themselves fail: that is told as it is', async () => {
    handlers = [() => {}]
    const broken = (): Readable =>
      Readable.from(
        (async function* () {
          yield Buffer.from('key\na\n')
          throw new CommandFailure('was changed', EXIT.refused)
        })(),
        { objectMode: false },
      )
    const upload = { contentType: 'text/csv', bytes: broken, keyColumn: null, idempotencyKey: 'rows-1' }
    await expect(api.upload('op_1', upload)).rejects.toThrow('was changed')
  })
})
