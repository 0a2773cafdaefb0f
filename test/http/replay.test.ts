/** Replays and approvals over HTTP: conditions, refusals and their order. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { type Answer, type DraftApi, openDraftApi } from '../support/drafts.ts'
import { plantedType, plantOperation } from '../support/planted-operation.ts'

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

  it('is never given by the requester', async () => {
    const own = await decide(await waiting('reviewed'), { decision: 'approve' }, { 'x-principal': 'dev' })
    expect([own.status, own.body.code]).toEqual([403, 'self-approval'])
  })
})
