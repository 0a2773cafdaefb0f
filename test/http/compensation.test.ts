/** Compensations over HTTP: every refusal and their order, repeats, and the approval by a second person. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { Executor } from '../../src/domain/operation-type.ts'
import { type Answer, type DraftApi, openDraftApi, uuidOf } from '../support/drafts.ts'
import { type PlantedItem, plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'

const compensator: Executor = {
  kind: 'external',
  callTimeoutMs: 5_000,
  send: () => Promise.reject(new Error('a planted type is never run')),
  lookup: null,
}
const undoable = { compensation: 'available', compensator } as const
const types = [
  plantedType('grant', undoable),
  plantedType('stormy', { ...undoable, stopIf: ['downstream_error_rate_5m > 5%'] }),
  plantedType('reviewed', { ...undoable, approval: 'replay' }),
  plantedType('guarded', { ...undoable, approval: 'always' }),
  plantedType('letter', { noCompensationReason: 'a letter cannot be called back' }),
  plantedType('plain'),
]
let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi(types)
})
afterAll(() => api.close())

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', path, JSON.stringify(body), { 'content-type': 'application/json', ...headers })
const APPLIED: PlantedItem = { key: 'a', entries: [{ state: 'applied' }] }
const plant = async (
  type: string,
  items: PlantedItem[] = [APPLIED, { ...APPLIED, key: 'b' }],
  change: Partial<Parameters<typeof plantOperation>[1]> = {},
): Promise<string> => {
  const id = await plantOperation(api.service.database, { type, status: 'succeeded', items, ...change })
  await plantEffects(api.service.database, id)
  return `/operations/${formatId('op', id)}`
}
const change = (statement: 'expire' | 'purge' | 'compensation', path: string): Promise<unknown> => {
  const id = uuidOf(path.slice('/operations/'.length))
  return api.service.database.query(({ sql }) => {
    switch (statement) {
      case 'expire':
        return sql`update replay_preflights set expires_at = now() where operation_id = ${id}::uuid`
      case 'purge':
        return sql`
          with gone as (delete from operation_items where operation_id = ${id}::uuid)
          update operations set items_purged_at = now() where id = ${id}::uuid`
      case 'compensation':
        return sql`update operations set compensates = id where id = ${id}::uuid`
    }
  })
}
const preflight = async (path: string, body: unknown = {}) => (await post(`${path}/compensation-preflight`, body)).body
const compensate = (path: string, body: object = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  post(`${path}/compensations`, { reason: 'a slip', ...body }, headers)
const read = async (path: string) => (await api.call('GET', path)).body

describe('POST /operations/{id}/compensation-preflight', () => {
  it('says what would be taken back, and changes nothing', async () => {
    const path = await plant('grant', [APPLIED, { key: 'f', entries: [{ state: 'failed', failureClass: 'conflict' }] }])
    const before = await read(path)
    const { preflight_id, expires_at, facts_hash, ...answer } = await preflight(path)
    expect(preflight_id).toMatch(/^pf_/)
    expect(Date.parse(expires_at)).toBeGreaterThan(Date.now())
    expect(facts_hash).toMatch(/^[0-9a-f]{64}$/)
    expect(answer).toEqual({
      operation_id: before.id,
      counts_in_ranges: false,
      scope: { item_keys: null },
      compensation_targets: 1,
      applied_targets: 1,
      ambiguous_effect_targets: 0,
      last_checkpoint_age: '0s',
      last_checkpoint_age_seconds: 0,
      downstream_error_rate_5m: 0,
      code_version_changed: false,
      code_version_then: '1',
      code_version_now: '1',
      requires_approval: false,
      compensation: 'available',
      no_compensation_reason: null,
      stop_if: expect.arrayContaining([{ condition: 'ambiguous_effect_targets > 0', actual: 0, tripped: false }]),
      allowed: true,
      blocked_by: [],
    })
    const { progress: _then, ...was } = before
    const { progress: _now, ...is } = await read(path)
    expect(is).toEqual(was)
    expect(before.links).toMatchObject({
      compensation_preflight: `${path}/compensation-preflight`,
      compensations: `${path}/compensations`,
    })
  })

  it('needs no body, knows no other operation, and takes no scope that cannot be', async () => {
    const path = await plant('grant')
    const bare = await api.call('POST', `${path}/compensation-preflight`)
    expect([bare.status, bare.body.compensation_targets]).toEqual([200, 2])
    const nobody = await post(`/operations/${formatId('op', crypto.randomUUID())}/compensation-preflight`, {})
    expect([nobody.status, nobody.body.code]).toEqual([404, 'operation-not-found'])
    for (const scope of [{ states: ['applied'] }, { item_keys: ['nobody'] }, { item_keys: 'a' }]) {
      const refused = await post(`${path}/compensation-preflight`, { scope })
      expect([refused.status, refused.body.code]).toEqual([400, 'invalid-request'])
    }
    const scoped = await preflight(path, { scope: { item_keys: ['b'] } })
    expect(scoped).toMatchObject({ compensation_targets: 1, applied_targets: 2, scope: { item_keys: ['b'] } })
  })
})

describe('POST /operations/{id}/compensations', () => {
  it('answers 202 with a new operation, which both sides name', async () => {
    const path = await plant('grant')
    const { status, headers, body } = await compensate(path)
    expect([status, body.status, body.reason, body.counts.total]).toEqual([202, 'pending', 'a slip', 2])
    expect(headers.get('location')).toBe(`/operations/${body.id}`)
    const original = await read(path)
    expect([body.compensates, body.replay_of, body.compensated_by]).toEqual([original.id, null, []])
    expect([original.compensated_by, original.compensates]).toEqual([[body.id], null])
    const { items } = await read(`${path}/events`)
    expect(items.at(-1)).toMatchObject({ kind: 'compensation_requested', reason: 'a slip' })
    const events = await read(`/operations/${body.id}/events`)
    expect(events.items).toMatchObject([{ kind: 'accepted', reason: 'a slip' }])
  })

  it('uses a preflight once: a repeat answers with the same operation', async () => {
    const path = await plant('grant')
    const { preflight_id } = await preflight(path, { scope: { item_keys: ['b'] } })
    const [first, second] = [await compensate(path, { preflight_id }), await compensate(path, { preflight_id })]
    expect([first.status, first.headers.get('idempotent-replayed'), first.body.counts.total]).toEqual([202, null, 1])
    expect([second.status, second.headers.get('idempotent-replayed'), second.body.id]).toEqual([
      202,
      'true',
      first.body.id,
    ])
  })

  it.each([
    ['no reason', { reason: undefined }],
    ['a blank reason', { reason: '' }],
    ['no id', { preflight_id: 'pf_x' }],
    ['an id of nothing', { preflight_id: formatId('pf', crypto.randomUUID()) }],
    ['a member that is none', { scope: {} }],
  ])('refuses %s with 400', async (_name, body) => {
    const path = await plant('grant')
    const refused = await compensate(path, body)
    expect([refused.status, refused.body.code]).toEqual([400, 'invalid-request'])
    expect((await read(path)).compensated_by).toEqual([])
  })

  it('refuses the preflight of a replay or of another operation with 400', async () => {
    const path = await plant('grant')
    const replay = (await post(`${path}/replay-preflight`, {})).body.preflight_id
    const other = (await preflight(await plant('grant'))).preflight_id
    for (const preflight_id of [replay, other]) {
      const refused = await compensate(path, { preflight_id })
      expect([refused.status, refused.body.errors[0].pointer]).toEqual([400, '/preflight_id'])
    }
    const { preflight_id } = await preflight(path)
    const replayed = await post(`${path}/replay`, { preflight_id, reason: 'r' })
    expect([replayed.status, replayed.body.errors[0].pointer]).toEqual([400, '/preflight_id'])
  })

  it('refuses an expired preflight, and one whose facts have changed, with 412 before 409', async () => {
    const path = await plant('grant')
    const expired = (await preflight(path)).preflight_id
    await change('expire', path)
    const { preflight_id } = await preflight(path)
    await change('purge', path)
    for (const id of [expired, preflight_id]) {
      const refused = await compensate(path, { preflight_id: id })
      expect([refused.status, refused.body.code]).toEqual([412, 'preflight-outdated'])
    }
  })

  it('refuses a version that is not the current one, and takes the one that is', async () => {
    const path = await plant('grant')
    const etag = (await api.call('GET', path)).headers.get('etag') ?? ''
    const stale = await compensate(path, {}, { 'if-match': '"999"' })
    expect([stale.status, stale.body.code]).toEqual([412, 'version-conflict'])
    expect((await compensate(path, {}, { 'if-match': etag })).status).toBe(202)
  })

  it.each<[string, () => Promise<string>]>([
    ['not-settled', () => plant('grant', [APPLIED, { key: 'u' }], { status: 'running' })],
    [
      'items-purged',
      async () => {
        const path = await plant('grant')
        await change('purge', path)
        return path
      },
    ],
    ['nothing-to-compensate', () => plant('grant', [{ key: 's', entries: [{ state: 'skipped' }] }])],
    [
      'compensation-in-progress',
      async () => {
        const path = await plant('grant')
        await compensate(path)
        return path
      },
    ],
    [
      'replay-in-progress',
      async () => {
        const path = await plant('grant')
        const replayOf = uuidOf(path.slice('/operations/'.length))
        await plant('grant', [{ key: 'u' }], { status: 'running', replayOf })
        return path
      },
    ],
    ['no-compensation', () => plant('plain')],
    [
      'not-compensable',
      async () => {
        const path = await plant('grant')
        await change('compensation', path)
        return path
      },
    ],
    [
      'ambiguous_effect_targets > 0',
      () =>
        plant('grant', [APPLIED, { key: 'u', entries: [{ state: 'uncertain' }] }], {
          status: 'reconciliation_required',
        }),
    ],
  ])('refuses with 409: %s, which cannot be forced', async (code, planted) => {
    const path = await planted()
    const asked = await preflight(path)
    expect([asked.allowed, asked.blocked_by.includes(code)]).toEqual([false, true])
    for (const body of [{}, { preflight_id: asked.preflight_id }, { force: [code] }]) {
      const refused = await compensate(path, body)
      expect([refused.status, refused.body.code]).toEqual([409, 'compensation-blocked'])
      expect(refused.body.blocked_by).toContain(code)
    }
  })

  it('says why there is no compensation', async () => {
    const path = await plant('letter')
    expect(await preflight(path)).toMatchObject({
      compensation: 'none',
      no_compensation_reason: 'a letter cannot be called back',
    })
    const refused = await compensate(path)
    expect(refused.body.detail).toContain('no-compensation (a letter cannot be called back)')
  })

  it('names a tripped condition, and takes it when it is forced with a reason', async () => {
    await api.service.database.query(
      ({ sql }) => sql`
        insert into type_minutes (type, minute, worker_id, calls, errors, latency)
        values ('stormy', date_trunc('minute', now()), gen_random_uuid(), 100, 50, array_fill(0::bigint, array[30]))`,
    )
    const path = await plant('stormy')
    const refused = await compensate(path)
    expect(refused.body.blocked_by).toEqual(['downstream_error_rate_5m > 5%'])
    expect(refused.body.stop_if).toContainEqual({
      condition: 'downstream_error_rate_5m > 5%',
      actual: 0.5,
      tripped: true,
    })
    expect((await compensate(path, { force: ['downstream_error_rate_5m > 5%'] })).status).toBe(202)
  })
})

describe('the approval of a compensation', () => {
  const waiting = async (type: string): Promise<{ path: string; original: string }> => {
    const original = await plant(type)
    expect((await preflight(original)).requires_approval).toBe(true)
    const { status, body } = await compensate(original)
    expect([status, body.status]).toEqual([202, 'awaiting_approval'])
    return { path: `/operations/${body.id}`, original }
  }
  const decide = (path: string, decision: string, principal = 'somebody else'): Promise<Answer> =>
    post(`${path}/approval`, { decision, note: 'seen' }, { 'x-principal': principal })

  it.each(['reviewed', 'guarded'])('of a type %s is given by another person', async (type) => {
    const { path } = await waiting(type)
    const own = await decide(path, 'approve', 'dev')
    expect([own.status, own.body.code]).toEqual([403, 'self-approval'])
    const approved = await decide(path, 'approve')
    expect([approved.status, approved.body.status]).toEqual([200, 'pending'])
    expect(approved.body.approval).toMatchObject({ decision: 'approved', decided_by: 'somebody else' })
  })

  it('is refused when the facts have changed since its preflight', async () => {
    const { path, original } = await waiting('reviewed')
    await api.service.database.query(
      ({ sql }) => sql`
        update effects set state = 'compensated' where operation_id = ${uuidOf(original.slice('/operations/'.length))}::uuid
          and ord = 0`,
    )
    const outdated = await decide(path, 'approve')
    expect([outdated.status, outdated.body.code]).toEqual([412, 'preflight-outdated'])
    expect((await decide(path, 'reject')).body.status).toBe('cancelled')
  })

  it('that is refused ends it, and another one may be asked for', async () => {
    const { path, original } = await waiting('reviewed')
    expect((await preflight(original)).blocked_by).toEqual(['compensation-in-progress'])
    expect((await decide(path, 'reject')).body.status).toBe('cancelled')
    expect((await preflight(original)).allowed).toBe(true)
  })
})
