/**
 * Every limit of the edge, one over it: the refusal that is named, and nothing is stored. The table is complete by construction:
 * a limit that has neither a case nor a reason to have none does not compile.
 */
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { INLINE_ITEMS_MAX } from '../../src/domain/operation.ts'
import { SCOPE_ITEM_KEYS_MAX } from '../../src/domain/replay.ts'
import type { App } from '../../src/http/app.ts'
import * as limits from '../../src/http/limits.ts'
import { generateOpenApi } from '../../src/http/openapi.ts'
import { buildServer } from '../../src/http/server.ts'
import { plantedType } from '../support/planted-operation.ts'
import { openTestService, type TestService } from '../support/service.ts'

interface Asked {
  method?: string
  path: string
  headers?: Record<string, string>
  body?: string | undefined
}
/** What is one over the limit; what it is answered with. `allowed`: the same at the limit, which is answered otherwise. */
interface Case {
  over: () => Asked
  allowed?: () => Asked
  status: number
  code: string
}

const NO_OPERATION = `/operations/op_${'0'.repeat(32)}`
const NO_CASE = `/reconciliation/case_${'0'.repeat(32)}`
let draft: string

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Asked => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/json', ...headers },
  body: typeof body === 'string' ? body : JSON.stringify(body),
})
const upload = (contentType: string, body: string, query = ''): Asked => ({
  method: 'POST',
  path: `${draft}/items${query}`,
  headers: { 'content-type': contentType },
  body,
})
const get = (path: string, headers: Record<string, string> = {}): Asked => ({ path, headers })

const letters = (count: number): string => 'x'.repeat(count)
const each = <T>(count: number, one: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => one(index))
const record = (count: number): Record<string, string> => Object.fromEntries(each(count, (index) => [`l${index}`, 'v']))

const OPERATION = { type: 'grant', items: [{ key: 'a', input: {} }] }
const submit = (change: object): Asked => post('/operations', { ...OPERATION, ...change })
const nested = (depth: number): Asked =>
  post('/operations', `{"type":"grant","items":[{"key":"a","input":${'['.repeat(depth - 3)}${']'.repeat(depth - 3)}}]}`)
/** A submission of so many bytes. */
const ofSize = (bytes: number): Asked => {
  const bare = JSON.stringify(OPERATION)
  return post('/operations', bare + ' '.repeat(bytes - bare.length))
}
const resolve = (change: object): Asked =>
  post(`${NO_CASE}/resolve`, { resolution: 'applied', evidence_ref: 'r', ...change })
const claim = (change: object): Asked =>
  post('/worker/claims', { host: 'h', pid: 1, code_version: '1', types: [{ name: 'grant', version: 1 }], ...change })
const report = (results: object[]): Asked => post('/worker/results', { lease: 'l', results })
const applied = { effect_key: 'k', send: 1, state: 'applied' }
const failed = { effect_key: 'k', send: 1, state: 'failed', failure_class: 'conflict' }

/** One over, and at, a limit of bytes of a text. */
const bytes = (limit: number, asked: (text: string) => Asked): Case => ({
  // two bytes of UTF-8 a letter: what is counted is bytes
  over: () => asked(`${letters(limit - 1)}ä`),
  allowed: () => asked(`${letters(limit - 2)}ä`),
  status: 400,
  code: 'invalid-request',
})
/** One over, and at, a limit of how many there are. */
const count = (limit: number, asked: (count: number) => Asked, status = 400, code = 'invalid-request'): Case => ({
  over: () => asked(limit + 1),
  allowed: () => asked(limit),
  status,
  code,
})

const CASES = {
  MAX_BODY_BYTES: count(limits.MAX_BODY_BYTES, ofSize, 413, 'body-too-large'),
  MAX_HEADER_BYTES: count(
    limits.MAX_HEADER_BYTES - 500,
    (size) => get('/livez', { 'x-large': letters(size > limits.MAX_HEADER_BYTES - 500 ? size + 500 : size) }),
    431,
    'headers-too-large',
  ),
  MAX_URL_BYTES: count(
    limits.MAX_URL_BYTES,
    (size) => get(`/operations?type=${letters(size - '/operations?type='.length)}`),
    414,
    'url-too-long',
  ),
  MAX_CONNECTIONS: 'a property of the server, below',
  HEADERS_TIMEOUT_MS: 'a property of the server, below',
  REQUEST_TIMEOUT_MS: 'body-timeouts.test.ts',
  LAST_ANSWER_MS: 'body-timeouts.test.ts',
  CONNECTION_TIMEOUT_MS: 'a property of the server, below',
  KEEP_ALIVE_TIMEOUT_MS: 'a property of the server, below',
  MAX_REQUEST_ID_BYTES: 'a longer one is replaced by one of ours',
  MAX_PRINCIPAL_BYTES: {
    over: () => get('/operations', { 'x-principal': letters(limits.MAX_PRINCIPAL_BYTES + 1) }),
    allowed: () => get('/operations', { 'x-principal': letters(limits.MAX_PRINCIPAL_BYTES) }),
    status: 400,
    code: 'invalid-request',
  },
  MAX_API_KEY_BYTES: 'no key is as long: it is unknown',
  MAX_IDEMPOTENCY_KEY_BYTES: count(limits.MAX_IDEMPOTENCY_KEY_BYTES, (size) =>
    post('/operations', OPERATION, { 'idempotency-key': letters(size) }),
  ),
  MAX_RATE_CALLERS: 'rate-limits.test.ts',
  MAX_ADDRESS_BYTES: 'a longer one is cut',
  PRESSURE_LOOK_MS: 'pressure.test.ts',
  LOOP_DELAY_MS_MAX: 'pressure.test.ts',
  LOOP_DELAY_LAST_MS_MAX: 'pressure.test.ts',
  HEAP_SHARE_MAX: 'pressure.test.ts',
  HEAP_SHARE_LAST_MAX: 'pressure.test.ts',
  HEAP_JUDGED_MS: 'unit/pressure.test.ts',
  QUEUE_MS_MAX: 'pressure.test.ts',
  QUEUE_LAST_MS_MAX: 'pressure.test.ts',
  MAX_JSON_DEPTH: count(limits.MAX_JSON_DEPTH, nested),
  MAX_REPORTED_FAULTS: 'as many are listed, below',
  MAX_ITEM_KEY_BYTES: bytes(limits.MAX_ITEM_KEY_BYTES, (key) => submit({ items: [{ key, input: {} }] })),
  MAX_TYPE_NAME_BYTES: bytes(limits.MAX_TYPE_NAME_BYTES, (type) => submit({ type })),
  MAX_LABELS: count(limits.MAX_LABELS, (size) => submit({ labels: record(size) })),
  MAX_LABEL_KEY_BYTES: bytes(limits.MAX_LABEL_KEY_BYTES, (key) => submit({ labels: { [key]: 'v' } })),
  MAX_LABEL_VALUE_BYTES: bytes(limits.MAX_LABEL_VALUE_BYTES, (value) => submit({ labels: { l: value } })),
  MAX_REASON_BYTES: bytes(limits.MAX_REASON_BYTES, (reason) => submit({ reason })),
  MAX_REFERENCE_BYTES: bytes(limits.MAX_REFERENCE_BYTES, (reference) => resolve({ evidence_ref: reference })),
  MAX_CALLBACK_URL_BYTES: bytes(limits.MAX_CALLBACK_URL_BYTES, (text) =>
    submit({ callback_url: `https://x.example/${text.slice('https://x.example/'.length)}` }),
  ),
  MAX_AFTER: count(limits.MAX_AFTER, (size) => submit({ after: each(size, (index) => `op_${index}`) })),
  MAX_STOP_CONDITIONS: count(limits.MAX_STOP_CONDITIONS, (size) =>
    submit({ stop_if: each(size, () => 'replay_reject_rate > 1%') }),
  ),
  // at the limit it is refused too, for what it says
  MAX_STOP_CONDITION_BYTES: {
    over: () => submit({ stop_if: [`replay_reject_rate > 1%${' '.repeat(limits.MAX_STOP_CONDITION_BYTES)}`] }),
    status: 400,
    code: 'invalid-request',
  },
  MAX_PRIORITY: count(limits.MAX_PRIORITY, (priority) => submit({ priority })),
  MAX_UPLOAD_BYTES: {
    over: () => ({
      ...upload('application/x-ndjson', ''),
      headers: { 'content-type': 'application/x-ndjson', 'content-length': String(limits.MAX_UPLOAD_BYTES + 1) },
      body: undefined,
    }),
    status: 413,
    code: 'body-too-large',
  },
  UPLOAD_TIMEOUT_MS: 'a property of the server, below',
  UPLOAD_PATIENCE_MS: 'body-timeouts.test.ts',
  UPLOAD_BYTES_PER_SECOND_MIN: 'body-timeouts.test.ts',
  DISCARD_MS: 'upload-ends.test.ts',
  MAX_ROW_BYTES: {
    over: () =>
      upload(
        'application/x-ndjson',
        `{"key":"a","input":"${letters(limits.MAX_ROW_BYTES + 1 - '{"key":"a","input":""}'.length)}"}\n`,
      ),
    allowed: () =>
      upload(
        'application/x-ndjson',
        `{"key":"a","input":"${letters(limits.MAX_ROW_BYTES - '{"key":"a","input":""}'.length)}"}\n`,
      ),
    status: 422,
    code: 'invalid-row',
  },
  ROWS_AT_A_TIME: 'how many rows are handed on at a time',
  MAX_CSV_COLUMNS: count(
    limits.MAX_CSV_COLUMNS,
    (size) => upload('text/csv', `${['key', ...each(size - 1, (index) => `c${index}`)].join(',')}\n`),
    422,
    'invalid-row',
  ),
  MAX_CSV_COLUMN_BYTES: {
    over: () => upload('text/csv', `key,${letters(limits.MAX_CSV_COLUMN_BYTES + 1)}\na,b\n`),
    status: 422,
    code: 'invalid-row',
  },
  MAX_UPLOADS: 'unit/upload-places.test.ts',
  MAX_TENANT_UPLOADS: 'four at a time, below',
  MAX_CALLBACK_BYTES: count(
    limits.MAX_CALLBACK_BYTES,
    (size) => post('/callbacks/grant', letters(size)),
    413,
    'body-too-large',
  ),
  DEFAULT_PAGE_LIMIT: 'a default',
  MAX_PAGE_LIMIT: 'what is over it counts as it: reads.test.ts',
  MAX_CURSOR_BYTES: {
    over: () => get(`/operations?cursor=${letters(limits.MAX_CURSOR_BYTES + 1)}`),
    status: 400,
    code: 'invalid-request',
  },
  MAX_FILTER_BYTES: count(limits.MAX_FILTER_BYTES, (size) => get(`/operations?type=${letters(size)}`)),
  MAX_FILTER_VALUES: count(limits.MAX_FILTER_VALUES, (size) =>
    get(`/operations?status=${each(size, () => 'failed').join(',')}`),
  ),
  MAX_WAIT_SECONDS: {
    // of a poll a longer wait counts as the longest
    over: () => claim({ wait_seconds: limits.MAX_WAIT_SECONDS + 1 }),
    status: 400,
    code: 'invalid-request',
  },
  MAX_WAITERS: 'unit/event-stream.test.ts',
  MAX_STREAMS: 'event-stream.test.ts',
  SSE_KEEP_ALIVE_SECONDS: 'a pace of ours',
  SSE_LOOK_MS: 'a pace of ours',
  SSE_OUTAGE_LOOK_MS: 'a pace of ours',
  SSE_STREAM_SECONDS: 'unit/event-stream.test.ts',
  SSE_RETRY_MS: 'a pace of ours',
  MAX_RETRY_AFTER_SECONDS: 'a pace of ours',
  METRICS_CACHE_MS: 'a pace of ours',
  MAX_FORCED_CODES: {
    over: () =>
      post(`${NO_OPERATION}/replay`, {
        preflight_id: `pf_${'0'.repeat(32)}`,
        reason: 'r',
        force: each(limits.MAX_FORCED_CODES + 1, (index) => `c${index}`),
      }),
    status: 400,
    code: 'invalid-request',
  },
  MAX_TOKEN_BYTES: bytes(limits.MAX_TOKEN_BYTES, (worker) => post('/worker/heartbeat', { worker, leases: [] })),
  MAX_HOST_BYTES: bytes(limits.MAX_HOST_BYTES, (host) => claim({ host })),
  MAX_CODE_VERSION_BYTES: bytes(limits.MAX_CODE_VERSION_BYTES, (version) => claim({ code_version: version })),
  MAX_WORKER_TYPES: count(limits.MAX_WORKER_TYPES, (size) =>
    claim({ types: each(size, (index) => ({ name: `t${index}`, version: 1 })) }),
  ),
  MAX_WORKER_LEASES: count(limits.MAX_WORKER_LEASES, (size) =>
    post('/worker/heartbeat', { worker: 'w', leases: each(size, (index) => ({ lease: `l${index}` })) }),
  ),
  MAX_RESULTS: count(limits.MAX_RESULTS, (size) =>
    report(each(size, (index) => ({ ...applied, effect_key: `k${index}` }))),
  ),
  MAX_EFFECT_KEY_BYTES: bytes(limits.MAX_EFFECT_KEY_BYTES, (key) => report([{ ...applied, effect_key: key }])),
  MAX_RESULT_CODE_BYTES: bytes(limits.MAX_RESULT_CODE_BYTES, (code) => report([{ ...failed, reason_code: code }])),
  MAX_RESULT_TEXT_BYTES: bytes(limits.MAX_RESULT_TEXT_BYTES, (message) => report([{ ...failed, message }])),
  MAX_JWT_BYTES: 'a longer token is none: tokens.test.ts',
  JWT_CLOCK_TOLERANCE_SECONDS: 'tokens.test.ts',
  JWKS_TIMEOUT_MS: 'tokens.test.ts',
  MAX_JWKS_BYTES: 'tokens.test.ts',
  JWKS_CACHE_MS: 'how long keys of an issuer are kept, no limit of requests',
  JWKS_FAILED_MS: 'tokens.test.ts',
  JWKS_COOLDOWN_MS: 'how often keys of an issuer are asked for, no limit of requests',
  METRICS_CACHE_ENTRIES: 'what the process keeps, no limit of requests',
  MAX_KNOWN_SCRAPERS: 'what the process keeps, no limit of requests',
  KNOWN_SCRAPER_MS: 'what the process keeps, no limit of requests',
} satisfies Record<keyof typeof limits, Case | string>

/** Limits that stand elsewhere, as the domain has them. */
const DOMAIN_CASES: Record<string, Case> = {
  INLINE_ITEMS_MAX: count(
    INLINE_ITEMS_MAX,
    (size) =>
      submit({
        type: size > INLINE_ITEMS_MAX ? 'grant' : 'nope',
        items: each(size, (index) => ({ key: `k${index}`, input: {} })),
      }),
    422,
    'too-many-items',
  ),
  SCOPE_ITEM_KEYS_MAX: count(SCOPE_ITEM_KEYS_MAX, (size) =>
    post(`${NO_OPERATION}/replay-preflight`, { scope: { item_keys: each(size, (index) => `k${index}`) } }),
  ),
}

let service: TestService
let app: App
let base: URL

beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant')] })
  app = await buildServer({
    services: service.services,
    config: { auth: 'off', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  base = new URL(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}`)
  draft = await newDraft()
})
afterAll(async () => {
  await app.close()
  await service.close()
})

const newDraft = async (): Promise<string> => {
  const answer = await app.inject({ method: 'POST', url: '/operations', payload: { type: 'grant', draft: true } })
  return `/operations/${answer.json().id}`
}

const ask = async ({
  method = 'GET',
  path,
  headers = {},
  body,
}: Asked): Promise<{ status: number; code: string | null }> => {
  const request = httpRequest(new URL(path, base), { method, headers, agent: false })
  request.on('error', () => {})
  // a promise of a body that never comes is answered before it
  if (body === undefined && method !== 'GET') request.flushHeaders()
  else request.end(body)
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  let text = ''
  for await (const chunk of answer) text += String(chunk)
  request.destroy()
  const isProblem = /^application\/problem\+json/.test(answer.headers['content-type'] ?? '')
  return { status: answer.statusCode ?? 0, code: isProblem ? JSON.parse(text).code : null }
}

/** Rows of every table, but for the log of uploads, which tells of refused ones. */
const stored = async (): Promise<string> => {
  const tables = await service.database.query(
    ({ sql }) => sql<{ name: string }>`
      select format('%I', c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'operation_uploads'
      order by 1`,
  )
  const counts: string[] = []
  await service.database.query(async ({ db }) => {
    for (const { name } of tables) {
      const [row] = await db.execute<{ n: string }>(`select count(*) as n from ${name}`)
      counts.push(`${name} ${row?.n}`)
    }
  })
  return counts.join('\n')
}

const cases = Object.entries({ ...CASES, ...DOMAIN_CASES }).filter(
  (entry): entry is [string, Case] => typeof entry[1] !== 'string',
)

describe('one over a limit', () => {
  it.each(cases)('%s', async (_name, { over, status, code }) => {
    const before = await stored()
    expect(await ask(over())).toEqual({ status, code })
    expect(await stored()).toBe(before)
  })

  it.each(cases.filter(([, { allowed }]) => allowed !== undefined))(
    '%s itself is not refused for it',
    async (_name, { allowed, status, code }) => {
      if (allowed) expect(await ask(allowed())).not.toEqual({ status, code })
    },
  )
})

it('the fifth upload of a tenant at a time is told to come back', async () => {
  const uploads = await Promise.all(
    each(limits.MAX_TENANT_UPLOADS, async () => {
      const request = httpRequest(new URL(`${await newDraft()}/items`, base), {
        method: 'POST',
        headers: { 'content-type': 'application/x-ndjson' },
      })
      request.on('error', () => {})
      request.write('{"key":"a",')
      return request
    }),
  )
  let answer = { status: 0, code: null as string | null }
  // until all of them have begun, an empty one is let in, and adds nothing
  while (answer.status !== 503) answer = await ask(upload('application/x-ndjson', ''))
  expect(answer.code).toBe('overloaded')
  const ended = uploads.map((request) => once(request, 'response'))
  for (const request of uploads) request.end('"input":{}}\n')
  for (const [response] of await Promise.all(ended)) expect((response as IncomingMessage).statusCode).toBe(200)
})

it('at most so many faults of a request are listed', async () => {
  const items = each(limits.MAX_REPORTED_FAULTS + 50, () => ({ key: '', input: {} }))
  const answer = await app.inject({ method: 'POST', url: '/operations', payload: { type: 'grant', items } })
  expect(answer.json().errors).toHaveLength(limits.MAX_REPORTED_FAULTS)
})

it('the server itself has its limits', () => {
  expect(app.server).toMatchObject({
    maxConnections: limits.MAX_CONNECTIONS,
    headersTimeout: limits.HEADERS_TIMEOUT_MS,
    timeout: limits.CONNECTION_TIMEOUT_MS,
    keepAliveTimeout: limits.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeout: limits.UPLOAD_TIMEOUT_MS,
  })
})

/** Everything that a request can carry has a bound of its own in the document, or is named here with what bounds it. */
describe('the document', () => {
  const BOUNDED_OTHERWISE: [RegExp, string][] = [
    [/ (path|header):/, 'the URL, and the headers, as a whole'],
    [/^uploadItems body/, 'MAX_UPLOAD_BYTES'],
    [/^submitOperation body\/items\[\]$/, 'INLINE_ITEMS_MAX, which is a fact and no form (422)'],
    [/\/labels\{\}$/, 'MAX_LABELS'],
    [/ query:(limit|tenant|expires)$/, 'how many digits it may have'],
  ]
  interface Schema {
    [member: string]: unknown
    type?: string
    $ref?: string
  }

  it('leaves nothing that is sent unbounded', async () => {
    const document = JSON.parse(await generateOpenApi())
    const unbounded: string[] = []
    const look = (schema: Schema, at: string, seen: readonly string[]): void => {
      const name = schema.$ref?.split('/').at(-1)
      if (name !== undefined) {
        if (!seen.includes(name)) look(document.components.schemas[name], at, [...seen, name])
        return
      }
      const has = (...members: string[]) => members.some((member) => member in schema)
      if (schema.type === 'string' && !has('maxLength', 'enum', 'const')) unbounded.push(at)
      if (schema.type === 'array' && !has('maxItems')) unbounded.push(`${at}[]`)
      if (/^(integer|number)$/.test(schema.type ?? '') && !has('maximum', 'enum', 'const')) unbounded.push(at)
      if (typeof schema.additionalProperties === 'object' && !has('maxProperties')) unbounded.push(`${at}{}`)
      for (const member of ['anyOf', 'oneOf', 'allOf'])
        for (const one of (schema[member] ?? []) as Schema[]) look(one, at, seen)
      for (const [member, one] of Object.entries((schema.properties ?? {}) as Record<string, Schema>))
        look(one, `${at}/${member}`, seen)
      for (const member of ['items', 'additionalProperties', 'propertyNames'])
        if (typeof schema[member] === 'object') look(schema[member] as Schema, `${at}/*`, seen)
    }
    interface Operation {
      operationId: string
      parameters?: { in: string; name: string; schema: Schema }[]
      requestBody?: { content: Record<string, { schema: Schema }> }
    }
    for (const operation of Object.values(document.paths).flatMap(
      (path) => Object.values(path as object) as Operation[],
    )) {
      for (const parameter of operation.parameters ?? [])
        look(parameter.schema, `${operation.operationId} ${parameter.in}:${parameter.name}`, [])
      for (const { schema } of Object.values(operation.requestBody?.content ?? {}))
        look(schema, `${operation.operationId} body`, [])
    }
    const unexplained = unbounded.filter((place) => !BOUNDED_OTHERWISE.some(([pattern]) => pattern.test(place)))
    expect(unexplained).toEqual([])
    // an exception that nothing needs any more is none
    for (const [pattern] of BOUNDED_OTHERWISE) expect(unbounded.some((place) => pattern.test(place))).toBe(true)
  })
})
