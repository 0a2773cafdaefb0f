/** `after` over HTTP: what is accepted, what is shown, and what a tenant may name. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { settleOperation } from '../../src/services/settle.ts'
import { openSubmissionWriter } from '../../src/services/submission-writer.ts'
import { submitOperation } from '../../src/services/submit.ts'
import { type Answer, type DraftApi, openDraftApi, uuidOf } from '../support/drafts.ts'
import { plantedType } from '../support/planted-operation.ts'
import { submitRequest } from '../support/submit-request.ts'

let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi([plantedType('grant'), plantedType('reviewed', { approval: 'always' })])
})
afterAll(() => api.close())

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', path, JSON.stringify(body), { 'content-type': 'application/json', ...headers })
const submit = (change: object = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  post('/operations', { type: 'grant', items: [{ key: 'a', input: {} }], ...change }, headers)
const read = async (id: string) => (await api.call('GET', `/operations/${id}`)).body
const cancel = (id: string): Promise<Answer> => post(`/operations/${id}/cancel`, { reason: 'not wanted' })
/** As its worker would leave it. */
const succeed = async (id: string): Promise<void> => {
  await api.service.database.query(
    ({ sql }) => sql`
      update operation_shards set state = 'done', cursor = to_ord, applied = to_ord - from_ord
      where operation_id = ${uuidOf(id)}::uuid`,
  )
  await settleOperation(api.service.context, 1, uuidOf(id))
}
const operations = async (): Promise<number> => {
  const [row] = await api.service.database.query(
    ({ sql }) => sql<{ n: number }>`select count(*)::int as n from operations`,
  )
  return row?.n ?? 0
}

describe('an operation with `after`', () => {
  it('waits, shows what for, and is let go', async () => {
    const [one, two] = [(await submit()).body.id, (await submit()).body.id]
    const { status, body } = await submit({ after: [two, one] })
    expect(status).toBe(202)
    expect(body).toMatchObject({ status: 'pending', after: [two, one], after_when: 'succeeded' })
    expect(body.waiting_for.sort()).toEqual([one, two].sort())
    const etag = (await api.call('GET', `/operations/${body.id}`)).headers.get('etag') ?? ''
    await succeed(one)
    const changed = await api.call('GET', `/operations/${body.id}`, undefined, { 'if-none-match': etag })
    expect([changed.status, changed.body.waiting_for]).toEqual([200, [two]])
    await succeed(two)
    expect(await read(body.id)).toMatchObject({ status: 'pending', after: [two, one], waiting_for: [] })
    const { body: events } = await api.call('GET', `/operations/${body.id}/events`)
    expect(events.items.map(({ kind }: { kind: string }) => kind)).toEqual([
      'accepted',
      'predecessor_ended',
      'released',
    ])
    expect(events.items[2]).toMatchObject({ actor: 'system:after', reason: `${two} is succeeded` })
  })

  it('is released at once when those before it have succeeded already', async () => {
    const { id } = (await submit()).body
    await succeed(id)
    expect((await submit({ after: [id] })).body).toMatchObject({ status: 'pending', waiting_for: [] })
  })

  it('is accepted and cancelled at once when one before it has failed already', async () => {
    const { id } = (await submit()).body
    await cancel(id)
    const { status, body } = await submit({ after: [id] })
    expect([status, body.status, body.cancel.requested_by]).toEqual([202, 'cancelled', 'system:after'])
    expect(body.cancel.reason).toBe(`it was to start after ${id} had succeeded, and that one is cancelled`)
    expect((await submit({ after: [id], after_when: 'settled' })).body).toMatchObject({
      status: 'pending',
      after_when: 'settled',
      waiting_for: [],
    })
  })

  it('is cancelled when one before it is cancelled or refused, and takes its own with it', async () => {
    const asked = (await submit({ type: 'reviewed' })).body.id
    const second = (await submit({ after: [asked] })).body.id
    const third = (await submit({ after: [second] })).body.id
    const refused = await post(`/operations/${asked}/approval`, { decision: 'reject' }, { 'x-principal': 'boss' })
    expect(refused.body.status).toBe('cancelled')
    expect((await read(second)).status).toBe('cancelled')
    expect((await read(third)).cancel.reason).toContain(second)
  })

  it('is cancelled at once by its caller while it waits: 200', async () => {
    const { id } = (await submit()).body
    const waiting = (await submit({ after: [id] })).body.id
    const { status, body } = await cancel(waiting)
    expect([status, body.status, body.waiting_for]).toEqual([200, 'cancelled', []])
  })

  it('is one operation per Idempotency-Key, and the key outlives what it named', async () => {
    const { id } = (await submit()).body
    const headers = { 'idempotency-key': 'after-1' }
    const first = await submit({ after: [id] }, headers)
    const again = await submit({ after: [id] }, headers)
    expect([again.status, again.body.id, again.headers.get('idempotent-replayed')]).toEqual([
      202,
      first.body.id,
      'true',
    ])
    expect((await submit({ after: [] }, headers)).body.code).toBe('idempotency-key-reused')
    expect((await submit({ after: ['rubbish'] }, headers)).body.code).toBe('idempotency-key-reused')
  })

  it('shows no wait where there is none', async () => {
    expect((await submit()).body).toMatchObject({ after: [], after_when: null, waiting_for: [] })
    expect((await submit({ after: [], after_when: 'settled' })).body).toMatchObject({ after_when: null })
  })
})

describe('a draft with `after`', () => {
  it('waits when it is started, and its end is shown', async () => {
    const { id } = (await submit()).body
    const draft = await api.draft({ after: [id] })
    expect(await read(draft)).toMatchObject({ status: 'draft', waiting_for: [id] })
    await api.upload(draft, `${JSON.stringify({ key: 'a', input: {} })}\n`)
    expect((await post(`/operations/${draft}/start`, {})).body).toMatchObject({ status: 'pending', waiting_for: [id] })
    await succeed(id)
    expect(await read(draft)).toMatchObject({ status: 'pending', waiting_for: [] })
  })
})

describe('an `after` that is refused', () => {
  it("names another tenant's operation as if it were not there, and stores nothing", async () => {
    const [mine, foreign] = [(await submit()).body.id, (await submit()).body.id]
    for (const table of ['operations', 'operation_shards']) {
      const column = table === 'operations' ? 'id' : 'operation_id'
      await api.service.database.query(({ script }) =>
        script(`update ${table} set tenant_id = 2 where ${column} = '${uuidOf(foreign)}'`),
      )
    }
    const stored = await operations()
    const { status, body } = await submit({ after: [mine, foreign] })
    expect([status, body.code, body.errors]).toEqual([
      422,
      'invalid-predecessor',
      [{ detail: 'there is no such operation', pointer: '/after/1' }],
    ])
    expect(await operations()).toBe(stored)
  })

  it('cannot close a circle: ids are made when an operation is stored, so nobody can name what is behind', async () => {
    const first = (await submit()).body.id
    const second = (await submit({ after: [first] })).body.id
    // there is no way to give `first` an `after` any more: the route that makes an operation is the only one that takes it
    const changed = await api.call('PATCH', `/operations/${first}`, JSON.stringify({ after: [second] }), {
      'content-type': 'application/json',
    })
    expect(changed.status).toBe(405)
    const itself = await submit({
      after: [second, first.replace(/.$/, (digit: string) => (digit === '0' ? '1' : '0'))],
    })
    expect([itself.status, itself.body.code]).toEqual([422, 'invalid-predecessor'])
  })
})

it('a submission without `after` is still one statement', async () => {
  const { database } = api.service
  const calls: string[] = []
  const counting = {
    ...database,
    query: (work: Parameters<typeof database.query>[0]) => {
      calls.push('query')
      return database.query(work)
    },
    transaction: (work: Parameters<typeof database.transaction>[0]) => {
      calls.push('transaction')
      return database.transaction(work)
    },
  } as typeof database
  await submitOperation(
    {
      ...api.service.context,
      database: counting,
      downloads: false,
      writeSubmission: openSubmissionWriter({ database: counting }),
    },
    { tenantId: 1, name: 'tester', scopes: ['operations:write'] },
    submitRequest('grant', [{ key: 'a', input: {} }]),
  )
  expect(calls).toEqual(['query'])
})
