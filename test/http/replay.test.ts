/** Replays and approvals over HTTP: conditions, refusals and their order. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId, parseId } from '../../src/domain/ids.ts'
import { type Answer, type DraftApi, openDraftApi } from '../support/drafts.ts'
import { type PlantedItem, plantedType, plantOperation } from '../support/planted-operation.ts'

const types = [
  plantedType('grant'),
  plantedType('reviewed', { approval: 'replay' }),
  plantedType('final', { approval: 'replay', noCompensationReason: 'a letter cannot be called back' }),
]
let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi(types)
})
afterAll(() => api.close())

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', path, JSON.stringify(body), { 'content-type': 'application/json', ...headers })
const failed = async (type: string): Promise<string> => {
  const id = await plantOperation(api.service.database, {
    type,
    status: 'failed',
    items: [{ key: 'a', entries: [{ state: 'failed', failureClass: 'transient' }] }],
  })
  return `/operations/${formatId('op', id)}`
}
const etagOf = async (path: string): Promise<string> => (await api.call('GET', path)).headers.get('etag') ?? ''
const preflight = async (path: string): Promise<string> =>
  (await post(`${path}/replay-preflight`, {})).body.preflight_id
const replay = async (path: string, headers: Record<string, string> = {}, preflightId?: string): Promise<Answer> =>
  post(`${path}/replay`, { preflight_id: preflightId ?? (await preflight(path)), reason: 'again' }, headers)

describe('POST /operations/{id}/replay', () => {
  it('refuses a version that is not the current one, and takes the one that is', async () => {
    const path = await failed('grant')
    const etag = await etagOf(path)
    const stale = await replay(path, { 'if-match': '"999"' })
    expect([stale.status, stale.body.code]).toEqual([412, 'version-conflict'])
    expect((await api.call('GET', path)).body.replayed_by).toEqual([])
    expect((await replay(path, { 'if-match': etag })).status).toBe(202)
  })

  it('answers a repeat with the same replay, although the replay has changed the version', async () => {
    const path = await failed('grant')
    const headers = { 'if-match': await etagOf(path) }
    const preflightId = await preflight(path)
    const [first, second] = [await replay(path, headers, preflightId), await replay(path, headers, preflightId)]
    expect(await etagOf(path)).not.toBe(headers['if-match'])
    expect([second.status, second.body.id, second.headers.get('idempotent-replayed')]).toEqual([
      202,
      first.body.id,
      'true',
    ])
  })
})

describe('a replay is refused', () => {
  const REASON = { reason: 'again' }
  const planted = (items: PlantedItem[], type = 'grant') =>
    plantOperation(api.service.database, { type, status: 'failed', items })
  const FAILED: PlantedItem = { key: 'a', entries: [{ state: 'failed', failureClass: 'transient' }] }
  const UNCERTAIN: PlantedItem = { key: 'b', entries: [{ state: 'uncertain' }] }
  const pathOf = (id: string): string => `/operations/${formatId('op', id)}`
  const expire = (path: string) =>
    api.service.database.query(
      ({ sql }) => sql`
        update replay_preflights set expires_at = now() - interval '1 s'
        where operation_id = ${parseId('op', path.slice('/operations/'.length))}::uuid`,
    )
  const change = (path: string) =>
    api.service.database.query(
      ({ sql }) => sql`
        update operation_shards set version = version + 1
        where operation_id = ${parseId('op', path.slice('/operations/'.length))}::uuid`,
    )

  it.each([
    ['without a preflight', {}, '/preflight_id'],
    ['without a reason', { preflight_id: `pf_${'0'.repeat(32)}` }, '/reason'],
    ['with an id that is none', { ...REASON, preflight_id: 'pf_1' }, '/preflight_id'],
    ['with a preflight that does not exist', { ...REASON, preflight_id: `pf_${'0'.repeat(32)}` }, '/preflight_id'],
    ['with an unknown member', { ...REASON, preflight_id: `pf_${'0'.repeat(32)}`, forced: true }, '/forced'],
  ])('%s: 400', async (_name, body, pointer) => {
    const path = await failed('grant')
    const refused = await post(`${path}/replay`, body)
    expect([refused.status, refused.body.errors?.[0]?.pointer]).toEqual([400, pointer])
    expect((await api.call('GET', path)).body.replayed_by).toEqual([])
  })

  it("with another operation's preflight: 400", async () => {
    const [own, other] = [await failed('grant'), await failed('grant')]
    const refused = await replay(own, {}, await preflight(other))
    expect([refused.status, refused.body.code]).toEqual([400, 'invalid-request'])
  })

  it('when the preflight has expired, or the facts are others: 412', async () => {
    const [late, changed] = [await failed('grant'), await failed('grant')]
    const asked = [await preflight(late), await preflight(changed)]
    await expire(late)
    await change(changed)
    for (const [index, path] of [late, changed].entries()) {
      const refused = await replay(path, {}, asked[index])
      expect([refused.status, refused.body.code]).toEqual([412, 'preflight-outdated'])
    }
  })

  it('when it is blocked, with what blocks it: 409; and the uncertain cannot be forced', async () => {
    const path = pathOf(await planted([FAILED, UNCERTAIN]))
    const refused = await post(`${path}/replay`, {
      preflight_id: await preflight(path),
      reason: 'again',
      force: ['ambiguous_effect_targets > 0'],
    })
    expect([refused.status, refused.body.code, refused.body.blocked_by]).toEqual([
      409,
      'replay-blocked',
      ['ambiguous_effect_targets > 0'],
    ])
    expect(refused.body.stop_if).toContainEqual({ condition: 'ambiguous_effect_targets > 0', actual: 1, tripped: true })
  })

  it('in the order 400, 412, 409', async () => {
    const path = pathOf(await planted([UNCERTAIN]))
    const blocked = await preflight(path)
    expect((await replay(path, {}, blocked)).status).toBe(409)
    await change(path)
    expect((await replay(path, {}, blocked)).status).toBe(412)
    expect((await replay(await failed('grant'), {}, blocked)).status).toBe(400)
  })

  it('a suspected bug runs again when somebody forces it with a reason', async () => {
    const path = pathOf(await planted([{ key: 'a', entries: [{ state: 'failed', failureClass: 'bug_suspected' }] }]))
    const asked = (await post(`${path}/replay-preflight`, { scope: { failure_classes: ['bug_suspected'] } })).body
    expect(asked.blocked_by).toEqual(['bug-suspected'])
    const body = { preflight_id: asked.preflight_id, reason: 'the cause was the network' }
    expect((await post(`${path}/replay`, body)).status).toBe(409)
    expect((await post(`${path}/replay`, { ...body, force: ['bug-suspected'] })).status).toBe(202)
  })
})

describe('POST /operations/{id}/approval', () => {
  const waiting = async (type: string): Promise<string> => {
    const { body } = await replay(await failed(type))
    expect(body.status).toBe('awaiting_approval')
    return `/operations/${body.id}`
  }
  const decide = (path: string, body: object, headers: Record<string, string> = {}): Promise<Answer> =>
    post(`${path}/approval`, body, { 'x-principal': 'somebody else', ...headers })

  it('refuses a version that is not the current one, and takes the one that is', async () => {
    const path = await waiting('reviewed')
    const stale = await decide(path, { decision: 'approve' }, { 'if-match': '"999"' })
    expect([stale.status, stale.body.code]).toEqual([412, 'version-conflict'])
    expect((await api.call('GET', path)).body.status).toBe('awaiting_approval')
    const decided = await decide(path, { decision: 'approve' }, { 'if-match': await etagOf(path) })
    expect([decided.status, decided.body.status]).toEqual([200, 'pending'])
  })

  it('asks for a note to approve what its type says cannot be undone, and for nothing else', async () => {
    const path = await waiting('final')
    const silent = await decide(path, { decision: 'approve' })
    expect([silent.status, silent.body.code]).toEqual([422, 'approval-note-required'])
    expect(silent.body.detail).toContain('a letter cannot be called back')
    expect((await decide(path, { decision: 'approve', note: 'accepted' })).body.status).toBe('pending')
    expect((await decide(await waiting('final'), { decision: 'reject' })).body.status).toBe('cancelled')
    expect((await decide(await waiting('reviewed'), { decision: 'approve' })).body.status).toBe('pending')
  })

  it('is asked for nothing where nothing waits for one, and ends what is rejected, with the reason', async () => {
    const nothing = await decide(await failed('reviewed'), { decision: 'approve' })
    expect([nothing.status, nothing.body.code]).toEqual([409, 'not-awaiting-approval'])
    const path = await waiting('reviewed')
    const rejected = await decide(path, { decision: 'reject', note: 'not in this quarter' })
    expect([rejected.status, rejected.body.status, rejected.body.cancel.reason]).toEqual([
      200,
      'cancelled',
      'not in this quarter',
    ])
    expect((await decide(path, { decision: 'approve' })).status).toBe(409)
  })

  it.each([{}, { decision: 'maybe' }, { decision: 'approve', notes: 'x' }])('refuses the body %j', async (body) => {
    expect((await decide(await waiting('reviewed'), body)).status).toBe(400)
  })

  it('is never given by the requester', async () => {
    const own = await decide(await waiting('reviewed'), { decision: 'approve' }, { 'x-principal': 'dev' })
    expect([own.status, own.body.code]).toEqual([403, 'self-approval'])
  })
})
