/** What is no name of a thing and could lead from one tenant to another all the same. The routes are walked in tenant-walk. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SCOPES } from '../../src/domain/scope.ts'
import { type Answer, MARK, openTenantWorld, remoteClaim, type TenantWorld } from '../support/tenant-world.ts'

let world: TenantWorld
let strangerKey: string
beforeAll(async () => {
  world = await openTenantWorld()
  strangerKey = await world.keyOf(world.tenants.stranger, 'stranger', SCOPES)
}, 240_000)
afterAll(() => world?.close())

const owner = (path: string, headers: Record<string, string> = {}) =>
  world.call('GET', world.ownerKey, { path, headers })
const stranger = (path: string, headers: Record<string, string> = {}) =>
  world.call('GET', strangerKey, { path, headers })
const strangerPosts = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  world.call('POST', strangerKey, { path, body, headers })
const expectNothing = (answer: Answer): void => {
  expect(answer.text).not.toContain(MARK)
  for (const id of Object.values(world.owned)) expect(answer.text).not.toContain(id)
}

describe('filters', () => {
  it.each([
    '/operations',
    `/operations?label.team=${MARK}`,
    `/operations?requested_by=${MARK}-person`,
    '/operations?type=grant',
    `/operations?item_key=${MARK}-ok`,
    `/operations?effect_key=grant:${MARK}-ok`,
    '/operations?status=reconciliation_required',
    '/reconciliation',
    `/reconciliation?item_key=${MARK}-doubt`,
    '/reconciliation?type=grant',
    '/dead-letters',
    '/dead-letters?type=grant&failure_class=transient',
    '/incidents?type=grant',
    '/bulk-actions?status=dry_run',
  ])('%s finds what is the owner’s for the owner only', async (path) => {
    expect((await owner(path)).body.items.length).toBeGreaterThan(0)
    expectNothing(await stranger(path))
  })

  it('name things of another tenant in vain', async () => {
    const { operation, incident } = world.owned
    for (const path of [
      `/operations?replay_of=${operation}`,
      `/reconciliation?operation_id=${operation}`,
      `/dead-letters?operation_id=${operation}`,
      `/dead-letters?incident_id=${incident}`,
    ]) {
      expect((await stranger(path)).body.items, path).toEqual([])
    }
  })
})

it('a cursor of one tenant leads another one nowhere', async () => {
  for (const path of ['/operations', '/reconciliation', '/dead-letters', '/incidents', '/bulk-actions']) {
    const { next_cursor: cursor } = (await owner(`${path}?limit=1`)).body
    if (cursor === undefined) continue
    const answer = await stranger(`${path}?limit=1&cursor=${cursor}`)
    expect([200, 400]).toContain(answer.status)
    expectNothing(answer)
  }
  const first = (await owner(`/operations/${world.owned.operation}/items?limit=1`)).body.next_cursor
  expect((await stranger(`/operations/${world.owned.operation}/items?limit=1&cursor=${first}`)).status).toBe(404)
})

it('an idempotency key is known to its own tenant only', async () => {
  const items = [{ key: 'mine', input: {} }]
  const headers = { 'idempotency-key': 'a-key' }
  const answer = await strangerPosts('/operations', { type: 'grant', items }, headers)
  expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([202, null])
  expect(answer.body.id).not.toBe(world.owned.operation)
  const bulk = { action: 'cancel', filter: { type: 'grant' }, reason: 'r' }
  const theirs = await world.call('POST', world.ownerKey, { path: '/bulk-actions', body: bulk, headers })
  const mine = await strangerPosts('/bulk-actions', bulk, headers)
  expect([theirs.status, mine.status, mine.headers.get('idempotent-replayed')]).toEqual([202, 202, null])
  expect(mine.body.id).not.toBe(theirs.body.id)
})

it('an effect key is known to its own tenant only', async () => {
  const body = { type: 'grant', items: [{ key: 'common', input: {} }] }
  const id = await world.run(strangerKey, body, 'succeeded')
  expect((await stranger(`/operations/${id}`)).body.counts).toMatchObject({ applied: 1, skipped: 0 })
})

it('a bulk action finds operations of its own tenant only', async () => {
  const { body } = await strangerPosts('/bulk-actions', { action: 'cancel', filter: { type: 'approved' }, reason: 'r' })
  expect(body.counts.total).toBe(0)
})

it('a preflight of one tenant opens nothing to another', async () => {
  const mine = await world.run(
    strangerKey,
    { type: 'grant', items: [{ key: 'pf', input: { mode: 'reject' } }] },
    'failed',
  )
  const answer = await strangerPosts(`/operations/${mine}/replay`, { preflight_id: world.owned.preflight, reason: 'r' })
  expect(answer.status).toBe(400)
  expectNothing({ ...answer, text: answer.body.detail })
})

it('nothing waits for an operation of another tenant, and nothing exports its ledger', async () => {
  const { operation } = world.owned
  const items = [{ key: 'n', input: {} }]
  const after = await strangerPosts('/operations', { type: 'grant', items, after: [operation] })
  expect([after.status, after.body.code]).toEqual([422, 'invalid-predecessor'])
  const exported = await strangerPosts('/operations', { type: 'ledger-export', input: { operation_id: operation } })
  expect([exported.status, exported.body.code]).toEqual([422, 'invalid-input'])
})

it('streams and exports are not there for another tenant', async () => {
  const { operation } = world.owned
  for (const accept of ['text/event-stream', 'application/x-ndjson', 'text/csv']) {
    const path = accept === 'text/event-stream' ? 'events' : 'ledger'
    const answer = await stranger(`/operations/${operation}/${path}`, { accept: `${accept}, application/problem+json` })
    expect([accept, answer.status]).toEqual([accept, 404])
    if (path === 'ledger') expect((await stranger(`/operations/${operation}/items`, { accept })).status).toBe(404)
  }
})

it('an export of a period has the rows of its own tenant only', async () => {
  const from = new Date(Date.now() - 3_600_000).toISOString()
  const to = new Date(Date.now() + 3_600_000).toISOString()
  const id = await world.run(strangerKey, { type: 'ledger-export', input: { from, to } }, 'succeeded')
  const { download } = (await stranger(`/operations/${id}/artifact`)).body
  expectNothing(await stranger(download.url))
})

it('the export of a ledger is asked for, and got, by whoever may read the ledger', async () => {
  const may = SCOPES.filter((scope) => scope !== 'ledger:read')
  const guest = await world.keyOf(world.tenants.owner, 'guest', may)
  const body = { type: 'ledger-export', input: { operation_id: world.owned.operation } }
  const refused = await world.call('POST', guest, { path: '/operations', body })
  expect([refused.status, refused.body.scope]).toEqual([403, 'ledger:read'])
  const id = await world.run(world.ownerKey, body, 'succeeded')
  const path = `/operations/${id}/artifact`
  expect((await world.call('GET', guest, { path })).body.scope).toBe('ledger:read')
  expect((await owner(path)).status).toBe(200)
  expect((await world.call('GET', guest, { path: `/operations/${world.owned.published}/artifact` })).status).toBe(200)
})

it('a link is good for its own artifact only', async () => {
  const id = await world.run(strangerKey, { type: 'report', input: { chunks: 1 } }, 'succeeded')
  const { download } = (await stranger(`/operations/${id}/artifact`)).body
  const [, theirs = ''] = /^\/artifacts\/([^/]+)/.exec(world.owned.download) ?? []
  const forged = download.url.replace(/^\/artifacts\/[^/]+/, `/artifacts/${theirs}`)
  expect((await stranger(forged)).status).toBe(403)
})

describe('metrics', () => {
  const gauge = (text: string, name: string): number =>
    Number(new RegExp(`^opledger_${name} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN)
  const DOUBT = 'operations\\{status="reconciliation_required"\\}'
  const DEAD = 'dead_letters\\{type="grant"\\}'

  it('of one tenant show nothing of another one, and nothing of the service', async () => {
    const key = await world.keyOf(world.tenants.stranger, 'scraper', ['metrics:read', 'ledger:read'])
    const { text } = await world.call('GET', key, { path: '/metrics' })
    expect([gauge(text, DOUBT), gauge(text, DEAD)]).toEqual([0, 0])
    expect(text).not.toMatch(/opledger_(process|nodejs|http|health|workers|calls)/)
    expectNothing({ status: 200, headers: new Headers(), text, body: null })
    const owners = await world.keyOf(world.tenants.owner, 'scraper', ['metrics:read', 'ledger:read'])
    const own = (await world.call('GET', owners, { path: '/metrics' })).text
    expect([gauge(own, DOUBT), gauge(own, DEAD)]).toEqual([1, 1])
  })

  it('of the service take a scope of their own', async () => {
    const key = await world.keyOf(world.tenants.stranger, 'operator', [
      'metrics:read',
      'metrics:service',
      'ledger:read',
    ])
    const { text } = await world.call('GET', key, { path: '/metrics' })
    expect([gauge(text, DOUBT), gauge(text, DEAD)]).toEqual([1, 1])
    expect(text).toMatch(/opledger_http_request_duration_seconds_count/)
  })
})

it('who has used the kill switch, and why, is told to their own tenant only', async () => {
  const path = '/operation-types/approved'
  await world.call('POST', world.ownerKey, { path: `${path}/pause`, body: { reason: MARK } })
  expect((await owner(path)).body.paused).toMatchObject({ by: `${MARK}-person`, reason: MARK })
  const seen = await stranger(path)
  expect(seen.body.paused).toEqual({ at: expect.any(String), by: null, reason: null })
  expectNothing(seen)
  await world.call('POST', world.ownerKey, { path: `${path}/resume`, body: {} })
})

it('a worker of one tenant is seen by that one only, and none shows the leases of another', async () => {
  expect((await owner('/workers')).text).toContain(remoteClaim.host)
  expectNothing(await stranger('/workers'))
  const [row] = await world.service.database.query(
    ({ sql }) => sql<{ owner: string }>`
      select lease_owner::text as owner from operation_shards where state = 'leased' and tenant_id = 1 limit 1`,
  )
  await world.service.database.query(
    ({ sql }) => sql`update workers set tenant_id = null where id = ${row?.owner ?? ''}::uuid`,
  )
  const leases = (answer: Answer) =>
    answer.body.items
      .filter(({ id }: { id: string }) => id === row?.owner)
      .map((worker: { leases: number }) => worker.leases)
  expect([leases(await owner('/workers')), leases(await stranger('/workers'))]).toEqual([[1], [0]])
})

it('the health report judges the operations of its own tenant', async () => {
  const dead = (answer: Answer) =>
    answer.body.types
      .find(({ type }: { type: string }) => type === 'grant')
      .figures.find(({ figure }: { figure: string }) => figure === 'dead_letters').value
  expect([dead(await owner('/health-report')), dead(await stranger('/health-report'))]).toEqual([1, 0])
})

it('a long poll for what belongs to another tenant is answered at once', async () => {
  const waited = await stranger(`/operations/${world.owned.operation}`, { prefer: 'wait=60' })
  expect([waited.status, waited.headers.get('preference-applied')]).toEqual([404, null])
})
