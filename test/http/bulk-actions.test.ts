/** Bulk actions over HTTP: what is refused stores nothing, and what each state allows. */
import { createHash } from 'node:crypto'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formatId, parseId } from '../../src/domain/ids.ts'
import { bulkActions } from '../../src/maintenance/bulk-actions.ts'
import { type Answer, type DraftApi, openDraftApi } from '../support/drafts.ts'
import { plantedType, plantOperation } from '../support/planted-operation.ts'
import { wipe } from '../support/races.ts'
import { openEdge } from './fake-services.ts'

let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi([plantedType('grant')])
})
afterAll(() => api.close())
beforeEach(() => wipe(api.service.database))

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', path, typeof body === 'string' ? body : JSON.stringify(body), {
    'content-type': 'application/json',
    ...headers,
  })
const get = (path: string): Promise<Answer> => api.call('GET', path)
const bulk = (change: object = {}) => ({ action: 'cancel', filter: { type: 'grant' }, reason: 'incident 7', ...change })
const plant = async (status: 'running' | 'failed' = 'running'): Promise<string> => {
  const items =
    status === 'failed'
      ? [{ key: 'a', entries: [{ state: 'failed', failureClass: 'transient' } as const] }]
      : [{ key: 'a' }]
  return formatId('op', await plantOperation(api.service.database, { type: 'grant', status, items }))
}
/** As a worker would, all waits passed over. */
const work = async (path: string): Promise<void> => {
  const service = bulkActions(api.service.context, pino({ level: 'silent' }))
  for (let runs = 0; (await get(path)).body.completed_at === null; runs++) {
    expect(runs).toBeLessThan(100)
    await api.service.database.query(({ sql }) => sql`update bulk_actions set next_at = clock_timestamp()`)
    await service.runOnce()
  }
}

describe('POST /bulk-actions', () => {
  it('freezes the targets and does nothing, unless it is told to; then it is started', async () => {
    const ids = [await plant(), await plant()]
    const { status, headers, body } = await post(
      '/bulk-actions',
      bulk({ filter: { status: ['running'], type: 'grant' } }),
    )
    expect(status).toBe(202)
    expect(body).toMatchObject({
      action: 'cancel',
      status: 'dry_run',
      filter: { status: ['running'], type: 'grant', requested_by: null, labels: {}, replay_of: null },
      scope: null,
      reason: 'incident 7',
      rate_per_second: 10,
      requested_by: 'dev',
      counts: { total: 2, pending: 2, done: 0, refused: 0, failed: 0, skipped: 0 },
      started: null,
      aborted: null,
      completed_at: null,
    })
    expect(headers.get('location')).toBe(`/bulk-actions/${body.id}`)
    expect(body.id).toMatch(/^bulk_[0-9a-f]{32}$/)
    expect((await get(`/operations/${ids[0]}`)).body.status).toBe('running')
    const started = await post(`/bulk-actions/${body.id}/start`, { reason: 'it looks right' })
    expect([started.status, started.body.status, started.body.started.reason]).toEqual([
      202,
      'running',
      'it looks right',
    ])
    await work(`/bulk-actions/${body.id}`)
    const { body: done } = await get(`/bulk-actions/${body.id}`)
    expect(done).toMatchObject({ status: 'finished', counts: { total: 2, done: 2, pending: 0 } })
    const { body: listed } = await get(`/bulk-actions/${body.id}/targets`)
    expect(listed.items).toMatchObject(ids.map((operation_id, ord) => ({ ord, operation_id, state: 'done' })))
    const { body: operation } = await get(`/operations/${ids[0]}`)
    expect(operation.cancel).toMatchObject({ requested_by: 'dev', reason: `incident 7 (${body.id})` })
  })

  it('runs at once with `dry_run: false`, and names the replays that it makes', async () => {
    const id = await plant('failed')
    const { body } = await post(
      '/bulk-actions',
      bulk({ action: 'replay', dry_run: false, scope: { states: ['failed'] } }),
    )
    expect(body).toMatchObject({ status: 'running', scope: { states: ['failed'], item_keys: null }, expires_at: null })
    await work(`/bulk-actions/${body.id}`)
    const [target] = (await get(`/bulk-actions/${body.id}/targets?state=done`)).body.items
    expect((await get(`/operations/${target.result_operation_id}`)).body).toMatchObject({
      replay_of: id,
      reason: `incident 7 (${body.id})`,
    })
  })

  it.each<[string, object, number, string, string[]]>([
    ['an empty filter', bulk({ filter: {} }), 422, 'bulk-filter-empty', ['/filter']],
    [
      'a filter of nulls',
      bulk({ filter: { type: null, labels: {}, status: [] } }),
      422,
      'bulk-filter-empty',
      ['/filter'],
    ],
    [
      'a filter that names all that can be cancelled',
      bulk({
        filter: {
          status: [
            'draft',
            'awaiting_approval',
            'pending',
            'running',
            'pause_requested',
            'paused',
            'reconciliation_required',
          ],
        },
      }),
      422,
      'bulk-filter-empty',
      ['/filter'],
    ],
    ['no filter', { action: 'cancel', reason: 'r' }, 400, 'invalid-request', ['/filter']],
    ['no reason', { action: 'cancel', filter: { type: 'grant' } }, 400, 'invalid-request', ['/reason']],
    ['an action that nobody knows', bulk({ action: 'pause' }), 400, 'invalid-request', ['/action']],
    ['a member that nobody knows', bulk({ force: true }), 400, 'invalid-request', ['/force']],
    ['a filter that nobody knows', bulk({ filter: { colour: 'red' } }), 400, 'invalid-request', ['/filter/colour']],
    [
      'a status that nobody knows',
      bulk({ filter: { status: ['gone'] } }),
      400,
      'invalid-request',
      ['/filter/status/0'],
    ],
    ['an id that is none', bulk({ filter: { replay_of: 'x' } }), 400, 'invalid-request', ['/filter/replay_of']],
    [
      'a time that is none',
      bulk({ filter: { created_after: 'noon' } }),
      400,
      'invalid-request',
      ['/filter/created_after'],
    ],
    ['a rate above the cap', bulk({ rate_per_second: 101 }), 400, 'invalid-request', ['/rate_per_second']],
    ['a rate of none', bulk({ rate_per_second: 0 }), 400, 'invalid-request', ['/rate_per_second']],
    ['a scope of a cancel', bulk({ scope: { states: ['failed'] } }), 400, 'invalid-request', ['/scope']],
    [
      'a scope that cannot be',
      bulk({ action: 'replay', scope: { states: ['unprocessed'], failure_classes: ['transient'] } }),
      400,
      'invalid-request',
      ['/scope/failure_classes'],
    ],
    ['U+0000 in a reason', bulk({ reason: 'a\u0000' }), 400, 'invalid-text', ['/reason']],
  ])('refuses %s, and stores nothing', async (_, body, status, code, pointers) => {
    await plant()
    const answer = await post('/bulk-actions', body)
    expect([answer.status, answer.body.code]).toEqual([status, code])
    expect(answer.body.errors.map((fault: { pointer: string }) => fault.pointer)).toEqual(pointers)
    expect((await get('/bulk-actions')).body.items).toEqual([])
  })

  it('refuses more than 10,000 targets, and stores nothing', async () => {
    await api.service.database.query(
      ({ sql }) => sql`
        insert into operations (tenant_id, id, type, type_version, code_version, status, requested_by, risk, root_id)
        select 1, gen_random_uuid(), 'grant', 1, 'c1', 'draft', 'tester', 'low', gen_random_uuid()
        from generate_series(1, 10001)`,
    )
    const answer = await post('/bulk-actions', bulk())
    expect([answer.status, answer.body.code]).toEqual([422, 'bulk-too-large'])
    expect((await get('/bulk-actions')).body.items).toEqual([])
  })

  it('case 35: makes one bulk action per Idempotency-Key, also of two at once, and refuses another body', async () => {
    await plant()
    const headers = { 'idempotency-key': '"bulk-1"' }
    const both = await Promise.all([post('/bulk-actions', bulk(), headers), post('/bulk-actions', bulk(), headers)])
    expect(new Set(both.map(({ body }) => body.id)).size).toBe(1)
    expect(both.map((answer) => answer.headers.get('idempotent-replayed')).sort()).toEqual([null, 'true'].sort())
    await plant()
    const again = await post('/bulk-actions', JSON.stringify(bulk(), null, 2), { 'idempotency-key': 'bulk-1' })
    expect([again.status, again.body.id, again.body.counts.total]).toEqual([202, both[0]?.body.id, 1])
    const other = await post('/bulk-actions', bulk({ reason: 'another' }), headers)
    expect([other.status, other.body.code]).toEqual([422, 'idempotency-key-reused'])
    expect((await get('/bulk-actions')).body.items).toHaveLength(1)
  })

  it('needs the scope to write, and to read the scope to read', async () => {
    const { app, fake } = await openEdge({ auth: 'keys' })
    const keyHash = createHash('sha256').update('opl_reader').digest('hex')
    fake.keys.set(keyHash, { principal: { tenantId: 1, name: 'reader', scopes: ['operations:read'] }, keyHash })
    const ask = async (method: 'GET' | 'POST', url: string, payload?: object) =>
      (
        await app.inject({
          method,
          url,
          headers: { authorization: 'Bearer opl_reader' },
          ...(payload ? { payload } : {}),
        })
      ).statusCode
    const id = `bulk_${'0'.repeat(32)}`
    expect(await ask('POST', '/bulk-actions', bulk())).toBe(403)
    expect(await ask('POST', `/bulk-actions/${id}/start`, {})).toBe(403)
    expect(await ask('POST', `/bulk-actions/${id}/abort`, { reason: 'r' })).toBe(403)
    expect(await ask('GET', '/bulk-actions')).toBe(200)
    await app.close()
  })
})

describe('a bulk action', () => {
  const made = async (change: object = {}) => (await post('/bulk-actions', bulk(change))).body.id
  const start = (id: string) => post(`/bulk-actions/${id}/start`, '')
  const abort = (id: string, body: object = { reason: 'wrong filter' }) => post(`/bulk-actions/${id}/abort`, body)

  it('is started once', async () => {
    await plant()
    const id = await made()
    expect((await start(id)).status).toBe(202)
    const again = await start(id)
    expect([again.status, again.body.code, again.body.bulk_action_status]).toEqual([
      409,
      'bulk-action-not-startable',
      'running',
    ])
  })

  it('is not started once it has expired', async () => {
    await plant()
    const id = await made()
    await api.service.database.query(({ sql }) => sql`update bulk_actions set expires_at = now()`)
    const late = await start(id)
    expect([late.status, late.body.code]).toEqual([409, 'bulk-action-expired'])
  })

  it('is aborted with a reason, again with the same answer, and not when it has finished', async () => {
    const operation = await plant()
    const id = await made({ dry_run: false })
    expect((await abort(id, {})).status).toBe(400)
    const { status, body } = await abort(id)
    expect([status, body.status, body.counts.skipped, body.aborted.reason]).toEqual([200, 'aborted', 1, 'wrong filter'])
    expect((await abort(id)).body).toEqual(body)
    expect((await get(`/operations/${operation}`)).body.status).toBe('running')
    const finished = await made({ dry_run: false })
    await work(`/bulk-actions/${finished}`)
    const late = await abort(finished)
    expect([late.status, late.body.code, late.body.bulk_action_status]).toEqual([
      409,
      'bulk-action-not-abortable',
      'finished',
    ])
  })

  it('is listed newest first, in pages, with its targets in pages', async () => {
    for (let n = 0; n < 3; n++) await plant()
    const ids = [await made(), await made({ dry_run: false }), await made()]
    const first = await get('/bulk-actions?limit=2')
    expect(first.body.items.map(({ id }: { id: string }) => id)).toEqual([ids[2], ids[1]])
    expect((await get(`/bulk-actions?limit=2&cursor=${first.body.next_cursor}`)).body.items).toMatchObject([
      { id: ids[0] },
    ])
    expect((await get('/bulk-actions?status=running&action=cancel')).body.items).toMatchObject([{ id: ids[1] }])
    expect((await get('/bulk-actions?status=gone')).status).toBe(400)
    const targets = await get(`/bulk-actions/${ids[0]}/targets?limit=2`)
    expect(targets.body.items.map(({ ord }: { ord: number }) => ord)).toEqual([0, 1])
    expect(targets.headers.get('link')).toContain('rel="next"')
    const rest = await get(`/bulk-actions/${ids[0]}/targets?limit=2&cursor=${targets.body.next_cursor}`)
    expect(rest.body.items.map(({ ord }: { ord: number }) => ord)).toEqual([2])
    expect((await get(`/bulk-actions/${ids[0]}/targets?state=done`)).body.items).toEqual([])
    expect((await get(`/bulk-actions/${ids[1]}/targets?cursor=${targets.body.next_cursor}`)).status).toBe(400)
  })

  it("is not there for another tenant, and takes none of another tenant's operations", async () => {
    const foreign = await plant()
    await api.service.database.query(({ sql }) => sql`update operations set tenant_id = 2`)
    const id = await made()
    expect((await get(`/bulk-actions/${id}`)).body.counts.total).toBe(0)
    await api.service.database.query(({ sql }) => sql`update bulk_actions set tenant_id = 2`)
    const answers = [
      await get(`/bulk-actions/${id}`),
      await get(`/bulk-actions/${id}/targets`),
      await start(id),
      await abort(id),
      await get('/bulk-actions/rubbish'),
      await get(`/bulk-actions/${foreign}`),
    ]
    for (const { status, body } of answers) expect([status, body.code]).toEqual([404, 'bulk-action-not-found'])
    expect((await get('/bulk-actions')).body.items).toEqual([])
    expect(parseId('bulk', id)).not.toBeNull()
  })
})
