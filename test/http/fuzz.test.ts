/**
 * Every route of the OpenAPI document, asked rightly, nearly rightly and with rubbish, over the real database. No 5xx but a
 * documented 503, no hang, nothing of our insides, every refusal a problem with a known code, and the memory stays flat.
 *
 * FUZZ_REQUESTS: how many (100,000 in the long form); FUZZ_SEED: the seed that a failed run has printed. What there is to be asked for
 * grows with the answers, so a seed brings the same requests as long as the answers are the same.
 */
import { randomInt } from 'node:crypto'
import { type AddressInfo, connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ERROR_CODES } from '../../src/domain/errors.ts'
import { formatId } from '../../src/domain/ids.ts'
import { SCOPES } from '../../src/domain/scope.ts'
import type { App } from '../../src/http/app.ts'
import { generateOpenApi } from '../../src/http/openapi.ts'
import { buildServer } from '../../src/http/server.ts'
import { compileCallback } from '../../src/operation-types/callback-rules.ts'
import { hashApiKey } from '../../src/services/api-keys.ts'
import { insertApiKey } from '../../src/storage/api-keys.ts'
import { CALLBACK, SECRETS, signEvent } from '../support/callbacks.ts'
import { type FuzzRequest, type OpenApi, requestsFor } from '../support/fuzz/requests.ts'
import { faultsOf } from '../support/fuzz/verdicts.ts'
import { plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'
import { remoteType } from '../support/remote-work.ts'
import { openTestService, type TestService } from '../support/service.ts'
import { untilClosed } from '../support/socket-close.ts'

const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 600)
const SEED = Number(process.env.FUZZ_SEED ?? randomInt(2 ** 31))
/** Longer is a hang: nothing that is asked for waits, and a busy machine takes its time. */
const ANSWER_MS = 20_000
/** Of the heap, from a tenth of the run on. */
const MEMORY_GROWTH_BYTES = 48 * 1024 * 1024
const RAW_CONNECTIONS = Math.max(60, Math.floor(REQUESTS / 10))
const MS_A_REQUEST = 200
const KEY = 'opl_fuzz'
const KEYS = ['a', 'b', "it's", 'ü']
/** Known things of one kind; the oldest are asked for no more. */
const KNOWN_MAX = 200

let service: TestService
let app: App
let document: OpenApi
/** Of constraints and indexes. */
let names: string[]
const known = new Map<string, string[]>()

const learn = (kind: string, thing: string): void => {
  const things = known.get(kind) ?? []
  if (things.includes(thing)) return
  known.set(kind, [...things, thing].slice(-KNOWN_MAX))
}

const KIND_OF_MEMBER: Readonly<Record<string, string>> = {
  replay_of: 'op',
  operation_id: 'op',
  preflight_id: 'pf',
  case_id: 'case',
  incident_id: 'inc',
  type: 'type',
  name: 'type',
  key: 'key',
  item_key: 'key',
  code: 'code',
  worker: 'worker',
  lease: 'lease',
  cursor: 'cursor',
  reason: 'word',
  evidence_ref: 'word',
  host: 'word',
}
const KIND_OF_PATH: Readonly<Record<string, string>> = {
  operations: 'op',
  'bulk-actions': 'bulk',
  'dead-letters': 'dl',
  incidents: 'inc',
  artifacts: 'art',
  'webhook-deliveries': 'wh',
  'operation-types': 'type',
  callbacks: 'type',
  problems: 'code',
}

const pool = {
  keys: KEYS,
  pick: (name: string, path: string, at: number): string | null => {
    const kind = name === 'id' ? KIND_OF_PATH[path.split('/')[1] ?? ''] : KIND_OF_MEMBER[name]
    const things = known.get(kind ?? '') ?? []
    return things[at % Math.max(1, things.length)] ?? null
  },
}

/** Ids in an answer are asked for later. */
const learnFrom = (body: string): void => {
  for (const [id, kind = ''] of body.matchAll(/\b(op|case|dl|inc|pf|wh|bulk|art)_[0-9a-f]{32}\b/g)) learn(kind, id)
  for (const [, member = '', token = ''] of body.matchAll(/"(worker|lease|next_cursor)":"([\w.-]{10,1000})"/g))
    learn(member === 'next_cursor' ? 'cursor' : member, token)
}

const plant = async (): Promise<void> => {
  const { database } = service
  const failed = { state: 'failed', failureClass: 'transient' } as const
  for (const status of ['running', 'failed', 'succeeded', 'reconciliation_required', 'paused'] as const) {
    const entries = [{ state: 'applied' as const }, failed, { state: 'uncertain' as const }]
    const items = KEYS.map((key, index) => ({ key, entries: entries.slice(index % 3, (index % 3) + 1) }))
    const id = await plantOperation(database, { type: 'grant', status, items, paused: status === 'paused' })
    await plantEffects(database, id)
    learn('op', formatId('op', id))
    await database.query(
      ({ sql }) => sql`
        insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause)
        values (1, ${id}::uuid, 0, 2, 'grant', ${KEYS[2] ?? ''}, ${`${id}:case`}, 1, 'worker_lost')`,
    )
  }
}

const submit = async (body: object): Promise<void> => {
  const answer = await app.inject({
    method: 'POST',
    url: '/operations',
    headers: { authorization: `Bearer ${KEY}` },
    payload: body,
  })
  expect(answer.statusCode).toBe(202)
  learnFrom(answer.body)
}

beforeAll(async () => {
  const callback = compileCallback(CALLBACK, { type: 'pay', env: {}, secrets: () => SECRETS[0] })
  service = await openTestService({
    types: [
      plantedType('grant', { compensation: 'available' }),
      plantedType('careful', { approval: 'always', idempotencyKey: 'required' }),
      plantedType('pay', { callback }),
      remoteType('resize'),
    ],
    webhooks: { privateAddresses: 'refuse' },
  })
  app = await buildServer({
    services: service.services,
    config: { auth: 'keys', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  document = JSON.parse(await generateOpenApi())
  await service.database.query((connection) =>
    insertApiKey(connection, {
      tenantId: 1,
      name: 'fuzz',
      keyHash: hashApiKey(KEY),
      scopes: SCOPES,
      expiresInDays: null,
    }),
  )
  const found = await service.database.query(
    ({ sql }) => sql<{ name: string }>`
      select conname as name from pg_constraint where connamespace = 'public'::regnamespace
      union select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'i'`,
  )
  names = found.map(({ name }) => name).filter((name) => name.includes('_'))
  for (const type of ['grant', 'careful', 'pay', 'resize', 'nope']) learn('type', type)
  for (const key of KEYS) learn('key', key)
  for (const code of ERROR_CODES) learn('code', code)
  learn('word', 'ticket 7')
  await plant()
  await submit({ type: 'grant', draft: true })
  for (const type of ['grant', 'pay', 'resize']) await submit({ type, items: KEYS.map((key) => ({ key, input: {} })) })
  await submit({ type: 'grant', items: [{ key: 'a', input: {} }], callback_url: 'https://hooks.example/x' })
})
afterAll(async () => {
  await app.close()
  await service.close()
})

const asked = new Map<string, Set<number>>()
const slow: string[] = []

const ask = async (request: FuzzRequest): Promise<void> => {
  const { operationId, method, url, headers, payload } = request
  const signed =
    operationId === 'receiveCallback' && request.kind === 'right'
      ? signEvent(`evt_${Math.random()}`, String(payload ?? ''), {}).headers
      : {}
  let timer: NodeJS.Timeout | undefined
  const hang = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS} ms`)), ANSWER_MS)
  })
  const startedAt = performance.now()
  const answer = await Promise.race([
    app.inject({
      method: method as 'GET',
      url,
      headers: { authorization: `Bearer ${KEY}`, ...headers, ...signed },
      ...(payload !== undefined && { payload }),
    }),
    hang,
  ]).finally(() => clearTimeout(timer))
  // as a connection does when it was answered; a body that nobody has read would be waited for until it is too slow
  answer.raw.req.destroy()
  if (performance.now() - startedAt > ANSWER_MS / 4) slow.push(`${method} ${url}`)
  const statuses = asked.get(operationId) ?? new Set()
  asked.set(operationId, statuses.add(answer.statusCode))
  const said = { status: answer.statusCode, headers: answer.headers, body: answer.body }
  const sent = `${url} ${decodeURIComponentSafely(url)} ${String(payload ?? '')} ${JSON.stringify(headers)}`
  expect(faultsOf(said, names, sent)).toEqual([])
  if (answer.statusCode < 300) learnFrom(answer.body)
}

const decodeURIComponentSafely = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const heapBytes = (): number => {
  collect()
  return process.memoryUsage().heapUsed
}

describe('every route of the document', () => {
  it(`answers ${REQUESTS} requests, whatever they are`, { timeout: 120_000 + REQUESTS * MS_A_REQUEST }, async () => {
    console.info(`fuzz: ${REQUESTS} requests with FUZZ_SEED=${SEED}`)
    let answered = 0
    let heapAtFirst = 0
    const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods))
    // each of them once, and then as chance has it
    for (const { operationId } of operations)
      for (const request of fc.sample(requestsFor(document, pool, operationId), { numRuns: 1, seed: SEED }))
        await ask(request)
    await fc.assert(
      fc.asyncProperty(requestsFor(document, pool), async (request) => {
        await ask(request)
        if (++answered === Math.ceil(REQUESTS / 10)) heapAtFirst = heapBytes()
      }),
      { numRuns: REQUESTS, seed: SEED, endOnFailure: true },
    )
    expect(heapBytes() - heapAtFirst).toBeLessThan(MEMORY_GROWTH_BYTES)
    expect(slow).toEqual([])
    expect(operations.filter(({ operationId }) => !asked.has(operationId))).toEqual([])
    // rubbish alone would say nothing: many routes must have been got right
    const reached = operations.filter(({ operationId }) =>
      [...(asked.get(operationId) ?? [])].some((status) => status < 300),
    )
    expect(reached.length).toBeGreaterThan(operations.length / 3)
  })
})

describe('a socket', () => {
  const START_LINES = [
    ...[
      'GET / HTTP/1.1',
      'GET http://x/operations HTTP/1.1',
      'GET * HTTP/1.1',
      'OPTIONS * HTTP/1.1',
      'GET //x HTTP/1.1',
    ],
    ...[
      'CONNECT x:1 HTTP/1.1',
      'GET /operations HTTP/0.9',
      'GET /operations HTTP/2.0',
      'PRI * HTTP/2.0',
      'get / http/1.1',
    ],
    ...[
      'POST /operations HTTP/1.1',
      'POST /callbacks/pay HTTP/1.1',
      'QUERY / HTTP/1.1',
      ' GET / HTTP/1.1',
      'GET /\u0000 HTTP/1.1',
    ],
    ...['GET /operations?\u00ff HTTP/1.1', 'GET /%', '\u0016\u0003\u0001\u0002\u0000\u0001', 'HELO x', ''],
  ]
  const HEADERS = [
    ...[
      'host: localhost',
      'host: a\r\nhost: b',
      'host:',
      'content-length: 5',
      'content-length: -1',
      'content-length: 5, 6',
    ],
    ...['content-length: 99999999999999999999', 'content-length: 3\r\ncontent-length: 4', 'transfer-encoding: chunked'],
    ...[
      'transfer-encoding: chunked\r\ncontent-length: 4',
      'transfer-encoding: gzip, chunked',
      'Transfer-Encoding : chunked',
    ],
    ...[
      'expect: 100-continue',
      'expect: tea',
      'upgrade: websocket\r\nconnection: upgrade',
      'upgrade: h2c',
      'connection: close',
    ],
    ...[
      'content-type: application/json',
      `x: ${'y'.repeat(17_000)}`,
      'x\u0000: y',
      ' folded: x',
      'no colon',
      ': x',
      'x: \u0001',
    ],
    ...[`authorization: Bearer ${KEY}`, 'accept: text/event-stream', 'if-none-match: "', 'trailer: x'],
  ]
  const BODIES = [
    '',
    '{}',
    '5\r\nhello\r\n0\r\n\r\n',
    'zz\r\n',
    'ffffffffffffffff\r\n',
    '0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n',
    '{"type":"grant"',
  ]
  const bytes = fc.oneof(
    fc
      .tuple(
        fc.constantFrom(...START_LINES),
        fc.array(fc.constantFrom(...HEADERS), { maxLength: 4 }),
        fc.constantFrom(...BODIES),
      )
      .map(([line, headers, body]) => Buffer.from(`${[line, ...headers].join('\r\n')}\r\n\r\n${body}`, 'latin1')),
    fc.uint8Array({ maxLength: 400 }).map((some) => Buffer.from(some)),
  )

  const talk = async (sent: Buffer): Promise<string> => {
    const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
    let answer = ''
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1')
    })
    socket.on('error', () => {})
    // half open: what is not complete now never will be
    socket.end(sent)
    const timer = setTimeout(() => {
      answer += '\r\nHANGS'
      socket.destroy()
    }, ANSWER_MS)
    await untilClosed(socket)
    clearTimeout(timer)
    return answer
  }

  it('that brings rubbish is answered or closed', { timeout: 120_000 + RAW_CONNECTIONS * MS_A_REQUEST }, async () => {
    const statuses = new Set<string>()
    await fc.assert(
      fc.asyncProperty(bytes, async (sent) => {
        const answer = await talk(sent)
        expect(answer).not.toMatch(/HANGS$/)
        for (const [, status = ''] of answer.matchAll(/HTTP\/1\.1 (\d{3}) /g)) {
          statuses.add(status)
          expect(Number(status)).toBeLessThan(500)
        }
        const body = answer.slice(answer.indexOf('\r\n\r\n') + 4)
        if (/^HTTP\/1\.1 4/.test(answer)) expect(answer).toContain('application/problem+json')
        expect(body).not.toMatch(/\n\s+at |node_modules|\.ts:\d/)
      }),
      { numRuns: RAW_CONNECTIONS, seed: SEED, endOnFailure: true },
    )
    expect((await app.inject('/livez')).statusCode).toBe(200)
    expect([...statuses], 'what was answered').toContain('400')
  })
})
