/** What is answered when retention has taken a part of an operation: 410 for it, and all the rest as before. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { PurgeStage } from '../../src/domain/retention.ts'
import { markChain } from '../../src/storage/retention.ts'
import { type Answer, type DraftApi, openDraftApi } from '../support/drafts.ts'
import { plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'
import { age, purgeMarked } from '../support/retention.ts'

let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi([plantedType('grant', { noCompensationReason: 'it cannot be called back' })])
})
afterAll(() => api.close())

let id: string
let path: string
beforeEach(async () => {
  const { database } = api.service
  id = await plantOperation(database, {
    type: 'grant',
    status: 'cancelled',
    cancelled: true,
    items: [
      { key: 'a', entries: [{ state: 'applied' }] },
      { key: 'f', entries: [{ state: 'failed', failureClass: 'transient' }] },
      { key: 'never' },
    ],
  })
  await plantEffects(database, id)
  await age(database, [id], 365)
  path = `/operations/${formatId('op', id)}`
})

/** `left`: the mark alone, as it stands before the first row is deleted. */
const purge = async (stages: readonly PurgeStage[], { left = false } = {}): Promise<void> => {
  for (const stage of stages) {
    const chain = { tenantId: 1, operationId: id }
    expect(
      await markChain(api.service.database, chain, stage, () => ({ goes: true, reason: 'kept for 30 days' })),
    ).toEqual([id])
    if (!left) await purgeMarked(api.service.database)
  }
}
const get = (what: string, accept = 'application/json'): Promise<Answer> =>
  api.call('GET', path + what, undefined, { accept })
const post = (what: string, body: unknown): Promise<Answer> =>
  api.call('POST', path + what, JSON.stringify(body), { 'content-type': 'application/json' })
const BOTH = ['items', 'ledger'] as const

describe.each([false, true])('with rows that are still to be deleted: %s', (left) => {
  it.each(['application/json', 'application/x-ndjson', 'text/csv'])(
    'gone items and ledger are 410, as %s',
    async (accept) => {
      await purge(['items'], { left })
      const items = await get('/items', accept)
      expect([items.status, items.body.code, items.body.type]).toEqual([
        410,
        'items-purged',
        expect.stringContaining('/problems/items-purged'),
      ])
      expect(items.headers.get('content-type')).toMatch(/^application\/problem\+json/)
      if (accept === 'application/json') expect((await get('/ledger', accept)).body.items).toHaveLength(2)
      await purgeMarked(api.service.database)
      await purge(['ledger'], { left })
      const ledger = await get('/ledger', accept)
      expect([ledger.status, ledger.body.code]).toEqual([410, 'ledger-purged'])
      expect((await get('/items', accept)).status).toBe(410)
      const { body } = await get('')
      expect(body).toMatchObject({
        status: 'cancelled',
        counts: { total: 3, applied: 1, skipped: 0, failed: 1, uncertain: 0, unprocessed: 1 },
        failures: { transient: 1 },
        items_purged_at: expect.stringMatching(/Z$/),
        ledger_purged_at: expect.stringMatching(/Z$/),
      })
    },
  )

  it('the history of an item goes with the ledger', async () => {
    await purge(['items'], { left })
    expect((await get('/items/a/history')).body.items.map(({ kind }: { kind: string }) => kind)).toEqual([
      'accepted',
      'ledger_entry',
    ])
    // nothing tells any more whether it was one of the items
    expect((await get('/items/never/history')).body.code).toBe('items-purged')
    await purgeMarked(api.service.database)
    await purge(['ledger'], { left })
    const { status, body } = await get('/items/a/history')
    expect([status, body.code]).toEqual([410, 'ledger-purged'])
  })
})

it('a cursor into what is gone by now is 410, and no shorter list', async () => {
  const first = await get('/items?limit=1')
  expect(first.body.items).toHaveLength(1)
  await purge(['items'])
  const next = await get(`/items?limit=1&cursor=${first.body.next_cursor}`)
  expect([next.status, next.body.code]).toEqual([410, 'items-purged'])
})

it('another tenant or nobody is told 404, and not that something was there', async () => {
  await purge(BOTH)
  const other = `/operations/${formatId('op', crypto.randomUUID())}`
  for (const what of ['/items', '/ledger', '/items/a/history']) {
    expect((await api.call('GET', other + what)).body.code).toBe('operation-not-found')
  }
})

describe('a replay or a compensation', () => {
  it('of gone items is blocked, and its preflight says so', async () => {
    await purge(['items'])
    const preflight = await post('/replay-preflight', {})
    expect([preflight.status, preflight.body.allowed]).toEqual([200, false])
    expect(preflight.body.blocked_by).toContain('items-purged')
    expect(preflight.body).toMatchObject({ failed_targets: 1, confirmed_targets: 1, unprocessed_targets: 1 })
    const replay = await post('/replay', { preflight_id: preflight.body.preflight_id, reason: 'again' })
    expect([replay.status, replay.body.code]).toEqual([409, 'replay-blocked'])
    expect(replay.body.blocked_by).toContain('items-purged')
    // an item's key cannot be found any more: that is not the caller's slip
    const scoped = await post('/replay-preflight', { scope: { item_keys: ['f'] } })
    expect(scoped.status).toBe(200)
    expect((await post('/compensation-preflight', {})).body.blocked_by).toContain('items-purged')
  })

  it('that was asked about before the items went is outdated', async () => {
    const { body } = await post('/replay-preflight', {})
    expect(body.allowed).toBe(true)
    await purge(['items'])
    const replay = await post('/replay', { preflight_id: body.preflight_id, reason: 'again' })
    expect([replay.status, replay.body.code]).toEqual([412, 'preflight-outdated'])
  })

  it('of a gone ledger is 410: nothing can be said of it', async () => {
    const { body } = await post('/replay-preflight', {})
    await purge(BOTH)
    const answers = [
      await post('/replay-preflight', {}),
      await post('/replay', { preflight_id: body.preflight_id, reason: 'again' }),
      await post('/compensation-preflight', {}),
      await post('/compensations', { reason: 'undo' }),
    ]
    expect(answers.map((answer) => [answer.status, answer.body.code])).toEqual(
      Array.from({ length: 4 }, () => [410, 'ledger-purged']),
    )
  })

  it('that was made before is answered again with what it made', async () => {
    const { body } = await post('/replay-preflight', {})
    const replay = { preflight_id: body.preflight_id, reason: 'again' }
    const made = await post('/replay', replay)
    await api.service.database.query(({ script }) =>
      script(`update operations set status = 'cancelled', completed_at = now(), cancel_requested_at = now() where completed_at is null;
        update operation_shards set state = 'done'`),
    )
    for (const stage of BOTH) {
      const chain = { tenantId: 1, operationId: id }
      await markChain(api.service.database, chain, stage, () => ({ goes: true, reason: '' }))
      await purgeMarked(api.service.database)
    }
    const again = await post('/replay', replay)
    expect([again.status, again.body.id, again.headers.get('idempotent-replayed')]).toEqual([202, made.body.id, 'true'])
  })
})

it('the operation, its checkpoints and its events stay, and the purge is one of them', async () => {
  const { headers, body } = await get('')
  await purge(BOTH)
  const after = await get('')
  expect(after.headers.get('etag')).not.toBe(headers.get('etag'))
  expect({ ...after.body, version: 0, items_purged_at: null, ledger_purged_at: null }).toEqual({ ...body, version: 0 })
  expect((await get('/checkpoints')).body.items).toHaveLength(1)
  const events = (await get('/events')).body.items
  expect(events.map(({ kind, actor }: { kind: string; actor: string }) => [kind, actor])).toEqual([
    ['items_purged', 'system:retention'],
    ['ledger_purged', 'system:retention'],
  ])
  const response = await fetch(`${api.url}${path}/events`, { headers: { accept: 'text/event-stream' } })
  expect(await response.text()).toContain('event: ledger_purged')
})
