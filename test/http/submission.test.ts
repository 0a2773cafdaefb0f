/** POST /operations with the real use cases on a real database: what is refused stores nothing, what is accepted once. */
import { request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import postgres from 'postgres'
import supertest from 'supertest'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Json } from '../../src/domain/operation-type.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { loadOperationTypes, type TypeRegistry } from '../../src/operation-types/registry.ts'
import { assembleServices } from '../../src/services/assemble.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { openWakeUps } from '../../src/storage/wake-ups.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { plantedType } from '../support/planted-operation.ts'
import { until } from '../support/processes.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

const ROLE_INPUT: { [member: string]: Json } = {
  type: 'object',
  required: ['role'],
  properties: { role: { type: 'string' }, size: { type: 'number' }, user: { type: 'string' } },
}
const typeFile = writeTypeFile([
  grantType('grant', { input: ROLE_INPUT }),
  grantType('strict', { idempotency_key: 'required' }),
  grantType('per-user', { input: ROLE_INPUT, effect_key: 'u:{input.user}' }),
])
/** What reached the executor, by item key. */
const received = new Map<string, Json>()
const echo = plantedType('echo', {
  leaseMs: 2_000,
  executor: {
    kind: 'external',
    callTimeoutMs: 1_000,
    send: async ({ itemKey, input }) => {
      received.set(itemKey, input)
      return { outcome: { state: 'applied' }, downstreamError: false }
    },
    lookup: null,
  },
})

interface Instance {
  app: App
  database: Database
  close(): Promise<void>
}

/** One api as src/api.ts puts it together, in this process. */
const openInstance = async (url: string, registry: TypeRegistry): Promise<Instance> => {
  const database = openDatabase({ url, size: 4, name: 'submission test' })
  const wakeUps = openWakeUps({ url, name: 'submission test', onFault: () => {} })
  const types = {
    get: (name: string) => (name === echo.name ? echo : registry.get(name)),
    list: () => [...registry.list(), echo],
  }
  const services = assembleServices({ database, types, wakeUps })
  const app = await buildServer({
    services,
    config: { auth: 'off', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    app,
    database,
    async close() {
      await app.close()
      await services.close()
      await wakeUps.close()
      await database.close()
    },
  }
}

let testDatabase: TestDatabase
let registry: TypeRegistry
let first: Instance
let second: Instance
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  registry = await loadOperationTypes({
    paths: [typeFile.file],
    env: { EFFECTS_URL: 'http://127.0.0.1:9' },
    secrets: () => undefined,
  })
  first = await openInstance(testDatabase.url, registry)
  second = await openInstance(testDatabase.url, registry)
})
afterAll(async () => {
  await first.close()
  await second.close()
  await registry.close()
  await testDatabase.drop()
  typeFile.remove()
})

const api = () => supertest(first.app.server)
const post = (body: unknown, headers: Record<string, string> = {}) =>
  api()
    .post('/operations')
    .set({ 'content-type': 'application/json', ...headers })
    .send(typeof body === 'string' ? body : JSON.stringify(body))
const grant = (change: object = {}) => ({ type: 'grant', items: [{ key: 'a', input: { role: 'r' } }], ...change })
const item = (input: unknown, key = 'a') => grant({ items: [{ key, input }] })
const count = async (): Promise<{ operations: number; items: number; shards: number; events: number }> => {
  const [row] = await first.database.query(
    ({ sql }) => sql<{ operations: number; items: number; shards: number; events: number }>`
      select (select count(*)::int from operations) as operations, (select count(*)::int from operation_items) as items,
        (select count(*)::int from operation_shards) as shards, (select count(*)::int from operation_events) as events`,
  )
  if (!row) throw new Error('a count has a row')
  return row
}
const storedWith = (key: string) =>
  first.database.query(
    ({ sql }) => sql<{ id: string }>`select id::text as id from operations where idempotency_key = ${key}`,
  )

const nested = (depth: number) =>
  `{"type":"grant","items":[{"key":"a","input":${'['.repeat(depth)}${']'.repeat(depth)}}]}`
const manyItems = (size: number) => Array.from({ length: size }, (_, i) => ({ key: `k${i}`, input: { role: 'r' } }))
const labels = (size: number) => Object.fromEntries(Array.from({ length: size }, (_, i) => [`l${i}`, 'x']))
const duplicated = ['a', 'b', 'a'].map((key) => ({ key, input: { role: 'r' } }))
const halfInvalid = [
  { key: 'a', input: { role: 'r' } },
  { key: 'b', input: { role: 7 } },
  { key: 'c', input: 'text' },
]

const NOBODY = `op_${'0'.repeat(32)}`

type Refusal = [name: string, body: unknown, status: number, code: string, pointers?: string[]]

describe('a submission that is refused stores nothing', () => {
  const REFUSALS: Refusal[] = [
    ['an unknown type', grant({ type: 'nope' }), 422, 'unknown-operation-type', ['/type']],
    ['a key that is there twice', grant({ items: duplicated }), 422, 'duplicate-item-key', ['/items/2/key']],
    [
      'inputs that the type refuses',
      grant({ items: halfInvalid }),
      422,
      'invalid-item-input',
      ['/items/1/input/role', '/items/2/input'],
    ],
    ['a member that is missing', item({}), 422, 'invalid-item-input', ['/items/0/input/role']],
    ['a hole in an effect key', { ...item({ role: 'r' }), type: 'per-user' }, 422, 'invalid-item-input'],
    [
      'an effect key of 3,000 bytes (case 37)',
      { ...item({ role: 'r', user: 'u'.repeat(3_000) }), type: 'per-user' },
      422,
      'invalid-item-input',
    ],
    ['10,001 items', grant({ items: manyItems(10_001) }), 422, 'too-many-items', ['/items']],
    ['no items', { type: 'grant' }, 422, 'items-missing', ['/items']],
    ['an empty list of items', grant({ items: [] }), 422, 'items-missing', ['/items']],
    ['a key that the type needs', grant({ type: 'strict' }), 400, 'idempotency-key-required'],
    ['a callback', grant({ callback_url: 'https://x.test/' }), 422, 'webhooks-not-configured', ['/callback_url']],
    ['a predecessor that is nobody', grant({ after: [NOBODY] }), 422, 'invalid-predecessor', ['/after/0']],
    [
      'predecessors that are no ids',
      grant({ after: ['x', NOBODY, 'op_1'] }),
      422,
      'invalid-predecessor',
      ['/after/0', '/after/2'],
    ],
    ['a predecessor that is there twice', grant({ after: [NOBODY, NOBODY] }), 422, 'invalid-predecessor', ['/after/1']],
    ['101 predecessors', grant({ after: Array(101).fill(NOBODY) }), 400, 'invalid-request', ['/after']],
    [
      'a wish that nobody knows',
      grant({ after: [NOBODY], after_when: 'failed' }),
      400,
      'invalid-request',
      ['/after_when'],
    ],
    ['a looser stop condition', grant({ stop_if: ['ambiguous_effect_targets > 5'] }), 400, 'invalid-request'],
    ['a stop condition that is none', grant({ stop_if: ['rubbish'] }), 400, 'invalid-request', ['/stop_if/0']],
    ['a time that is none', grant({ run_after: 'tomorrow' }), 400, 'invalid-request', ['/run_after']],
    ['a priority out of bounds', grant({ priority: 1_001 }), 400, 'invalid-request', ['/priority']],
    ['a member that nobody knows', grant({ colour: 1 }), 400, 'invalid-request', ['/colour']],
    ['U+0000 in an input (case 65)', item({ role: 'a\u0000' }), 400, 'invalid-text', ['/items/0/input/role']],
    ['U+0000 in a key', item({ role: 'r' }, 'a\u0000'), 400, 'invalid-text', ['/items/0/key']],
    ['half a surrogate pair (case 67)', item({ role: '\ud800' }), 400, 'invalid-text', ['/items/0/input/role']],
    ['the other half in a label', grant({ labels: { a: '\udc00x' } }), 400, 'invalid-text', ['/labels/a']],
    [
      '__proto__',
      '{"type":"grant","items":[{"key":"a","input":{"__proto__":{"role":"r"}}}]}',
      400,
      'invalid-request',
      ['/items/0/input/__proto__'],
    ],
    [
      'constructor',
      '{"type":"grant","labels":{"constructor":"x"},"items":[{"key":"a","input":{"role":"r"}}]}',
      400,
      'invalid-request',
      ['/labels/constructor'],
    ],
    ['a depth of 50,000 (case 77)', nested(50_000), 400, 'invalid-request'],
    ['a depth of 33', nested(31), 400, 'invalid-request'],
    [
      'a number beyond 2^53',
      '{"type":"grant","items":[{"key":"a","input":{"role":"r","size":9007199254740993}}]}',
      400,
      'invalid-request',
      ['/items/0/input/size'],
    ],
    [
      'an endless number',
      '{"type":"grant","items":[{"key":"a","input":{"role":"r","size":1e400}}]}',
      400,
      'invalid-request',
      ['/items/0/input/size'],
    ],
    ['33 labels', grant({ labels: labels(33) }), 400, 'invalid-request', ['/labels']],
    ['a label of 256 bytes', grant({ labels: { a: 'ä'.repeat(128) } }), 400, 'invalid-request', ['/labels/a']],
    ['a label name of 256 bytes', grant({ labels: { ['ä'.repeat(128)]: 'x' } }), 400, 'invalid-request'],
    ['an item key of 256 bytes', item({ role: 'r' }, 'ä'.repeat(128)), 400, 'invalid-request', ['/items/0/key']],
    ['half a body', '{"type":"grant","items":[', 400, 'malformed-json'],
    ['no body', '', 400, 'invalid-request'],
    ['a body over 10 MiB', item({ role: 'x'.repeat(10 * 1024 * 1024) }), 413, 'body-too-large'],
  ]
  it.each(REFUSALS)('%s', async (_name, body, status, code, pointers) => {
    const before = await count()
    const answer = await post(body)
    expect([answer.status, answer.body.code]).toEqual([status, code])
    expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
    if (pointers) {
      const faults = answer.body.errors.map((fault: { pointer: string }) => fault.pointer)
      expect(faults).toEqual(pointers)
    }
    expect(await count()).toEqual(before)
  })

  it.each(['k'.repeat(3_000), 'k'.repeat(256), '""', 'a b', '"a'])('the Idempotency-Key %# (case 37)', async (key) => {
    const before = await count()
    const answer = await post(grant(), { 'idempotency-key': key })
    expect([answer.status, answer.body.code]).toEqual([400, 'invalid-request'])
    expect(answer.body.errors).toMatchObject([{ pointer: 'Idempotency-Key' }])
    expect(await count()).toEqual(before)
  })

  it('a cursor that is none, or of another list', async () => {
    for (const path of ['/operations?cursor=rubbish', '/reconciliation?cursor=WyJhIiwxXQ']) {
      const answer = await api().get(path)
      expect([answer.status, answer.body.code]).toEqual([400, 'invalid-cursor'])
    }
  })
})

describe('an Idempotency-Key', () => {
  // F15
  it('names one operation, however its body is written, and refuses another one (case 35)', async () => {
    const headers = { 'idempotency-key': '"order-1"' }
    const answer = await post('{"type":"grant","items":[{"key":"a","input":{"role":"r","size":1}}]}', headers)
    expect(answer.status).toBe(202)
    expect(answer.headers).not.toHaveProperty('idempotent-replayed')
    const same = await post(
      '{ "items": [ {"input": {"size": 1.0, "role": "\\u0072"}, "key":"a"} ],\n "type":"grant"}',
      {
        'idempotency-key': 'order-1',
      },
    )
    expect([same.status, same.body.id, same.headers['idempotent-replayed']]).toEqual([202, answer.body.id, 'true'])
    expect(same.headers.location).toBe(answer.headers.location)
    const before = await count()
    for (const other of ['{"type":"grant","items":[{"key":"a","input":{"role":"r","size":2}}]}', '{"type":"grant"}']) {
      const reused = await post(other, headers)
      expect(reused.status).toBe(422)
      expect(reused.body.code).toBe('idempotency-key-reused')
    }
    expect(await count()).toEqual(before)
  })

  it('gives a client that went away before the answer its operation (case 39)', async () => {
    const key = 'left-early'
    const body = JSON.stringify(grant())
    const locker = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
    await locker`begin`.simple()
    await locker`lock table operations in share mode`.simple()
    const { port } = first.app.server.address() as AddressInfo
    const headers = { 'content-type': 'application/json', 'idempotency-key': key }
    const leaving = httpRequest({ port, path: '/operations', method: 'POST', headers })
    leaving.on('error', () => {})
    leaving.end(body)
    await until('the statement waits', async () => {
      const rows = await first.database.query(
        ({ sql }) =>
          sql`select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
      )
      return rows.length > 0
    })
    leaving.destroy()
    await locker`commit`.simple()
    await locker.end()
    await until('it is stored', async () => (await storedWith(key)).length === 1)
    const answer = await post(body, { 'idempotency-key': key })
    expect([answer.status, answer.headers['idempotent-replayed']]).toEqual([202, 'true'])
    expect(await storedWith(key)).toEqual([{ id: uuidOf(answer.body.id) }])
  })

  // F14
  it('names one operation for 100 clients at two instances', async () => {
    const key = 'crowd'
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        supertest((i % 2 === 0 ? first : second).app.server)
          .post('/operations')
          .set('idempotency-key', key)
          .send(grant({ reason: 'crowd' })),
      ),
    )
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
    expect(answers.filter(({ headers }) => headers['idempotent-replayed'] !== 'true')).toHaveLength(1)
    const ids = new Set(answers.map(({ body }) => body.id as string))
    expect(ids.size).toBe(1)
    expect(await storedWith(key)).toEqual([{ id: uuidOf([...ids][0] ?? '') }])
  })
})

const uuidOf = (id: string): string =>
  id.replace(/^op_(.{8})(.{4})(.{4})(.{4})(.{12})$/, (_id, ...parts) => parts.slice(0, 5).join('-'))

describe('a submission that is accepted', () => {
  it('answers with ids that are texts, and where to look', async () => {
    const { status, body, headers } = await post(grant({ labels: { team: 'a' }, priority: 3 }))
    expect(status).toBe(202)
    expect(body.id).toMatch(/^op_[0-9a-f]{32}$/)
    expect(headers.location).toBe(`/operations/${body.id}`)
    const read = await api().get(headers.location ?? '')
    expect(read.body).toMatchObject({ id: body.id, status: 'pending', labels: { team: 'a' }, priority: 3 })
  })

  it.each([7_900, 8_100, 200_000])('of %i bytes (case 61)', async (size) => {
    const answer = await post(item({ role: 'r'.repeat(size) }))
    expect(answer.status).toBe(202)
    const [row] = await first.database.query(
      ({ sql }) => sql<{ role: number }>`
        select length(input ->> 'role') as role from operation_items where operation_id = ${uuidOf(answer.body.id)}::uuid`,
    )
    expect(row?.role).toBe(size)
  })

  it('reaches its executor with the types and values it was sent with, and is counted in numbers (case 69, case 75)', async () => {
    const inputs: Json[] = [
      '10.5',
      'true',
      'null',
      '{}',
      '"q"',
      10.5,
      true,
      null,
      {},
      [],
      [1, '1'],
      '\\u0000 ä 😀',
      -0.1,
    ]
    const engine = await startTestEngine({ url: testDatabase.url, types: [echo] })
    try {
      const items = inputs.map((input, i) => ({ key: `i${i}`, input }))
      const { body } = await post({ type: 'echo', items })
      await until('it is done', async () => {
        const { body: now } = await api().get(`/operations/${body.id}`)
        return now.status === 'succeeded'
      })
      expect(items.map(({ key }) => received.get(key))).toStrictEqual(inputs)
      const done = await api().get(`/operations/${body.id}`)
      const total = inputs.length
      const counts = { total, applied: total, skipped: 0, failed: 0, uncertain: 0, unprocessed: 0, in_flight: 0 }
      expect(done.body).toMatchObject({ counts, failures: {}, progress: { ratio: 1 } })
      const listed = await api().get('/operations?type=echo')
      expect(listed.body.items[0].counts).toStrictEqual(counts)
      const outcomes = await api().get(`/operations/${body.id}/items?limit=1`)
      expect(outcomes.body.items[0]).toMatchObject({ key: 'i0', ord: 0, attempt: 1 })
      const report = await api().get('/health-report')
      expect(JSON.stringify(report.body)).not.toMatch(/"value":"/)
    } finally {
      await engine.drain()
    }
  })
})

it('takes a cancel without a body, with an empty one, with {} and with null alike (case 83)', async () => {
  const json = { 'content-type': 'application/json' }
  const forms: [headers: Record<string, string>, body: string | undefined][] = [
    [json, undefined],
    [{}, undefined],
    [json, '{}'],
    [json, 'null'],
  ]
  for (const [headers, body] of forms) {
    const submitted = await post(grant())
    const answer = await api().post(`/operations/${submitted.body.id}/cancel`).set(headers).send(body)
    expect([answer.status, answer.body.status]).toEqual([200, 'cancelled'])
  }
})
