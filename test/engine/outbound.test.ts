import { rm } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { Json, OperationType, SendCall } from '../../src/domain/operation-type.ts'
import { buildDeclarativeType } from '../../src/operation-types/declarative.ts'
import { createOutbound, type Outbound } from '../../src/operation-types/outbound.ts'
import type { OutboundRequest } from '../../src/operation-types/request-template.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'

let effects: EffectServer
let outbound: Outbound
beforeAll(async () => {
  effects = await startEffectServer()
  outbound = createOutbound()
})
afterAll(async () => {
  await outbound.close()
  await effects.close()
})

const grantType = (
  url: string,
  change: { timeoutMs?: number; rules?: Json[]; headers?: Record<string, string>; client?: Outbound } = {},
) =>
  buildDeclarativeType(
    {
      name: 'grant',
      version: 1,
      effect: 'external',
      effect_key: '{item.key}',
      http: {
        request: {
          url: '{env.URL}/grants',
          headers: { 'Idempotency-Key': '{effect_key}', ...change.headers },
          body: { mode: '{input.mode}', delay_ms: '{input.delay_ms}', user: '{item.key}' },
          timeout_ms: change.timeoutMs ?? 2_000,
        },
        outcome: change.rules ?? [
          { status: [200, 201, 204], state: 'applied', ref: '/id' },
          { status: [208], state: 'skipped', reason_code: 'ALREADY_AT_TARGET' },
          { status: [400, 422], state: 'failed', class: 'validation_rejected', reason_code: '/code' },
          { status: [409], state: 'failed', class: 'conflict' },
          { status: [401, 403], state: 'failed', class: 'policy_denied' },
          { status: [429, 503], state: 'failed', class: 'transient' },
        ],
        lookup: {
          url: '{env.URL}/grants/{effect_key}',
          timeout_ms: 2_000,
          outcome: [
            { status: [200], state: 'applied', ref: '/id' },
            { status: [404], state: 'absent' },
          ],
        },
      },
    },
    { env: { URL: url }, secrets: () => undefined, outbound: change.client ?? outbound },
  )

const externalOf = (type: OperationType) => {
  if (type.executor.kind !== 'external') throw new Error('not external')
  return type.executor
}
const callOf = (key: string, input: Json = {}): SendCall => ({
  effectKey: key,
  step: '',
  itemKey: key,
  input,
  operationId: 'op_1',
  type: 'grant',
  attempt: 1,
  traceparent: null,
  mayStart: () => true,
})
const send = (type: OperationType, key: string, input: Json = {}) => externalOf(type).send(callOf(key, input))
const find = (type: OperationType, key: string) => externalOf(type).lookup?.find(callOf(key))

/** A raw TCP server: what HTTP libraries would not do. Gives its URL to `run`, and ends every socket afterwards. */
const withSockets = async (
  onSocket: (socket: net.Socket, index: number) => void,
  run: (url: string, sockets: net.Socket[]) => Promise<void>,
): Promise<void> => {
  const sockets: net.Socket[] = []
  const server = net.createServer((socket) => {
    socket.on('error', () => {})
    sockets.push(socket)
    onSocket(socket, sockets.length - 1)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    await run(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`, sockets)
  } finally {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  }
}

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}'

describe('a send', () => {
  it.each<[mode: string, applied: number, outcome: object, downstreamError: boolean]>([
    ['ok', 1, { state: 'applied', effectRef: 'grant-ok' }, false],
    ['already', 0, { state: 'skipped', reasonCode: 'ALREADY_AT_TARGET' }, false],
    ['reject', 0, { state: 'failed', failureClass: 'validation_rejected', reasonCode: 'NO_SUCH_USER' }, false],
    [
      'conflict',
      0,
      { state: 'failed', failureClass: 'conflict', reasonCode: 'HTTP_409', message: 'HTTP 409: {}' },
      false,
    ],
    ['forbidden', 0, { state: 'failed', failureClass: 'policy_denied', reasonCode: 'HTTP_403' }, false],
    ['busy', 0, { state: 'failed', failureClass: 'transient', reasonCode: 'HTTP_503' }, true],
    ['error_before_apply', 0, { state: 'uncertain', reasonCode: 'SERVER_ERROR' }, true],
    ['error_after_apply', 1, { state: 'uncertain', reasonCode: 'SERVER_ERROR' }, true],
    [
      'odd',
      1,
      { state: 'uncertain', reasonCode: 'UNCLASSIFIED_ANSWER', message: 'HTTP 299: {"id":"grant-odd"}' },
      false,
    ],
    ['redirect', 0, { state: 'uncertain', reasonCode: 'UNCLASSIFIED_ANSWER', message: 'HTTP 307' }, false],
    ['reset', 0, { state: 'uncertain', reasonCode: 'CONNECTION_LOST' }, true],
    ['apply_then_reset', 1, { state: 'uncertain', reasonCode: 'CONNECTION_LOST' }, true],
    ['truncate', 1, { state: 'uncertain', reasonCode: 'CONNECTION_LOST' }, true],
  ])('that meets %s is seen once and classified', async (mode, applied, outcome, downstreamError) => {
    const report = await send(grantType(effects.url), mode, { mode })
    expect(report).toMatchObject({ outcome, downstreamError })
    expect(effects.entry(mode)).toMatchObject({ requests: 1, applied })
  })

  it.each(['never_answer', 'apply_then_hang', 'trickle'])('case 45: %s ends at our own deadline', async (mode) => {
    const report = await send(grantType(effects.url, { timeoutMs: 150 }), mode, { mode })
    expect(report).toMatchObject({ outcome: { state: 'uncertain', reasonCode: 'TIMEOUT' }, downstreamError: true })
    expect(effects.entry(mode).requests).toBe(1)
  })

  it('case 41: leaves an uncertain first attempt to be explained, whatever the second is told', async () => {
    const type = grantType(effects.url, { timeoutMs: 150 })
    const mode = 'hang_then_duplicate'
    expect((await send(type, mode, { mode })).outcome).toMatchObject({ state: 'uncertain', reasonCode: 'TIMEOUT' })
    expect(await find(type, mode)).toMatchObject({ state: 'applied' })
    expect((await send(type, mode, { mode })).outcome).toMatchObject({ state: 'failed', failureClass: 'conflict' })
  })

  it('case 65: cleans what a provider says', async () => {
    const report = await send(grantType(effects.url), 'dirty', { mode: 'error_before_apply' })
    // Inside JSON text the two stand as escapes, which are plain characters.
    expect(report.outcome).toMatchObject({ message: 'HTTP 500: {"message":"bad \\u0000 text \\ud800"}' })
    const body = 'x\0y'.repeat(300)
    const answer = `HTTP/1.1 422 No\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    await withSockets(
      (socket) => socket.once('data', () => socket.write(answer)),
      async (url) => {
        const { outcome } = await send(grantType(url), 'k')
        if (outcome.state !== 'failed') throw new Error(`is ${outcome.state}`)
        expect(outcome.reasonCode).toBe('HTTP_422')
        expect(outcome.message).toHaveLength(500)
        expect(outcome.message).toContain('x\ufffdy')
      },
    )
  })

  it.each<[string, string, object]>([
    ['a reference by pointer', '{"id":{"ref":"r\\ud800\\u0000"}}', { state: 'applied', effectRef: 'r\ufffd\ufffd' }],
    ['a number', '{"id":{"ref":12}}', { state: 'applied', effectRef: '12' }],
    ['a rounded number', '{"id":{"ref":12345678901234567890}}', { state: 'applied' }],
    ['no member', '{"id":{}}', { state: 'applied' }],
    ['an inherited member', '{"id":"text"}', { state: 'applied' }],
    ['no JSON', 'created', { state: 'applied' }],
    ['a reference beyond all bounds', `{"id":{"ref":"${'x'.repeat(501)}"}}`, { state: 'applied' }],
  ])('reads %s from the body', async (_name, body, outcome) => {
    const answer = `HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
    await withSockets(
      (socket) => socket.once('data', () => socket.write(answer)),
      async (url) => {
        const type = grantType(url, { rules: [{ status: [200], state: 'applied', ref: '/id/ref' }] })
        expect((await send(type, 'k')).outcome).toEqual(outcome)
      },
    )
  })

  it('takes a literal reference as it stands', async () => {
    const type = grantType(effects.url, { rules: [{ status: [201], state: 'applied', ref: 'done' }] })
    expect((await send(type, 'literal')).outcome).toEqual({ state: 'applied', effectRef: 'done' })
  })

  it('classifies by status when the body is larger than is read', async () => {
    const head = 'HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n'
    await withSockets(
      (socket) => socket.once('data', () => socket.write(head + ' '.repeat(80 * 1024))),
      async (url) => expect((await send(grantType(url), 'k')).outcome).toEqual({ state: 'applied' }),
    )
  })

  it('sends what the type says: values, dropped members, safe headers, the trace', async () => {
    const requests: string[] = []
    await withSockets(
      (socket) =>
        socket.on('data', (data) => {
          requests.push(data.toString('latin1'))
          socket.write(OK)
        }),
      async (url) => {
        const type = grantType(`${url}/base/`, { headers: { 'X-Mode': '{input.mode}', 'X-None': '{input.none}' } })
        const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
        await externalOf(type).send({ ...callOf('é\r\nX-Evil: 1', { mode: 'ok', delay_ms: 0 }), traceparent })
        await find(type, 'a/b?ü')
      },
    )
    expect(requests[0]).toMatch(/^POST \/base\/grants HTTP\/1\.1\r\n/)
    expect(requests[0]).toContain('\r\nidempotency-key: %C3%A9%0D%0AX-Evil: 1\r\n')
    expect(requests[0]).toContain('\r\nx-mode: ok\r\n')
    expect(requests[0]).not.toContain('x-none')
    expect(requests[0]).toContain('\r\ncontent-type: application/json\r\n')
    expect(requests[0]).toContain('\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n')
    expect(requests[0]).toContain('{"mode":"ok","delay_ms":0,"user":"')
    expect(requests[1]).toMatch(/^GET \/base\/grants\/a%2Fb%3F%C3%BC HTTP/)
  })
})

describe('a connection', () => {
  const unused = async (): Promise<string> => {
    let free = ''
    await withSockets(
      () => {},
      async (url) => {
        free = url
      },
    )
    return free
  }

  it('that is refused sent nothing: transient', async () => {
    expect(await send(grantType(await unused()), 'k')).toMatchObject({
      outcome: { state: 'failed', failureClass: 'transient', reasonCode: 'CONNECTION_REFUSED' },
      downstreamError: true,
    })
  })

  it('to a name that does not resolve sent nothing: transient', async () => {
    const { outcome } = await send(grantType('http://no-such-host.invalid'), 'k')
    expect(outcome).toMatchObject({ state: 'failed', failureClass: 'transient' })
    expect(outcome).toHaveProperty('reasonCode', expect.stringMatching(/^(?:DNS_FAILURE|CONNECT_TIMEOUT)$/))
  })

  it('whose TLS handshake fails sent nothing: transient', async () => {
    await withSockets(
      (socket) => socket.once('data', () => socket.end('HTTP/1.1 400 no TLS here\r\n\r\n')),
      async (url) => {
        const { outcome } = await send(grantType(url.replace('http:', 'https:'), { timeoutMs: 500 }), 'k')
        expect(outcome).toMatchObject({ state: 'failed', failureClass: 'transient', reasonCode: 'TLS_FAILURE' })
      },
    )
  })

  it('whose TLS handshake hangs sent nothing at the deadline, and nothing afterwards', async () => {
    const bytes: number[] = []
    await withSockets(
      (socket) => socket.on('data', (data) => bytes.push(data[0] ?? -1)),
      async (url) => {
        const { outcome } = await send(grantType(url.replace('http:', 'https:'), { timeoutMs: 100 }), 'k')
        expect(outcome).toMatchObject({ state: 'failed', failureClass: 'transient', reasonCode: 'CONNECT_TIMEOUT' })
      },
    )
    // 22 is a TLS handshake record; no application data (23) was ever written.
    expect(bytes.every((byte) => byte === 22)).toBe(true)
  })

  it('that answers no HTTP is unreadable: uncertain', async () => {
    await withSockets(
      (socket) => socket.once('data', () => socket.write('SMTP ready\r\n\r\n')),
      async (url) =>
        expect(await send(grantType(url), 'k')).toMatchObject({
          outcome: { state: 'uncertain', reasonCode: 'UNREADABLE_ANSWER' },
          downstreamError: true,
        }),
    )
  })

  it('that only says 103 and then breaks is lost: uncertain', async () => {
    await withSockets(
      (socket) => socket.once('data', () => socket.end('HTTP/1.1 103 Early Hints\r\n\r\n')),
      async (url) =>
        expect((await send(grantType(url), 'k')).outcome).toMatchObject({
          state: 'uncertain',
          reasonCode: 'CONNECTION_LOST',
        }),
    )
  })

  it('case 43: that was idle and is closed after the next request arrived: uncertain, and not repeated', async () => {
    let requests = 0
    await withSockets(
      (socket) =>
        socket.on('data', () => {
          requests += 1
          if (requests === 1) socket.write(OK)
          else socket.resetAndDestroy()
        }),
      async (url, sockets) => {
        const type = grantType(url)
        expect((await send(type, 'first')).outcome.state).toBe('applied')
        // The socket is free for the next call once the event loop came around.
        await new Promise((resolve) => setImmediate(resolve))
        expect((await send(type, 'second')).outcome).toMatchObject({
          state: 'uncertain',
          reasonCode: 'CONNECTION_LOST',
        })
        expect(sockets).toHaveLength(1)
      },
    )
    expect(requests).toBe(2)
  })

  it('case 43: that was closed while idle is not written to: the next call takes a new one', async () => {
    let requests = 0
    await withSockets(
      (socket) =>
        socket.on('data', () => {
          requests += 1
          socket.end(OK)
        }),
      async (url, sockets) => {
        const type = grantType(url)
        for (const key of ['a', 'b', 'c']) {
          const { outcome } = await send(type, key)
          // The close may cross the next request on the wire; then it is uncertain, but never failed.
          expect(['applied', 'uncertain']).toContain(outcome.state)
          await new Promise<void>((resolve) => {
            const last = sockets.at(-1)
            if (last === undefined || last.destroyed) resolve()
            else last.once('close', () => resolve())
          })
        }
      },
    )
    expect(requests).toBe(3)
  })

  it('case 43: with keep-alives as short as the pauses, counts what the provider counts', async () => {
    const impatient = await startEffectServer({ keepAliveTimeoutMs: 20 })
    const type = grantType(impatient.url)
    const outcomes = await Promise.all(
      Array.from({ length: 8 }, async (_, lane) => {
        const states: [string, string][] = []
        for (let turn = 0; turn < 25; turn += 1) {
          const key = `k-${lane}-${turn}`
          states.push([key, (await send(type, key)).outcome.state])
          await new Promise((resolve) => setTimeout(resolve, 15 + (turn % 10)))
        }
        return states
      }),
    )
    for (const [key, state] of outcomes.flat()) {
      const { requests, applied } = impatient.entry(key)
      expect(requests).toBeLessThanOrEqual(1)
      if (state === 'applied') expect(applied).toBe(1)
      else if (state === 'failed') expect(requests).toBe(0)
      else expect(state).toBe('uncertain')
    }
    await impatient.close()
  })
})

describe('the pool', () => {
  const request = (url: string): OutboundRequest => ({
    method: 'POST',
    origin: url,
    path: '/grants',
    headers: { 'idempotency-key': 'pool' },
    body: '{"mode":"never_answer"}',
  })

  it('holds many calls at once to one origin', async () => {
    // each call is held for long enough that the last one begins before the first one ends, on a busy machine too
    const type = grantType(effects.url, { timeoutMs: 25_000 })
    const calls = Array.from({ length: 100 }, (_, index) => send(type, `many-${index}`, { delay_ms: 3_000 }))
    for (const { outcome } of await Promise.all(calls)) expect(outcome.state).toBe('applied')
    expect(effects.inFlightMax()).toBe(100)
  })

  it('breaks calls in flight when it closes, and starts none afterwards', async () => {
    const own = await startEffectServer()
    const client = createOutbound()
    const inFlight = client.exchange(request(own.url), 30_000)
    await own.requestsSeen(1)
    await client.close()
    expect(await inFlight).toMatchObject({ kind: 'broken', reasonCode: 'CONNECTION_LOST' })
    expect(await client.exchange(request(own.url), 30_000)).toMatchObject({
      kind: 'unsent',
      reasonCode: 'SHUTTING_DOWN',
    })
    expect(own.entry('pool').requests).toBe(1)
    await own.close()
  })

  it('asks once more before the first byte of a request that waited, and writes none after a no', async () => {
    const requests: string[] = []
    await withSockets(
      (socket) => socket.on('data', (data) => requests.push(data.toString('latin1'))),
      async (url, sockets) => {
        const client = createOutbound()
        const type = grantType(url, { client, timeoutMs: 25_000 })
        const held = Array.from({ length: 512 }, (_, index) => externalOf(type).send(callOf(`held-${index}`)))
        await vi.waitUntil(() => requests.length === 512, { timeout: 30_000 })
        let isOpen = true
        const asked: boolean[] = []
        const mayStart = (): boolean => {
          asked.push(isOpen)
          return isOpen
        }
        const waiting = externalOf(type).send({ ...callOf('waiting'), mayStart })
        expect(asked).toEqual([])
        isOpen = false
        sockets[0]?.write(OK)
        expect(await waiting).toEqual({ outcome: { state: 'unsent' }, downstreamError: false })
        expect(asked).toEqual([false])
        for (const socket of sockets.slice(1)) socket.end(OK)
        for (const { outcome } of await Promise.all(held)) expect(outcome.state).toBe('applied')
        await client.close()
      },
    )
    expect(requests).toHaveLength(512)
    expect(requests.filter((request) => request.includes('waiting'))).toEqual([])
  })

  it('reports a request that the transport refuses as a fault of ours', async () => {
    const bad = { ...request(effects.url), headers: { 'bad header': 'x' } }
    expect(await outbound.exchange(bad, 1_000)).toMatchObject({ kind: 'unsent', reasonCode: 'INVALID_REQUEST' })
  })
})

describe('a lookup', () => {
  it('says applied with its evidence, or absent', async () => {
    const type = grantType(effects.url)
    await send(type, 'known é/1')
    expect(await find(type, 'known é/1')).toEqual({
      state: 'applied',
      effectRef: 'grant-known é/1',
      evidenceRef: 'lookup:HTTP 200 grant-known é/1',
    })
    expect(await find(type, 'never')).toEqual({ state: 'absent', evidenceRef: 'lookup:HTTP 404' })
  })

  it.each([
    ['down', 'LOOKUP_DOWN'],
    ['unknown', 'LOOKUP_UNCLASSIFIED'],
  ] as const)('knows nothing when the provider is %s', async (mode, reasonCode) => {
    effects.setLookup(mode)
    expect(await find(grantType(effects.url), 'ok')).toEqual({ state: 'unknown', reasonCode })
    effects.setLookup('up')
  })

  it('knows nothing when nobody answers', async () => {
    expect(await find(grantType('http://127.0.0.1:9'), 'ok')).toEqual({ state: 'unknown', reasonCode: 'LOOKUP_DOWN' })
  })
})

describe('the effect server', () => {
  it('continues the log of its predecessor', async () => {
    const logFile = path.join(tmpdir(), `opledger-effects-${process.pid}.ndjson`)
    for (const expected of [1, 2]) {
      const server = await startEffectServer({ logFile, fsync: true })
      await send(grantType(server.url), 'kept')
      expect(server.entry('kept')).toMatchObject({ requests: expected, applied: expected })
      expect(Object.keys(server.entries())).toEqual(['kept'])
      await server.close()
    }
    await rm(logFile)
  })
})
