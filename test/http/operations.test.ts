import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { OperationView } from '../../src/services/views.ts'
import { type Edge, openEdge } from './fake-services.ts'

let edge: Edge
beforeEach(async () => {
  edge = await openEdge()
})
afterEach(() => edge.app.close())

const urlOf = (operation: OperationView): string => `/operations/${formatId('op', operation.id)}`
const get = (operation: OperationView, headers: Record<string, string> = {}) =>
  edge.app.inject({ url: urlOf(operation), headers })
const untilWaiting = async () => {
  while (edge.fake.waiting === 0) await new Promise((resolve) => setImmediate(resolve))
}

describe('POST /operations', () => {
  const submit = (headers: Record<string, string> = {}) =>
    edge.app.inject({
      method: 'POST',
      url: '/operations',
      headers,
      payload: { type: 't', items: [{ key: 'a', input: {} }] },
    })

  it('answers 202 with where and when to look', async () => {
    const answer = await submit()
    const { id } = answer.json()
    expect(answer.statusCode).toBe(202)
    expect(answer.headers).toMatchObject({
      location: `/operations/${id}`,
      'operation-location': `/operations/${id}`,
      'retry-after': expect.stringMatching(/^\d+$/),
      etag: '"7"',
      'cache-control': 'private, no-cache',
    })
    expect(answer.headers).not.toHaveProperty('idempotent-replayed')
  })

  it('says that a submission was seen before', async () => {
    expect((await submit({ 'idempotency-key': 'seen' })).headers['idempotent-replayed']).toBe('true')
  })

  it.each([
    ['order-77', 'order-77'],
    ['"order-77"', 'order-77'],
    [' "order-77" ', 'order-77'],
    ['"a\\"b\\\\c"', 'a"b\\c'],
    ['a"b', 'a"b'],
    ['k'.repeat(255), 'k'.repeat(255)],
  ])('reads the Idempotency-Key %s', async (header, key) => {
    expect((await submit({ 'idempotency-key': header })).statusCode).toBe(202)
    expect(edge.fake.submissions.at(-1)?.idempotencyKey).toBe(key)
  })

  it('keeps a valid traceparent and drops a broken one', async () => {
    const valid = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
    await submit({ traceparent: valid })
    await submit({ traceparent: '00-xyz' })
    expect(edge.fake.submissions.map(({ traceparent }) => traceparent)).toEqual([valid, null])
  })

  it('has a Location under PUBLIC_URL', async () => {
    const named = await openEdge({ publicUrl: 'https://ops.test/v1' })
    const answer = await named.app.inject({ method: 'POST', url: '/operations', payload: { type: 't' } })
    expect(answer.headers.location).toBe(`https://ops.test/v1/operations/${answer.json().id}`)
    await named.app.close()
  })
})

describe('GET /operations/{id}', () => {
  it('keeps microseconds', async () => {
    expect((await get(edge.fake.add())).json().created_at).toBe('2026-11-29T14:20:18.123456Z')
  })

  it('says when to ask again only while there is something to ask', async () => {
    expect((await get(edge.fake.add('running'))).headers['retry-after']).toBe('1')
    expect((await get(edge.fake.add('succeeded'))).headers).not.toHaveProperty('retry-after')
  })

  it.each([
    ['"7"', 304],
    ['W/"7"', 304],
    ['*', 304],
    ['"1", "7"', 304],
    ['"6"', 200],
    ['"77"', 200],
    ['7', 200],
  ])('If-None-Match: %s → %i', async (condition, status) => {
    const answer = await get(edge.fake.add(), { 'if-none-match': condition })
    expect([answer.statusCode, answer.headers.etag]).toEqual([status, '"7"'])
    if (status === 304) expect(answer.body).toBe('')
  })

  it('waits until the version differs', async () => {
    const operation = edge.fake.add()
    const answering = get(operation, { prefer: 'wait=30', 'if-none-match': '"7"' })
    await untilWaiting()
    edge.fake.change(operation, 'running')
    const answer = await answering
    expect([answer.statusCode, answer.headers.etag, answer.headers['preference-applied']]).toEqual([
      200,
      '"8"',
      'wait=30',
    ])
  })

  it('waits without a condition until the operation is settled', async () => {
    const operation = edge.fake.add()
    const answering = get(operation, { prefer: 'respond-async, wait=30' })
    await untilWaiting()
    edge.fake.change(operation, 'running')
    expect(edge.fake.waiting).toBe(1)
    edge.fake.change(operation, 'reconciliation_required')
    expect((await answering).json().status).toBe('reconciliation_required')
  })

  it('answers at once what differs already, or is settled already', async () => {
    expect((await get(edge.fake.add(), { prefer: 'wait=30', 'if-none-match': '"6"' })).statusCode).toBe(200)
    expect((await get(edge.fake.add('failed'), { prefer: 'wait=30' })).statusCode).toBe(200)
  })

  it.each(['running', 'succeeded'] as const)('is 304 after the time when nothing changed: %s', async (status) => {
    const answer = await get(edge.fake.add(status), { prefer: 'wait=1', 'if-none-match': '"7"' })
    expect([answer.statusCode, answer.headers['preference-applied']]).toEqual([304, 'wait=1'])
    expect(edge.fake.calls.filter(({ name }) => name === 'waitForChange')).toHaveLength(1)
  })

  it.each([
    ['wait=0', 'wait=0'],
    ['wait=1000', 'wait=60'],
    ['wait="5"', 'wait=5'],
    ['wait=soon', undefined],
    ['wait=-1', undefined],
    ['return=minimal', undefined],
  ])('applies Prefer: %s as %s', async (prefer, applied) => {
    expect((await get(edge.fake.add('succeeded'), { prefer })).headers['preference-applied']).toBe(applied)
  })

  it('gives a waiting place back', async () => {
    const operation = edge.fake.add()
    const answering = get(operation, { prefer: 'wait=30' })
    await untilWaiting()
    edge.fake.change(operation, 'succeeded')
    await answering
    expect(edge.fake.waiting).toBe(0)
  })
})

describe('POST /operations/{id}/cancel', () => {
  it('waits for the settled state when asked', async () => {
    const operation = edge.fake.add()
    const answering = edge.app.inject({
      method: 'POST',
      url: `${urlOf(operation)}/cancel`,
      headers: { prefer: 'wait=30' },
    })
    await untilWaiting()
    edge.fake.change(operation, 'cancelled')
    const answer = await answering
    expect([answer.statusCode, answer.json().status, answer.headers.etag]).toEqual([202, 'cancelled', '"9"'])
  })

  it.each([undefined, '"7"', '*', '"6", "7"'])('goes ahead with If-Match: %s', async (condition) => {
    const answer = await edge.app.inject({
      method: 'POST',
      url: `${urlOf(edge.fake.add())}/cancel`,
      ...(condition === undefined ? {} : { headers: { 'if-match': condition } }),
    })
    expect(answer.statusCode).toBe(202)
  })
})

describe('GET /operations', () => {
  it('pages without loss and links the next page', async () => {
    for (let i = 0; i < 7; i++) edge.fake.add()
    const seen: string[] = []
    let url: string | undefined = '/operations?label.batch=L%207&limit=3'
    while (url !== undefined) {
      const answer = await edge.app.inject(url)
      expect(answer.statusCode).toBe(200)
      seen.push(...answer.json().items.map(({ id }: { id: string }) => id))
      const link = answer.headers.link as string | undefined
      expect(link === undefined).toBe(answer.json().next_cursor === undefined)
      url = link === undefined ? undefined : /^<(.+)>; rel="next"$/.exec(link)?.[1]
    }
    expect(seen).toEqual(edge.fake.operations.map(({ id }) => formatId('op', id)))
  })

  it('refuses a cursor with other filters, and one of another list', async () => {
    for (let i = 0; i < 2; i++) edge.fake.add()
    const { next_cursor: cursor } = (await edge.app.inject('/operations?limit=1&type=a')).json()
    expect((await edge.app.inject(`/operations?limit=2&type=a&cursor=${cursor}`)).statusCode).toBe(200)
    for (const url of [
      `/operations?limit=1&type=b&cursor=${cursor}`,
      `/operations?limit=1&cursor=${cursor}`,
      `/reconciliation?type=a&cursor=${cursor}`,
      `/operations?type=a&cursor=${cursor}x`,
      `/operations?type=a&cursor=${cursor.slice(0, -4)}`,
    ]) {
      const answer = await edge.app.inject(url)
      expect([answer.statusCode, answer.json().code]).toEqual([400, 'invalid-cursor'])
    }
  })

  it('lets no forged position through to storage', async () => {
    for (let i = 0; i < 2; i++) edge.fake.add()
    const { next_cursor: cursor } = (await edge.app.inject('/operations?limit=1')).json()
    const [hash] = JSON.parse(Buffer.from(cursor, 'base64url').toString())
    const positions = [
      { createdAt: 'x', id: 'y' },
      { createdAt: '2026-13-01 00:00:00+00', id: crypto.randomUUID() },
      5,
      null,
    ]
    for (const position of positions) {
      const forged = Buffer.from(JSON.stringify([hash, position])).toString('base64url')
      expect((await edge.app.inject(`/operations?cursor=${forged}`)).json().code).toBe('invalid-cursor')
    }
  })

  it.each([
    ['', 50],
    ['?limit=1', 1],
    ['?limit=500', 500],
    ['?limit=501', 500],
    ['?limit=999999999999999', 500],
  ])('limits %s to %i', async (query, limit) => {
    await edge.app.inject(`/operations${query}`)
    const call = edge.fake.calls.find(({ name }) => name === 'listOperations')
    expect(call?.arguments[2]).toMatchObject({ limit })
  })

  it('reads its filters', async () => {
    const id = crypto.randomUUID()
    await edge.app.inject(
      `/operations?status=running,paused&type=t&requested_by=a%2Bb+c&label.x=1&label.a.b=%C3%BC&replay_of=${formatId('op', id)}&created_after=2026-01-01T00:00:00.123456Z&item_key=user%2F1&effect_key=k%3A1`,
    )
    const call = edge.fake.calls.find(({ name }) => name === 'listOperations')
    expect(call?.arguments[1]).toEqual({
      status: ['running', 'paused'],
      type: 't',
      requestedBy: 'a+b c',
      labels: { 'a.b': 'ü', x: '1' },
      createdAfter: '2026-01-01T00:00:00.123456Z',
      createdBefore: null,
      replayOf: id,
      itemKey: 'user/1',
      effectKey: 'k:1',
    })
  })

  it('lists nothing for an id that cannot be', async () => {
    edge.fake.add()
    expect((await edge.app.inject('/operations?replay_of=nope')).json()).toEqual({ items: [] })
    expect((await edge.app.inject('/reconciliation?operation_id=nope')).json()).toEqual({ items: [] })
  })
})
