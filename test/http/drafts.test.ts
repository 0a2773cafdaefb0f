/** Drafts with the real use cases on a real database: what is added, what is refused, and that a refusal adds nothing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadOperationTypes, type TypeRegistry } from '../../src/operation-types/registry.ts'
import { CSV, type DraftApi, line, lines, NDJSON, openDraftApi, uuidOf } from '../support/drafts.ts'
import { plantedType } from '../support/planted-operation.ts'
import { until } from '../support/processes.ts'
import { untilStatus } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

const INPUT = {
  type: 'object',
  required: ['role'],
  properties: {
    role: { type: 'string' },
    size: { type: 'integer' },
    ratio: { type: ['number', 'null'] },
    active: { type: 'boolean' },
  },
}
const typeFile = writeTypeFile([
  grantType('grant', { input: INPUT, parallelism: 2, concurrency: 10 }),
  grantType('approved', { input: INPUT, approval: 'always' }),
  grantType('strict', { input: INPUT, idempotency_key: 'required' }),
])
const echo = plantedType('echo', {
  executor: {
    kind: 'external',
    callTimeoutMs: 1_000,
    send: async () => ({ outcome: { state: 'applied' }, downstreamError: false }),
    lookup: null,
  },
})

let registry: TypeRegistry
let api: DraftApi
beforeAll(async () => {
  registry = await loadOperationTypes({
    paths: [typeFile.file],
    env: { EFFECTS_URL: 'http://127.0.0.1:1' },
    secrets: () => undefined,
  })
  api = await openDraftApi([...registry.list().filter(({ name }) => name === 'grant'), ...registry.list(), echo])
})
afterAll(async () => {
  await api.close()
  await registry.close()
  typeFile.remove()
})

const start = (id: string, headers = {}) => api.call('POST', `/operations/${id}/start`, undefined, headers)
const totalOf = async (id: string): Promise<number> => (await api.call('GET', `/operations/${id}`)).body.counts.total
const expectNothingAdded = async (id: string, total = 0): Promise<void> => {
  expect(await totalOf(id)).toBe(total)
  expect((await api.call('GET', `/operations/${id}/items`)).body.items).toHaveLength(total)
  await until('the upload is given up', async () => !(await api.openUploads(id)).includes('live'))
}

describe('POST /operations with draft', () => {
  const submit = (body: object, headers = {}) =>
    api.call('POST', '/operations', JSON.stringify({ type: 'grant', draft: true, ...body }), {
      'content-type': 'application/json',
      ...headers,
    })

  it('stores a draft without items, that nobody can claim', async () => {
    const answer = await submit({})
    expect(answer.status).toBe(202)
    expect(answer.body).toMatchObject({ status: 'draft', counts: { total: 0 } })
    expect((await api.call('GET', `/operations/${answer.body.id}/checkpoints`)).body.items).toEqual([])
  })

  it('keeps the items that came with it, and adds to them', async () => {
    const { body } = await submit({ items: [{ key: 'a', input: { role: 'x' } }] })
    expect(body.counts.total).toBe(1)
    expect((await api.upload(body.id, line('b'))).body).toEqual({ added: 1, total: 2 })
    expect((await api.upload(body.id, line('a'))).body).toMatchObject({
      code: 'duplicate-item-key',
      errors: [{ line: 1, detail: 'line 1: the key "a" is in the draft already' }],
    })
  })

  it('knows its idempotency key', async () => {
    const key = { 'idempotency-key': 'draft-1' }
    const [first, second] = [await submit({}, key), await submit({}, key)]
    expect(second.body.id).toBe(first.body.id)
    expect(second.headers.get('idempotent-replayed')).toBe('true')
    expect((await submit({ type: 'strict' })).body.code).toBe('idempotency-key-required')
  })
})

describe('uploads', () => {
  it('reads NDJSON: blank lines, CRLF, a mark at the start, no line feed at the end', async () => {
    const id = await api.draft()
    const answer = await api.upload(id, `\uFEFF${line('a').trim()}\r\n\n  \n${line('b')}${line('c').trim()}`)
    expect([answer.status, answer.body]).toEqual([200, { added: 3, total: 3 }])
    const { body } = await api.call('GET', `/operations/${id}/items`)
    expect(body.items.map(({ key, ord }: { key: string; ord: number }) => [key, ord])).toEqual([
      ['a', 0],
      ['b', 1],
      ['c', 2],
    ])
  })

  it('reads CSV: the key column, quotes, and numbers where the type asks for them', async () => {
    const id = await api.draft()
    const csv = 'role,user,size,ratio,active,note\r\n"a ""b"", c",u1,7,1.5,true,9\r\n\r\nx,u2,,,,"two\nlines"\n'
    expect((await api.upload(id, csv, CSV, '?key=user')).body).toEqual({ added: 2, total: 2 })
    const rows = await api.service.database.query(
      ({ sql }) => sql`
        select item_key, input from operation_items where operation_id = ${uuidOf(id)}::uuid order by ord`,
    )
    expect(rows).toEqual([
      { item_key: 'u1', input: { role: 'a "b", c', size: 7, ratio: 1.5, active: true, note: '9' } },
      { item_key: 'u2', input: { role: 'x', note: 'two\nlines' } },
    ])
  })

  it.each([
    ['an input that the type refuses', `${line('a')}${line('b', { role: 5 })}`, 'invalid-item-input', 2, '/input/role'],
    ['JSON that is none', `\n${line('a')}{"key":\n`, 'invalid-row', 3, ''],
    ['a key too many', `${line('a')}{"key":"b","input":{},"x":1}\n`, 'invalid-row', 2, '/x'],
    ['no input', '{"key":"b"}', 'invalid-row', 1, '/input'],
    ['no object', '7', 'invalid-row', 1, ''],
    ['an empty key', line(''), 'invalid-row', 1, '/key'],
    ['a long key', line('ü'.repeat(128)), 'invalid-row', 1, '/key'],
    ['U+0000', '{"key":"a","input":{"role":"\\u0000"}}', 'invalid-row', 1, '/input/role'],
    ['half a pair', '{"key":"a\\ud800","input":{}}', 'invalid-row', 1, '/key'],
    ['a key into prototypes', '{"key":"a","input":{"__proto__":1}}', 'invalid-row', 1, '/input/__proto__'],
    ['a rounded number', '{"key":"a","input":{"role":"x","size":9007199254740993}}', 'invalid-row', 1, '/input/size'],
    ['deep nesting', `{"key":"a","input":${'['.repeat(40)}${']'.repeat(40)}}`, 'invalid-row', 1, ''],
    ['a repeated key', `${line('a')}${line('b')}\n${line('a')}`, 'duplicate-item-key', 4, '/key'],
  ])('names the line of %s, and adds nothing', async (_, body, code, number, pointer) => {
    const id = await api.draft()
    const answer = await api.upload(id, body)
    expect([answer.status, answer.body.code]).toEqual([422, code])
    expect(answer.body.errors[0]).toMatchObject({ line: number, pointer })
    expect(answer.body.errors[0].detail).toMatch(new RegExp(`^line ${number}: `))
    await expectNothingAdded(id)
  })

  it('refuses a bad row behind many good ones, whose chunks are stored already, and the next upload starts afresh', async () => {
    const id = await api.draft()
    expect((await api.upload(id, line('first'))).status).toBe(200)
    const answer = await api.upload(id, `${lines(11_000)}${line('bad', {})}`)
    expect(answer.body).toMatchObject({
      code: 'invalid-item-input',
      errors: [{ line: 11_001, pointer: '/input/role' }],
    })
    expect(await api.rows(id)).toBeGreaterThanOrEqual(10_001)
    await expectNothingAdded(id, 1)
    const { body } = await api.call('POST', `/operations/${id}/replay-preflight`)
    expect(body.unprocessed_targets).toBe(1)

    expect((await api.upload(id, lines(300))).body).toEqual({ added: 300, total: 301 })
    expect(await api.rows(id)).toBe(301)
  })

  it('names at most 100 faults, and a key repeated over chunks by its row', async () => {
    const id = await api.draft()
    const bad = await api.upload(id, Array.from({ length: 150 }, (_, n) => line(`k${n}`, {})).join(''))
    expect(bad.body.errors).toHaveLength(100)
    const twice = await api.upload(id, `${lines(6_000)}${line('k3')}`)
    expect(twice.body.errors).toEqual([
      { line: 6_001, pointer: '/key', detail: 'line 6001: the key "k3" is that of row 4 too' },
    ])
    await expectNothingAdded(id)
  })

  it.each([
    ['nothing', '', NDJSON],
    ['blank lines', '\n\n', NDJSON],
    ['a header only', 'key,role\n', CSV],
    ['nothing as CSV', '', CSV],
  ])('refuses %s', async (_, body, headers) => {
    const id = await api.draft()
    const answer = await api.upload(id, body, headers)
    expect([answer.status, answer.body.code]).toEqual([422, 'items-missing'])
  })

  it('is the same upload when it is sent again with its key', async () => {
    const id = await api.draft()
    const headers = { ...NDJSON, 'idempotency-key': 'part-1' }
    const first = await api.upload(id, lines(10), headers)
    const again = await api.upload(id, lines(10), headers)
    expect([again.status, again.body]).toEqual([200, first.body])
    expect([first, again].map((answer) => answer.headers.get('idempotent-replayed'))).toEqual([null, 'true'])
    expect((await api.upload(id, lines(11), headers)).body.code).toBe('idempotency-key-reused')
    expect((await api.upload(id, lines(10), { ...headers, ...CSV })).body.code).toBe('idempotency-key-reused')
    expect(await totalOf(id)).toBe(10)
    await start(id)
    expect((await api.upload(id, lines(10), headers)).body).toEqual({ added: 10, total: 10 })
  })

  it('may be repeated after a refusal with the same key', async () => {
    const id = await api.draft()
    const headers = { ...NDJSON, 'idempotency-key': 'part-2' }
    expect((await api.upload(id, line('a', {}), headers)).status).toBe(422)
    expect((await api.upload(id, line('a'), headers)).body).toEqual({ added: 1, total: 1 })
  })

  it('refuses other media types, other charsets, unknown parameters and old versions', async () => {
    const id = await api.draft()
    for (const type of ['application/json', 'text/plain', 'text/csv; charset=utf-16', '']) {
      expect((await api.upload(id, line('a'), type === '' ? {} : { 'content-type': type })).body.code).toBe(
        'unsupported-media-type',
      )
    }
    expect((await api.call('POST', `/operations/${id}/items`)).status).toBe(415)
    expect((await api.upload(id, line('a'), NDJSON, '?keys=user')).status).toBe(400)
    expect((await api.upload(id, line('a'), { ...NDJSON, 'if-match': '"99"' })).status).toBe(412)
    expect((await api.upload('op_00000000000000000000000000000000', line('a'))).status).toBe(404)
    expect((await api.call('POST', '/operations', line('a'), NDJSON)).body.code).toBe('unsupported-media-type')
    await expectNothingAdded(id)
  })
})

describe('POST /operations/{id}/start', () => {
  it('fixes the items, which then run', async () => {
    const id = await api.draft({ type: 'echo' })
    await api.upload(id, lines(60))
    const answer = await start(id)
    expect([answer.status, answer.body.status]).toEqual([202, 'pending'])
    expect(answer.headers.get('etag')).toBe(`"${answer.body.version}"`)
    const { body } = await api.call('GET', `/operations/${id}/events`)
    expect(body.items.map(({ kind }: { kind: string }) => kind)).toEqual(['accepted', 'items_added', 'draft_closed'])
    const engine = await startTestEngine({ url: api.service.url, types: [echo] })
    try {
      const done = await untilStatus(api.service, uuidOf(id), 'succeeded')
      expect(done.counts).toMatchObject({ total: 60, applied: 60 })
    } finally {
      await engine.drain()
    }
  })

  it('makes shards as a submission does', async () => {
    const id = await api.draft()
    await api.upload(id, lines(25))
    await start(id)
    const { body } = await api.call('GET', `/operations/${id}/checkpoints`)
    expect(body.items).toMatchObject([
      { shard: 0, from_ord: 0, to_ord: 12, cursor: 0, state: 'ready' },
      { shard: 1, from_ord: 12, to_ord: 25, cursor: 12, state: 'ready' },
    ])
  })

  it('leaves a type that wants it to an approval', async () => {
    const id = await api.draft({ type: 'approved' })
    await api.upload(id, line('a'))
    expect((await start(id)).body.status).toBe('awaiting_approval')
  })

  it('takes no approval of whoever has uploaded items to it, or has started it', async () => {
    const as = (name: string) => ({ 'x-principal': name })
    const decide = (id: string, name: string, decision = 'approve') =>
      api.call('POST', `/operations/${id}/approval`, JSON.stringify({ decision }), {
        'content-type': 'application/json',
        ...as(name),
      })
    const waiting = async (): Promise<string> => {
      const id = await api.draft({ type: 'approved' })
      await api.upload(id, line('a'), { ...NDJSON, ...as('uploader') })
      expect((await start(id, as('starter'))).body.status).toBe('awaiting_approval')
      return id
    }
    const id = await waiting()
    for (const name of ['dev', 'uploader', 'starter']) {
      for (const decision of ['approve', 'reject']) {
        const answer = await decide(id, name, decision)
        expect([name, answer.status, answer.body.code]).toEqual([name, 403, 'self-approval'])
      }
    }
    expect((await decide(id, 'stranger')).body.status).toBe('pending')
    // of another draft they know nothing
    const other = await api.draft({ type: 'approved' })
    await api.upload(other, line('a'))
    await start(other)
    expect((await decide(other, 'uploader')).body.status).toBe('pending')
    expect((await decide(await waiting(), 'stranger', 'reject')).body.status).toBe('cancelled')
  })

  it('refuses an empty draft, an old version, and a second start', async () => {
    const id = await api.draft()
    expect((await start(id)).body.code).toBe('items-missing')
    await api.upload(id, line('a'))
    expect((await start(id, { 'if-match': '"1"' })).body.code).toBe('version-conflict')
    expect((await start(id, { 'if-match': '"2"' })).status).toBe(202)
    expect((await start(id)).body).toMatchObject({ code: 'operation-not-draft', operation_status: 'pending' })
    expect((await api.upload(id, line('b'))).body.code).toBe('operation-not-draft')
  })

  it('refuses what was cancelled', async () => {
    const id = await api.draft()
    await api.upload(id, line('a'))
    const cancelled = await api.call('POST', `/operations/${id}/cancel`)
    expect([cancelled.status, cancelled.body.status]).toEqual([200, 'cancelled'])
    expect((await start(id)).body).toMatchObject({ code: 'operation-not-draft', operation_status: 'cancelled' })
    expect((await api.upload(id, line('b'))).status).toBe(409)
  })
})
