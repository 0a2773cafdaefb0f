import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { SCOPES } from '../../src/domain/scope.ts'
import { openEdge } from './fake-services.ts'

const me = { host: 'h', pid: 1, code_version: 'w1', types: [{ name: 'a', version: 1 }] }
const sent = { effect_key: 'k', send: 1 }
const post = (path: string, payload: object) => ({ method: 'POST' as const, url: path, payload })

describe('the requests of workers elsewhere', () => {
  test('are handed on with their defaults', async () => {
    const { app, fake } = await openEdge()
    const claimed = await app.inject(post('/worker/claims', me))
    expect([claimed.statusCode, claimed.json()]).toEqual([200, { worker: 'wk1.a.b', not_runnable: [], batch: null }])
    expect(fake.calls.at(-1)).toMatchObject({
      name: 'claimWork',
      arguments: [
        {},
        { worker: null, host: 'h', codeVersion: 'w1', maxItems: null, lostAnswer: false, leases: [], seconds: 0 },
      ],
    })
    const results = [
      { ...sent, state: 'applied', effect_ref: 'r', duration_ms: 5 },
      { ...sent, effect_key: 'l', state: 'skipped' },
      { ...sent, effect_key: 'm', state: 'failed', failure_class: 'conflict', message: 'no' },
      { ...sent, effect_key: 'n', state: 'uncertain', downstream_error: true },
      { ...sent, effect_key: 'o', state: 'unsent' },
    ]
    const reported = await app.inject(
      post('/worker/results', { lease: 'ls', results, stop_seen: 'cancel', lost_answer: true, in_hand: [sent] }),
    )
    expect([reported.statusCode, reported.json().code]).toEqual([404, 'lease-not-found'])
    const plain = { downstreamError: false, durationMs: null, send: 1 }
    expect(fake.calls.at(-1)?.arguments[1]).toEqual({
      lease: 'ls',
      maxItems: null,
      stopSeen: 'cancel',
      lostAnswer: true,
      inHand: [{ effectKey: 'k', send: 1 }],
      results: [
        { ...plain, effectKey: 'k', durationMs: 5, outcome: { state: 'applied', effectRef: 'r' } },
        { ...plain, effectKey: 'l', outcome: { state: 'skipped', effectRef: null, reasonCode: null } },
        {
          ...plain,
          effectKey: 'm',
          outcome: { state: 'failed', failureClass: 'conflict', reasonCode: null, message: 'no' },
        },
        {
          ...plain,
          effectKey: 'n',
          downstreamError: true,
          outcome: { state: 'uncertain', reasonCode: null, message: null },
        },
        { ...plain, effectKey: 'o', outcome: { state: 'unsent' } },
      ],
    })
    await app.inject(post('/worker/give-back', { lease: 'ls' }))
    expect(fake.calls.at(-1)?.arguments[1]).toEqual({ lease: 'ls', results: [], rest: 'uncertain' })
    await app.inject(post('/worker/heartbeat', { worker: 'wk', leases: [{ lease: 'ls' }] }))
    expect(fake.calls.at(-1)?.arguments[1]).toEqual({
      worker: 'wk',
      state: null,
      leases: [{ lease: 'ls', stopSeen: null }],
    })
    await app.close()
  })

  test.each([
    ['/worker/claims', { ...me, types: [] }, '/types'],
    ['/worker/claims', { ...me, types: [me.types[0], me.types[0]] }, '/types'],
    ['/worker/claims', { ...me, wait_seconds: 61 }, '/wait_seconds'],
    ['/worker/claims', { ...me, max_items: 0 }, '/max_items'],
    ['/worker/claims', { ...me, max_items: 501 }, '/max_items'],
    ['/worker/claims', { ...me, pid: 2 ** 31 }, '/pid'],
    ['/worker/claims', { ...me, worker: 'w'.repeat(1_025) }, '/worker'],
    ['/worker/claims', { ...me, tenant: 2 }, '/tenant'],
    ['/worker/results', { lease: 'l' }, '/results'],
    ['/worker/results', { lease: 'l', results: [{ ...sent, state: 'done' }] }, '/results/0/state'],
    ['/worker/results', { lease: 'l', results: [{ ...sent, state: 'failed' }] }, '/results/0/failure_class'],
    [
      '/worker/results',
      { lease: 'l', results: [{ ...sent, state: 'failed', failure_class: 'ambiguous_effect' }] },
      '/results/0/failure_class',
    ],
    ['/worker/results', { lease: 'l', results: [{ ...sent, send: 0, state: 'unsent' }] }, '/results/0/send'],
    [
      '/worker/results',
      { lease: 'l', results: [{ ...sent, state: 'unsent', effect_ref: 'r' }] },
      '/results/0/effect_ref',
    ],
    [
      '/worker/results',
      {
        lease: 'l',
        results: [
          { ...sent, state: 'unsent' },
          { ...sent, state: 'applied' },
        ],
      },
      '/results',
    ],
    [
      '/worker/results',
      {
        lease: 'l',
        results: Array.from({ length: 501 }, (_, n) => ({ effect_key: `${n}`, send: 1, state: 'unsent' })),
      },
      '/results',
    ],
    ['/worker/heartbeat', { worker: 'w', leases: [{ lease: 'l' }, { lease: 'l' }] }, '/leases'],
    ['/worker/give-back', { lease: 'l', rest: 'applied' }, '/rest'],
  ])('%s refuses %j', async (path, body, pointer) => {
    const { app, fake } = await openEdge()
    const answer = await app.inject(post(path, body))
    expect([answer.statusCode, answer.json().errors?.[0]?.pointer]).toEqual([400, pointer])
    expect(fake.calls).toEqual([])
    await app.close()
  })

  test.each(['/worker/claims', '/worker/results', '/worker/heartbeat', '/worker/give-back'])(
    '%s needs the scope `work`, which the others do not contain',
    async (path) => {
      const edge = await openEdge({ auth: 'keys' })
      const keyHash = createHash('sha256').update('opl_0123456789').digest('hex')
      const principal = { tenantId: 1, name: 'k', scopes: SCOPES.filter((scope) => scope !== 'work') }
      edge.fake.keys.set(keyHash, { keyHash, principal })
      const headers = { authorization: 'Bearer opl_0123456789' }
      expect((await edge.app.inject({ ...post(path, {}), headers })).statusCode).toBe(403)
      expect((await edge.app.inject(post(path, {}))).statusCode).toBe(401)
      await edge.app.close()
    },
  )
})
