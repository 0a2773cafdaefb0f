import { randomUUID } from 'node:crypto'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { OperationType, SendOutcome } from '../../src/domain/operation-type.ts'
import type { App } from '../../src/http/app.ts'
import { MAX_CALLBACK_BYTES } from '../../src/http/limits.ts'
import { buildServer } from '../../src/http/server.ts'
import { compileCallback } from '../../src/operation-types/callback-rules.ts'
import { CALLBACK, SECRETS, type Signed, signEvent } from '../support/callbacks.ts'
import { plantedType } from '../support/planted-operation.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { BUSY, openProvider, UNKNOWN } from '../support/service-provider.ts'

/** Callbacks over HTTP, the real database and a running engine, whose provider answers when the test says so. */
const provider = openProvider()
const callback = compileCallback(CALLBACK, {
  type: 'pay',
  env: {},
  secrets: (name) => (name === 'CALLBACK' ? `${SECRETS[0]} ${SECRETS[1]}` : undefined),
})
const types: OperationType[] = [
  provider.type('pay', { callback }),
  provider.type('pay-by-hand', { callback, onAbsent: 'case' }),
  plantedType('silent'),
  plantedType('broken', {
    callback: {
      ...callback,
      read: () => {
        throw new Error('a fault of the type')
      },
    },
  }),
]
const logged: Record<string, unknown>[] = []
const log = pino({ level: 'info', base: null }, { write: (line) => void logged.push(JSON.parse(line)) })
let service: TestService
let engine: TestEngine
let app: App
let guarded: App

beforeAll(async () => {
  service = await openTestService({ types })
  const open = (auth: 'off' | 'keys') =>
    buildServer({
      services: service.services,
      config: { auth, publicUrl: null },
      state: { draining: false },
      log,
    })
  app = await open('off')
  guarded = await open('keys')
  engine = await startTestEngine({ url: service.url, types })
})
afterAll(async () => {
  provider.releaseAll()
  await engine.drain()
  await app.close()
  await guarded.close()
  await service.close()
})

const post = async ({ headers, body }: Signed, path = '/callbacks/pay', server = app) => {
  const answer = await server.inject({ method: 'POST', url: path, headers, payload: body })
  return { status: answer.statusCode, headers: answer.headers, body: answer.json() }
}
const event = (key: string, status: string, more: object = {}) => ({ data: { reference: key, status, ...more } })
const freshId = (): string => `evt_${randomUUID()}`
/** Sends an event about `key`, and answers with its outcome. */
const tell = async (key: string, status: 'settled' | 'declined', { id = freshId(), type = 'pay', more = {} } = {}) => {
  const { status: code, body } = await post(signEvent(id, event(key, status, more)), `/callbacks/${type}`)
  expect(code).toBe(202)
  return body
}
const rowsOf = (id: string) =>
  service.database.query(({ sql }) => sql`select outcome from callback_inbox where event_id = ${id}`)

describe('POST /callbacks/{type}: what is not taken', () => {
  const good = (id = freshId(), body: Parameters<typeof signEvent>[1] = event('nobody', 'settled')) =>
    signEvent(id, body)
  const without = (name: string): Signed => {
    const { headers, body } = good()
    const { [name]: _, ...rest } = headers
    return { headers: rest, body }
  }
  const withHeader = (name: string, value: string): Signed => {
    const { headers, body } = good()
    return { headers: { ...headers, [name]: value }, body }
  }

  it.each<[string, () => Signed, string, number, string]>([
    ['an unknown type', good, '/callbacks/nope', 404, 'operation-type-not-found'],
    ['a type without callbacks', good, '/callbacks/silent', 404, 'callback-not-configured'],
    ['no id', () => without('webhook-id'), '', 401, 'invalid-signature'],
    ['no timestamp', () => without('webhook-timestamp'), '', 401, 'invalid-signature'],
    ['no signature', () => without('webhook-signature'), '', 401, 'invalid-signature'],
    ['a secret that is not ours', () => signEvent('x', {}, { secret: SECRETS[2] }), '', 401, 'invalid-signature'],
    ['case 109: a timestamp "abc"', () => withHeader('webhook-timestamp', 'abc'), '', 401, 'invalid-signature'],
    ['case 109: an empty timestamp', () => withHeader('webhook-timestamp', ''), '', 401, 'invalid-signature'],
    ['case 109: an hour ahead', () => signEvent('x', {}, { ageSeconds: -3_600 }), '', 401, 'invalid-signature'],
    ['an hour ago', () => signEvent('x', {}, { ageSeconds: 3_600 }), '', 401, 'invalid-signature'],
    [
      'case 109: two wrong signatures',
      () => withHeader('webhook-signature', 'v1,AAAA v1,BBBB'),
      '',
      401,
      'invalid-signature',
    ],
    [
      'case 109: no hex, no base64',
      () => withHeader('webhook-signature', 'v1,\u00ff%zz'),
      '',
      401,
      'invalid-signature',
    ],
    ['another body than was signed', () => ({ ...good(), body: '{}' }), '', 401, 'invalid-signature'],
    ['no body, unsigned', () => ({ headers: {}, body: '' }), '', 401, 'invalid-signature'],
    ['no body, signed', () => good('x', ''), '', 400, 'malformed-json'],
    ['no JSON', () => good('x', '{"a":'), '', 400, 'malformed-json'],
    ['one byte too many', () => good('x', `"${'x'.repeat(MAX_CALLBACK_BYTES - 1)}"`), '', 413, 'body-too-large'],
    ['a tenant that is no number', good, '/callbacks/pay?tenant=one', 400, 'invalid-request'],
    ['a tenant beyond all', good, '/callbacks/pay?tenant=2147483648', 400, 'invalid-request'],
    ['an unknown parameter', good, '/callbacks/pay?tennant=1', 400, 'invalid-request'],
    ['a fault of the type, which is tried again', good, '/callbacks/broken', 500, 'internal'],
  ])('%s', async (_, make, path, status, code) => {
    const signed = make()
    const answer = await post(signed, path || '/callbacks/pay')
    expect(answer).toMatchObject({ status, body: { code, status } })
    expect(answer.headers['content-type']).toContain('application/problem+json')
    const challenge = answer.headers['www-authenticate']
    expect(challenge).toBe(status === 401 ? 'StandardWebhooks realm="opledger"' : undefined)
    expect(await rowsOf(signed.headers['webhook-id'] ?? '')).toEqual([])
    for (const secret of SECRETS) expect(JSON.stringify([answer, logged])).not.toContain(secret)
  })

  it('names its own limit', async () => {
    const { body } = await post(good('x', `"${'x'.repeat(MAX_CALLBACK_BYTES)}"`))
    expect(body.detail).toBe('The body exceeds 256 KiB')
  })

  it('is no page to read', async () => {
    const answer = await app.inject({ method: 'GET', url: '/callbacks/pay' })
    expect([answer.statusCode, answer.headers.allow]).toEqual([405, 'POST'])
  })
})

describe('POST /callbacks/{type}: what is taken', () => {
  it.each<[string, Signed]>([
    ['as application/json', signEvent(freshId(), event('nobody', 'settled'))],
    [
      'signed with the other secret of the rotation',
      signEvent(freshId(), event('nobody', 'settled'), { secret: SECRETS[1] }),
    ],
    [
      'of as many bytes as are allowed',
      signEvent(freshId(), JSON.stringify(event('nobody', 'settled')).padEnd(MAX_CALLBACK_BYTES)),
    ],
    [
      'with numbers and texts that we would refuse from a client',
      signEvent(
        freshId(),
        '{"data":{"reference":"nobody","status":"settled"},"big":12345678901234567890,"nul":"\\u0000","__proto__":{}}',
      ),
    ],
    [
      'nested deeply',
      signEvent(
        freshId(),
        `{"data":{"reference":"nobody","status":"settled"},"deep":${'['.repeat(50_000)}${']'.repeat(50_000)}}`,
      ),
    ],
  ])('%s', async (_, signed) => {
    expect(await post(signed)).toMatchObject({
      status: 202,
      body: { event_id: signed.headers['webhook-id'], outcome: 'unknown_effect', duplicate: false },
    })
  })

  it.each([['text/plain'], ['application/x-www-form-urlencoded'], [undefined]])(
    'whatever its type: %s',
    async (type) => {
      const { headers, body } = signEvent(freshId(), event('nobody', 'settled'))
      const { 'content-type': _, ...rest } = headers
      const answer = await post({ headers: type === undefined ? rest : { ...rest, 'content-type': type }, body })
      expect(answer).toMatchObject({ status: 202, body: { outcome: 'unknown_effect' } })
    },
  )

  it('whatever it would rather read', async () => {
    const signed = signEvent(freshId(), event('nobody', 'settled'))
    const answer = await post({ ...signed, headers: { ...signed.headers, accept: 'text/html' } })
    expect(answer).toMatchObject({ status: 202, headers: { 'cache-control': 'no-store' } })
  })

  it('without a key, and from any host and origin: the signature is the authentication', async () => {
    const foreign = { host: 'hooks.example', origin: 'https://evil.example' }
    for (const server of [app, guarded]) {
      const signed = signEvent(freshId(), event('nobody', 'settled'))
      expect(
        await post({ ...signed, headers: { ...signed.headers, ...foreign } }, '/callbacks/pay', server),
      ).toMatchObject({
        status: 202,
      })
      expect(await post({ body: signed.body, headers: foreign }, '/callbacks/pay', server)).toMatchObject({
        status: 401,
      })
    }
  })

  it('a repeat is answered as the first was; the id with another body is refused', async () => {
    const id = freshId()
    const first = await post(signEvent(id, event('nobody', 'settled')))
    const again = await post(signEvent(id, event('nobody', 'settled'), { ageSeconds: 60 }))
    expect(again.body).toEqual({ ...first.body, duplicate: true })
    expect(await post(signEvent(id, event('nobody', 'declined')))).toMatchObject({
      status: 409,
      body: { code: 'event-id-reused' },
    })
    expect(await rowsOf(id)).toEqual([{ outcome: 'unknown_effect' }])
  })

  it('what no rule reads is ignored, and nothing of it is kept', async () => {
    const id = freshId()
    const ignored = await post(signEvent(id, { hello: 'jane@example.com' }))
    expect(ignored.body).toEqual({ event_id: id, outcome: 'ignored', duplicate: false })
    const [row] = await service.database.query(({ sql }) => sql`select * from callback_inbox where event_id = ${id}`)
    expect(row).toMatchObject({
      state: null,
      effect_key: null,
      outcome: 'ignored',
      body_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    expect(JSON.stringify([row, logged])).not.toContain('jane@')
  })

  it('asks for the tenant where several have the effect', async () => {
    const key = 'shared'
    await submitHeld(key)
    await service.database.transaction(async ({ script }) => {
      await script(`insert into tenants (id, name) values (2, 'other')`)
      for (const table of ['operations', 'effects']) {
        await script(`insert into ${table} select (jsonb_populate_record(x, '{"tenant_id": 2}')).* from ${table} x
          where ${table === 'effects' ? `effect_key = '${key}'` : `id in (select operation_id from effects where effect_key = '${key}')`}`)
      }
    })
    const signed = signEvent(freshId(), event(key, 'settled'))
    expect(await post(signed)).toMatchObject({ status: 409, body: { code: 'callback-ambiguous' } })
    expect(await post(signed, '/callbacks/pay?tenant=1')).toMatchObject({
      status: 202,
      body: { outcome: 'applied', duplicate: false },
    })
    await service.database.transaction(async ({ script }) => {
      await script(
        'delete from effects where tenant_id = 2; delete from operations where tenant_id = 2; delete from tenants where id = 2',
      )
    })
    provider.release(key)
  })
})

/** One item whose call is in the air. */
const submitHeld = async (key: string, type = 'pay'): Promise<string> => {
  provider.hold(key)
  const { id } = await service.submit(type, [{ key }])
  await eventually('the call is in the air', () => provider.calls(key) === 1)
  return id
}
/** One item whose call timed out. */
const submitUncertain = async (key: string, type = 'pay'): Promise<string> => {
  provider.answer(key, UNKNOWN)
  const { id } = await service.submit(type, [{ key }])
  await untilStatus(service, id, 'reconciliation_required')
  return id
}
const entries = async (id: string) =>
  (await service.ledger(id)).map((entry) => [entry.state, entry.source, entry.reasonCode, entry.evidenceRef])
const REFUSED: SendOutcome = { state: 'failed', failureClass: 'conflict', reasonCode: 'NO' }

describe('callback against timeout', () => {
  it('that comes before the answer settles the item; the answer then finds it known', async () => {
    const id = await submitHeld('c-before')
    const told = await tell('c-before', 'settled', { id: 'evt_before', more: { id: 'tx-1' } })
    expect(told).toEqual({
      event_id: 'evt_before',
      outcome: 'applied',
      duplicate: false,
      operation_id: formatId('op', id),
      item_key: 'c-before',
    })
    expect(await service.view(id)).toMatchObject({ status: 'running', counts: { applied: 1, inFlight: 0 } })
    provider.release('c-before')
    await untilStatus(service, id, 'succeeded')
    expect((await service.items(id)).get('c-before')).toMatchObject({ state: 'applied', effectRef: 'tx-1' })
    expect(await entries(id)).toEqual([['applied', 'callback', null, 'callback:evt_before']])
    expect(await service.cases(id)).toEqual([])
    await expectConserved(service, id)
  })

  it.each<[string, SendOutcome, string[]]>([
    ['times out', UNKNOWN, []],
    ['is refused', REFUSED, ['contradiction']],
    ['is put off', BUSY, ['contradiction']],
  ])('before a call that %s: what is established stays, and nothing is sent again', async (name, outcome, causes) => {
    const key = `c-then-${name}`
    const id = await submitHeld(key)
    expect(await tell(key, 'settled')).toMatchObject({ outcome: 'applied' })
    provider.release(key, outcome)
    await untilStatus(service, id, 'succeeded')
    const cases = await service.cases(id)
    expect(cases.map((found) => [found.cause, found.status])).toEqual(causes.map((cause) => [cause, 'open']))
    expect((await service.items(id)).get(key)).toMatchObject({ state: 'applied', retryAt: null })
    expect(provider.calls(key)).toBe(1)
    await expectConserved(service, id)
  })

  it('after the timeout closes the case, and the operation is done', async () => {
    const id = await submitUncertain('c-after')
    expect(await tell('c-after', 'settled', { id: 'evt_after' })).toMatchObject({ outcome: 'applied' })
    await untilStatus(service, id, 'succeeded')
    const [closed] = await service.cases(id)
    expect(closed?.resolution).toMatchObject({
      resolution: 'applied',
      source: 'callback',
      evidenceRef: 'callback:evt_after',
      resolvedBy: 'system:callback',
    })
    // after the final state evidence is welcome all the same; it overwrites nothing
    const contradiction = await tell('c-after', 'declined')
    const cases = await service.cases(id)
    expect(contradiction).toMatchObject({ outcome: 'contradiction', case_id: formatId('case', cases.at(-1)?.id ?? '') })
    expect(cases.at(-1)).toMatchObject({ cause: 'contradiction', status: 'open' })
    expect(await service.view(id)).toMatchObject({ status: 'succeeded', counts: { applied: 1, failed: 0 } })
    expect(await tell('c-after', 'settled')).toMatchObject({ outcome: 'known' })
    await expectConserved(service, id)
  })

  it('"absent" during the call waits for its end; then it is tried again, once', async () => {
    const id = await submitHeld('c-deferred')
    expect(await tell('c-deferred', 'declined', { id: 'evt_deferred' })).toMatchObject({ outcome: 'deferred' })
    expect(provider.calls('c-deferred')).toBe(1)
    provider.release('c-deferred', UNKNOWN)
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('c-deferred')).toBe(2)
    expect(await entries(id)).toEqual([
      ['uncertain', 'worker', 'TIMEOUT', null],
      ['failed', 'callback', 'CONFIRMED_ABSENT', 'callback:evt_deferred'],
      ['applied', 'worker', null, null],
    ])
    expect(await tell('c-deferred', 'declined', { id: 'evt_deferred' })).toMatchObject({
      outcome: 'absent',
      duplicate: true,
    })
    expect(provider.calls('c-deferred')).toBe(2)
    await expectConserved(service, id)
  })

  it('"absent" is left to a person where the type says so', async () => {
    const id = await submitUncertain('c-by-hand', 'pay-by-hand')
    // not before the send can no longer arrive
    const first = await tell('c-by-hand', 'declined', { id: 'evt_by_hand', type: 'pay-by-hand' })
    expect(['deferred', 'noted']).toContain(first.outcome)
    const noted = async () => tell('c-by-hand', 'declined', { id: 'evt_by_hand', type: 'pay-by-hand' })
    await eventually('it is noted', async () => (await noted()).outcome === 'noted')
    const [open] = await service.cases(id)
    expect(await noted()).toMatchObject({ case_id: formatId('case', open?.id ?? ''), duplicate: true })
    expect(open).toMatchObject({ status: 'open' })
    expect(provider.calls('c-by-hand')).toBe(1)
    await service.services.resolveCase(principal, open?.id ?? '', {
      resolution: 'not_applied',
      evidenceRef: 'evt_by_hand',
      effectRef: null,
      note: null,
      retry: true,
    })
    await untilStatus(service, id, 'succeeded')
    expect(provider.calls('c-by-hand')).toBe(2)
  })
})

describe('callback after a cancel', () => {
  const cancelInFlight = async (key: string): Promise<string> => {
    const id = await submitHeld(key)
    await service.services.cancelOperation(principal, id, { reason: null, ifMatchVersion: null })
    return id
  }

  it('is welcome: "applied" tells that it was too late', async () => {
    const id = await cancelInFlight('c-cancel-applied')
    expect(await tell('c-cancel-applied', 'settled')).toMatchObject({ outcome: 'applied' })
    provider.release('c-cancel-applied', UNKNOWN)
    const view = await untilStatus(service, id, 'completed_after_cancel')
    expect(view).toMatchObject({ counts: { applied: 1 }, cancel: { appliedAfterRequest: 1 } })
    expect(provider.calls('c-cancel-applied')).toBe(1)
    await expectConserved(service, id)
  })

  it('starts nothing: "absent" is a failure without another try', async () => {
    const id = await cancelInFlight('c-cancel-absent')
    expect(await tell('c-cancel-absent', 'declined')).toMatchObject({ outcome: 'deferred' })
    provider.release('c-cancel-absent', UNKNOWN)
    await eventually('the absence counts', async () => (await service.view(id)).counts.failed === 1)
    expect((await service.view(id)).counts).toMatchObject({ uncertain: 0, inFlight: 0 })
    expect((await service.items(id)).get('c-cancel-absent')).toMatchObject({ state: 'failed', retryAt: null })
    expect(provider.calls('c-cancel-absent')).toBe(1)
    await expectConserved(service, id)
  })
})

it('logs each judgement once, with names and without the payload', async () => {
  const id = await submitUncertain('c-logged')
  logged.length = 0
  await tell('c-logged', 'settled', { id: 'evt_logged', more: { note: 'jane@example.com' } })
  await tell('c-logged', 'settled', { id: 'evt_logged', more: { note: 'jane@example.com' } })
  const lines = logged.filter((line) => line.msg === 'callback judged')
  expect(lines).toMatchObject([
    { operation_id: formatId('op', id), item_key: 'c-logged', effect_key: 'c-logged', outcome: 'applied' },
  ])
  expect(JSON.stringify(logged)).not.toContain('jane@')
})
