import fc from 'fast-check'
import pino from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { plantedType, plantOperation } from '../support/planted-operation.ts'
import { openTestService, type TestService } from '../support/service.ts'

/** Whatever comes in, over the real database: no 5xx, and every refusal is a problem. */
const RUNS = 1_500

let service: TestService
let app: App
let operation: string
let caseId: string

beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant')] })
  app = await buildServer({
    services: service.services,
    config: { auth: 'off', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  const id = await plantOperation(service.database, {
    type: 'grant',
    status: 'running',
    items: [{ key: 'a', entries: [{ state: 'applied' }] }, { key: 'b' }],
  })
  operation = formatId('op', id)
  const [opened] = await service.database.query(
    ({ sql }) => sql<{ id: string }>`
      insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause)
      values (1, ${id}::uuid, 0, 1, 'grant', 'b', 'e', 1, 'worker_lost') returning id`,
  )
  caseId = formatId('case', opened?.id ?? '')
})
afterAll(async () => {
  await app.close()
  await service.close()
})

const ODD_TEXTS = [
  ...['', '%00', '%zz', '%ff', '%ed%a0%80', '%F0%9F%98%80', '..', '%2e%2e', '%2f', "'", '%22', '%0d%0aX:y', '%5C', '*'],
  ...['0', '-1', '1e9', '2147483648', '99999999999999999999', 'null', 'a'.repeat(300), '__proto__', 'constructor'],
  ...['2026-01-01T00:00:00Z', '9999-12-31T23:59:59.9999999999Z', '0001-01-01T00:00:00Z', '2026-12-31T23:59:60Z'],
  ...['applied', 'failed', 'open', 'running', 'grant', 'internal'],
]
const oddText = fc.constantFrom(...ODD_TEXTS)
const PATHS = [
  ...['', '/items', '/ledger', '/checkpoints', '/cancel', '/pause', '/resume', '/replay-preflight'].map(
    (below) => `/operations/OP${below}`,
  ),
  ...['/operations', '/operations/ODD', '/reconciliation', '/reconciliation/CASE', '/reconciliation/ODD'],
  ...['/reconciliation/CASE/lookup', '/reconciliation/CASE/resolve', '/operation-types', '/operation-types/ODD'],
  ...[
    '/operation-types/grant/pause',
    '/operation-types/grant/resume',
    '/workers',
    '/audit',
    '/health-report',
    '/livez',
    '/readyz',
  ],
  ...['/problems/ODD', '/openapi.json', '/ODD', '/docs/ODD'],
]
const PARAMETERS = [
  ...['limit', 'cursor', 'status', 'type', 'requested_by', 'label.x', 'label.', 'created_after', 'created_before'],
  ...['replay_of', 'state', 'failure_class', 'key', 'operation_id', 'item_key', '__proto__', 'constructor'],
]
const MEMBERS = [
  ...[
    'type',
    'items',
    'input',
    'reason',
    'labels',
    'priority',
    'run_after',
    'deadline_at',
    'draft',
    'callback_url',
    'after',
  ],
  ...[
    'stop_if',
    'scope',
    'states',
    'failure_classes',
    'item_keys',
    'resolution',
    'evidence_ref',
    'effect_ref',
    'note',
    'retry',
  ],
]
const ODD_VALUES = [
  ...[null, true, 0, -1, 1.5, 2 ** 31, 1e15, 'a', '', 'ü', 'a\u0000', '\ud800', 'x'.repeat(300)],
  ...[
    '2026-01-01T00:00:00Z',
    '0001-01-01T00:00:00Z',
    '9999-12-31T23:59:59.999999999Z',
    'grant',
    'applied',
    'not_applied',
  ],
]
const oddValue = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom(...ODD_VALUES),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...MEMBERS, 'key', '__proto__'), tie('value'), { maxKeys: 4 }),
  ),
})).value
const times = fc.constantFrom(
  null,
  '2026-01-01T00:00:00Z',
  '9999-12-31T23:59:59.999999999Z',
  '2026-01-01T00:00:00+14:00',
)
const submission = fc.record(
  {
    type: fc.constantFrom('grant', 'grant', 'nope'),
    items: fc.array(fc.record({ key: fc.constantFrom('a', 'b', 'ü', "'"), input: oddValue }), { maxLength: 3 }),
    input: oddValue,
    labels: fc.dictionary(fc.constantFrom('a', 'ü', "'"), fc.constantFrom('1', '"}', 'ü'), { maxKeys: 2 }),
    priority: fc.constantFrom(-1_000, 0, 1_000),
    run_after: times,
    deadline_at: times,
    stop_if: fc.constantFrom([], ['ambiguous_effect_targets > 0'], ['rubbish'], ['downstream_error_rate_5m > 99%']),
  },
  { requiredKeys: ['type', 'items'] },
)
const body = fc.oneof(
  submission.map((value) => JSON.stringify(value)),
  fc.dictionary(fc.constantFrom(...MEMBERS), oddValue, { maxKeys: 4 }).map((value) => JSON.stringify(value)),
  fc.constantFrom('', '{', 'null', '[]', '"x"', '5', '\ufeff{}', '{"__proto__":1}'),
)
const request = fc.record(
  {
    method: fc.constantFrom('GET', 'GET', 'POST', 'POST', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'),
    path: fc.constantFrom(...PATHS),
    odd: oddText,
    query: fc.array(fc.tuple(fc.constantFrom(...PARAMETERS), oddText), { maxLength: 3 }),
    body,
    headers: fc.record(
      {
        accept: fc.constantFrom(
          '*/*',
          'application/json',
          'text/csv',
          'application/x-ndjson',
          'text/html',
          ';;;',
          'a/b;q=2',
        ),
        'content-type': fc.constantFrom('application/json', 'application/json; charset=utf-8', 'text/plain', 'json'),
        'if-match': fc.constantFrom('"1"', '*', 'W/"1"', '"', '""', '"99999999999999999999"'),
        'if-none-match': fc.constantFrom('"1"', '*', 'W/"1"', '"', '""'),
        prefer: fc.constantFrom('wait=0', 'wait', 'wait=-1', 'respond-async', 'wait=0;x=2', ','),
        'idempotency-key': fc.constantFrom('a', '"b"', '"', 'x'.repeat(300), 'a b', 'é'),
        'x-request-id': fc.constantFrom('ok', 'a b', 'x'.repeat(300)),
        'x-principal': fc.constantFrom('alice', '', 'x'.repeat(300)),
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: ['method', 'path', 'odd', 'query', 'headers'] },
)

interface Request {
  method: string
  path: string
  odd: string
  query: readonly (readonly [string, string])[]
  body?: string
  headers: object
}

const seen = new Set<number>()

const ask = async ({ method, path, odd, query, body: payload, headers }: Request): Promise<void> => {
  const url = path.replace('OP', operation).replace('CASE', caseId).replace('ODD', odd)
  const parameters = query.map(([name, value]) => `${name}=${value}`).join('&')
  const answer = await app.inject({
    method: method as 'GET',
    url: parameters === '' ? url : `${url}?${parameters}`,
    headers: headers as Record<string, string>,
    ...(payload === undefined || method === 'GET' || method === 'HEAD' ? {} : { payload }),
  })
  seen.add(answer.statusCode)
  expect(answer.statusCode).toBeLessThan(500)
  expect(answer.headers['x-request-id']).toBeTruthy()
  if (answer.statusCode >= 400) expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
}

it('answers rubbish with problems and never with a 5xx', async () => {
  await fc.assert(fc.asyncProperty(request, ask), { numRuns: RUNS })
})

it('answers what is nearly right in the same way', async () => {
  const method = fc.constantFrom('GET', 'POST')
  const headers = fc.constant({ 'content-type': 'application/json' })
  const odd = fc.constant('grant')
  const query = fc.array(fc.tuple(fc.constantFrom(...PARAMETERS), fc.constantFrom('1', 'grant', 'failed', 'running')), {
    maxLength: 1,
  })
  const path = fc.constantFrom(...PATHS)
  const nearly = fc.record({ method, path, odd, query, body, headers })
  const submitted = fc.record({
    method: fc.constant('POST'),
    path: fc.constant('/operations'),
    odd,
    query: fc.constant([]),
    body: submission.map((value) => JSON.stringify(value)),
    headers,
  })
  await fc.assert(fc.asyncProperty(fc.oneof(nearly, submitted), ask), { numRuns: RUNS })
  // The rubbish must reach the use cases too, or this says nothing.
  expect([...seen]).toEqual(expect.arrayContaining([200, 202, 400, 404, 405, 406, 409, 415, 422]))
})
