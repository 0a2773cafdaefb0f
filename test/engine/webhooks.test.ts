/** Webhooks with a real receiver that checks each signature over the exact bytes, as the README tells receivers to. */
import type { ServerResponse } from 'node:http'
import pino from 'pino'
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formatId, parseId } from '../../src/domain/ids.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { openWebhookSender, type WebhookSender, type WebhookSettings } from '../../src/maintenance/webhooks.ts'
import type { OperationView } from '../../src/services/views.ts'
import { plantedType } from '../support/planted-operation.ts'
import { until } from '../support/processes.ts'
import { wipe } from '../support/races.ts'
import { openTestService, principal, type TestService, untilStatus } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { openProvider } from '../support/service-provider.ts'
import { type Received, startWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.ts'
import { openWorkerFleet } from '../support/worker-process.ts'

const secretOf = (byte: number): string => `whsec_${Buffer.alloc(32, byte).toString('base64')}`
const SECRET = secretOf(1)
const OTHER = secretOf(2)
/** For a receiver that is slow on purpose. */
const SHORT_TIMEOUT_MS = 300

const provider = openProvider()
let service: TestService
let app: App
let receiver: WebhookReceiver
let senders: WebhookSender[]

beforeAll(async () => {
  service = await openTestService({
    types: [provider.type('grant'), plantedType('careful', { approval: 'always' })],
    webhooks: { privateAddresses: 'allow' },
  })
  app = await buildServer({
    services: service.services,
    config: { auth: 'off', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
})
afterAll(async () => {
  await app.close()
  await service.close()
})
beforeEach(async () => {
  await wipe(service.database)
  receiver = await startWebhookReceiver()
  senders = []
})
afterEach(async () => {
  for (const sender of senders) await sender.close()
  await receiver.close()
})

const open = (settings: Partial<WebhookSettings> = {}): WebhookSender => {
  const sender = openWebhookSender(
    service.context,
    { secrets: [SECRET], privateAddresses: 'allow', ...settings },
    pino({ level: 'silent' }),
  )
  senders.push(sender)
  return sender
}
/** Cancelled before its start: it settles at once, without a worker. */
const cancelled = async (path = '/hook', url = receiver.url): Promise<OperationView> => {
  const submitted = await service.submit('grant', [{ key: 'a' }], { callbackUrl: `${url}${path}` })
  const { operation } = await service.services.cancelOperation(principal, submitted.id, {
    reason: null,
    ifMatchVersion: null,
  })
  return operation
}

interface Delivery {
  id: string
  state: string
  sending: boolean
  attempts: number
  event: string
  last_status: number | null
  last_error: string | null
  next_attempt_at: string | null
  delivered_at: string | null
  log: { attempt: number; status: number | null; error: string | null; duration_ms: number | null }[]
}
const read = async (url: string) => {
  const answer = await app.inject(url)
  expect([url, answer.statusCode]).toEqual([url, 200])
  return answer.json()
}
const deliveriesOf = async ({ id }: { id: string }): Promise<Delivery[]> =>
  (await read(`/operations/${formatId('op', id)}/webhook-deliveries`)).items
const deliveryOf = async (operation: { id: string }): Promise<Delivery> => {
  const [delivery, ...others] = await deliveriesOf(operation)
  expect(others).toEqual([])
  if (!delivery) throw new Error('there is no delivery')
  return delivery
}
/** One run, and the answer to what it sent. */
const send = async (sender: WebhookSender): Promise<void> => {
  await sender.runOnce()
  await until('nothing is being sent', async () => {
    const [row] = await service.database.query(
      ({ sql }) => sql<{ n: number }>`select count(*)::int as n from webhook_deliveries where held_until is not null`,
    )
    return row?.n === 0
  })
}
const makeDue = () =>
  service.database.query(
    ({ sql }) =>
      sql`update webhook_deliveries set next_attempt_at = now() where state = 'pending' and held_until is null`,
  )
const redeliver = async (id: string) => {
  const answer = await app.inject({ method: 'POST', url: `/webhook-deliveries/${id}/redeliver`, payload: {} })
  return { status: answer.statusCode, body: answer.json() }
}
const only = (): Received => {
  expect(receiver.received).toHaveLength(1)
  const [first] = receiver.received
  if (!first) throw new Error('nothing was received')
  return first
}
const secondsUntil = (time: string | null): number => (Date.parse(time ?? '') - Date.now()) / 1_000

describe('a webhook', () => {
  it('arrives signed over the exact bytes, and says how the operation ended', async () => {
    const operation = await cancelled('/hook?tenant=1')
    expect(receiver.received).toEqual([])
    await send(open())
    const { path, headers, body } = only()
    const delivery = await deliveryOf(operation)
    expect(path).toBe('/hook?tenant=1')
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'webhook-id': delivery.id })
    expect(delivery.id).toMatch(/^wh_[0-9a-f]{32}$/)
    const payload = new Webhook(SECRET).verify(body.toString('utf8'), headers)
    const shown = await read(`/operations/${formatId('op', operation.id)}`)
    expect(payload).toEqual({
      type: 'operation.settled',
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      data: {
        operation: {
          id: shown.id,
          type: 'grant',
          status: 'cancelled',
          version: shown.version,
          counts: { total: 1, applied: 0, skipped: 0, failed: 0, uncertain: 0, unprocessed: 1 },
          completed_at: shown.completed_at,
          links: { self: `/operations/${shown.id}` },
        },
      },
    })
    expect(delivery).toMatchObject({
      state: 'delivered',
      attempts: 1,
      last_status: 204,
      next_attempt_at: null,
      log: [{ attempt: 1, status: 204, error: null, duration_ms: expect.any(Number) }],
    })
    await send(open())
    expect(receiver.received).toHaveLength(1)
  })

  it('is refused by a receiver with another secret, or when a byte was changed', async () => {
    await cancelled()
    await send(open())
    const { headers, body } = only()
    const text = body.toString('utf8')
    expect(() => new Webhook(OTHER).verify(text, headers)).toThrow()
    expect(() => new Webhook(SECRET).verify(text.replace('cancelled', 'succeeded'), headers)).toThrow()
    expect(() => new Webhook(SECRET).verify(text, { ...headers, 'webhook-id': `wh_${'0'.repeat(32)}` })).toThrow()
    const old = String(Number(headers['webhook-timestamp']) - 1)
    expect(() => new Webhook(SECRET).verify(text, { ...headers, 'webhook-timestamp': old })).toThrow()
  })

  it('is signed with every secret, so that a receiver can change over', async () => {
    await cancelled()
    await send(open({ secrets: [SECRET, OTHER] }))
    const { headers, body } = only()
    for (const secret of [SECRET, OTHER]) new Webhook(secret).verify(body.toString('utf8'), headers)
    expect(headers['webhook-signature']?.split(' ')).toHaveLength(2)
  })

  it('tells of a rejected approval and of a cancelled draft too', async () => {
    const careful = await service.submit('careful', [{ key: 'a' }], { callbackUrl: `${receiver.url}/careful` })
    await service.services.decideApproval({ ...principal, name: 'second' }, careful.id, {
      decision: 'reject',
      note: 'no',
      ifMatchVersion: null,
    })
    const draft = await service.submit('grant', [], { draft: true, callbackUrl: `${receiver.url}/draft` })
    expect((await service.view(draft.id)).callbackUrl).toBe(`${receiver.url}/draft`)
    await service.services.cancelOperation(principal, draft.id, { reason: null, ifMatchVersion: null })
    await send(open())
    expect(receiver.received.map(({ path }) => path).sort()).toEqual(['/careful', '/draft'])
    for (const { body } of receiver.received) {
      expect(JSON.parse(body.toString('utf8')).data.operation.status).toBe('cancelled')
    }
  })

  it('that cannot be made holds up no other one', async () => {
    const [broken, whole] = [await cancelled('/broken'), await cancelled('/whole')]
    await service.database.query(
      ({ sql }) => sql`
        update webhook_deliveries set facts = jsonb_set(facts, '{counts,applied}', '-1')
        where operation_id = ${broken.id}::uuid`,
    )
    await open().runOnce()
    await until('the other one is delivered', async () => (await deliveryOf(whole)).state === 'delivered')
    expect(receiver.received.map(({ path }) => path)).toEqual(['/whole'])
    expect(await deliveryOf(broken)).toMatchObject({ state: 'pending', sending: true, attempts: 1 })
  })

  it('is not sent by a worker without a secret', async () => {
    const operation = await cancelled()
    await send(open({ secrets: [] }))
    expect(receiver.received).toEqual([])
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', attempts: 0 })
  })
})

describe('a receiver that does not take it', () => {
  it('500, then 200: the same id and bytes again, 5 s later', async () => {
    const operation = await cancelled()
    receiver.answer(500, 200)
    const sender = open()
    await send(sender)
    const first = await deliveryOf(operation)
    expect(first).toMatchObject({ state: 'pending', sending: false, attempts: 1, last_status: 500, delivered_at: null })
    expect(secondsUntil(first.next_attempt_at)).toBeLessThan(6.1)
    await service.database.query(
      ({ sql }) => sql`update webhook_deliveries set next_attempt_at = now() + interval '1 h'`,
    )
    await send(sender)
    expect(receiver.received).toHaveLength(1)
    await makeDue()
    await send(sender)
    const [one, two] = receiver.received
    expect(two?.body.equals(one?.body ?? Buffer.alloc(0))).toBe(true)
    expect(two?.headers['webhook-id']).toBe(one?.headers['webhook-id'])
    for (const { headers, body } of receiver.received) new Webhook(SECRET).verify(body.toString('utf8'), headers)
    expect(await deliveryOf(operation)).toMatchObject({
      state: 'delivered',
      attempts: 2,
      log: [{ status: 500 }, { status: 200 }],
    })
  })

  it('a redirect is a failure and is not followed', async () => {
    const operation = await cancelled()
    receiver.answer((response) => response.writeHead(302, { location: `${receiver.url}/elsewhere` }).end())
    await send(open())
    expect(receiver.received.map(({ path }) => path)).toEqual(['/hook'])
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', last_status: 302 })
  })

  it('410 disables it, and what else the operation would tell', async () => {
    const operation = await cancelled()
    receiver.answer(410)
    const sender = open()
    await send(sender)
    expect(await deliveryOf(operation)).toMatchObject({ state: 'disabled', last_status: 410, next_attempt_at: null })
    await makeDue()
    await send(sender)
    expect(receiver.received).toHaveLength(1)
  })

  it('429 and 503 say when to come back', async () => {
    const operation = await cancelled()
    receiver.answer((response) => response.writeHead(429, { 'retry-after': '3600' }).end())
    await send(open())
    const { next_attempt_at: next } = await deliveryOf(operation)
    expect(secondsUntil(next)).toBeGreaterThan(3_500)
  })

  it('a slow one is cut off at the deadline, over the whole answer', async () => {
    const [silent, trickling] = [await cancelled('/silent'), await cancelled('/trickling')]
    const trickle = (response: ServerResponse): void => {
      response.writeHead(200)
      const timer = setInterval(() => response.write('x'), 20)
      response.once('close', () => clearInterval(timer))
    }
    receiver.answer(() => {}, trickle)
    await send(open({ timeoutMs: SHORT_TIMEOUT_MS }))
    for (const operation of [silent, trickling]) {
      expect(await deliveryOf(operation)).toMatchObject({
        state: 'pending',
        last_status: null,
        last_error: 'TIMEOUT',
        log: [{ status: null, error: 'TIMEOUT' }],
      })
    }
    await until('the receiver was hung up on', () => receiver.inFlight().now === 0)
  })

  it('an endless answer counts by its status', async () => {
    const operation = await cancelled()
    receiver.answer((response) => {
      response.writeHead(200)
      const pump = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536))) {}
      }
      response.on('drain', pump)
      pump()
    })
    await send(open())
    expect(await deliveryOf(operation)).toMatchObject({ state: 'delivered', last_status: 200 })
  })

  it('one that is not there', async () => {
    const operation = await cancelled()
    await receiver.close()
    await send(open())
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', last_error: 'ECONNREFUSED' })
    receiver = await startWebhookReceiver()
  })

  it('after ten tries it is given up, and a redelivery begins anew', async () => {
    const operation = await cancelled()
    const sender = open()
    for (let tries = 0; tries < 10; tries++) {
      receiver.answer(503)
      await makeDue()
      await send(sender)
    }
    const failed = await deliveryOf(operation)
    expect(failed).toMatchObject({ state: 'failed', attempts: 10, next_attempt_at: null })
    expect(await redeliver(failed.id)).toMatchObject({ status: 202, body: { id: failed.id, state: 'pending' } })
    await send(sender)
    expect(await deliveryOf(operation)).toMatchObject({ state: 'delivered', attempts: 11 })
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id']))).toEqual(new Set([failed.id]))
    expect(new Set(receiver.received.map(({ body }) => body.toString('utf8'))).size).toBe(1)
  })
})

describe('private networks', () => {
  const names: Record<string, string[]> = {
    'inside.test': ['127.0.0.1'],
    'mapped.test': ['::ffff:127.0.0.1'],
    'metadata.test': ['169.254.169.254'],
  }
  const resolve: WebhookSettings['resolve'] = (hostname, _options, callback) =>
    callback(
      null,
      (names[hostname] ?? []).map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )
  const portOf = (): string => new URL(receiver.url).port

  it.each(Object.keys(names))('%s, which resolves into one, is not called', async (name) => {
    const operation = await cancelled('/hook', `http://${name}:${portOf()}`)
    await send(open({ privateAddresses: 'refuse', resolve }))
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', last_error: 'PRIVATE_ADDRESS' })
    expect(receiver.received).toEqual([])
  })
  it('nor is a name that changes its mind: it is resolved for each connection, and that answer is the one that is used', async () => {
    let resolved = 0
    const rebinding: WebhookSettings['resolve'] = (_hostname, _options, callback) => {
      resolved++
      if (resolved === 1) callback(Object.assign(new Error('not yet'), { code: 'ENOTFOUND' }), [])
      else callback(null, [{ address: '127.0.0.1', family: 4 }])
    }
    const operation = await cancelled('/hook', `http://rebinding.test:${portOf()}`)
    expect(resolved).toBe(0)
    const sender = open({ privateAddresses: 'refuse', resolve: rebinding })
    await send(sender)
    expect(await deliveryOf(operation)).toMatchObject({ last_error: 'ENOTFOUND' })
    await service.database.query(({ sql }) => sql`update webhook_deliveries set next_attempt_at = now()`)
    await send(sender)
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', attempts: 2, last_error: 'PRIVATE_ADDRESS' })
    expect(resolved).toBe(2)
    expect(receiver.received).toEqual([])
  })
  it('nor is an address that was accepted before it was forbidden', async () => {
    const operation = await cancelled()
    await send(open({ privateAddresses: 'refuse' }))
    expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', last_error: 'PRIVATE_ADDRESS' })
    expect(receiver.received).toEqual([])
  })
  it('where they are allowed, the same name is called', async () => {
    const operation = await cancelled('/hook', `http://inside.test:${portOf()}`)
    await send(open({ resolve }))
    expect(await deliveryOf(operation)).toMatchObject({ state: 'delivered' })
    expect(only().headers.host).toBe(`inside.test:${portOf()}`)
  })
})

describe('the work', () => {
  it('is not held up by a receiver that never answers, which gets four calls at a time', async () => {
    const hang = Array.from({ length: 40 }, () => () => {})
    receiver.answer(...hang)
    const engine = await startTestEngine({
      url: service.url,
      types: service.context.types.list(),
      webhooks: { secrets: [SECRET], privateAddresses: 'allow', timeoutMs: 120_000 },
    })
    try {
      const operations: OperationView[] = []
      for (let index = 0; index < 12; index++) {
        operations.push(
          await service.submit('grant', [{ key: `held-${index}` }], { callbackUrl: `${receiver.url}/hangs` }),
        )
      }
      for (const { id } of operations) await untilStatus(service, id, 'succeeded')
      await until('the receiver is busy', () => receiver.inFlight().now === 4)
      expect(receiver.inFlight().most).toBe(4)
      for (const operation of operations) expect(await deliveryOf(operation)).toMatchObject({ state: 'pending' })
    } finally {
      await engine.drain()
    }
    // the drain cut the calls off, and each has its next time
    const [left] = await service.database.query(
      ({ sql }) => sql<{ held: number; cut: number }>`
        select count(held_until)::int as held, count(last_error)::int as cut from webhook_deliveries where state = 'pending'`,
    )
    expect(left).toEqual({ held: 0, cut: 4 })
  })

  it('is told of when it ends, and when it needs somebody', async () => {
    provider.answer('doubtful', { state: 'uncertain', reasonCode: 'TIMEOUT' })
    const engine = await startTestEngine({
      url: service.url,
      types: service.context.types.list(),
      webhooks: { secrets: [SECRET], privateAddresses: 'allow' },
    })
    try {
      const { id } = await service.submit('grant', [{ key: 'doubtful' }], { callbackUrl: receiver.url })
      await untilStatus(service, id, 'reconciliation_required')
      await until('the first webhook arrived', () => receiver.received.length === 1)
      const [open] = await service.cases(id)
      await service.services.resolveCase(principal, open?.id ?? '', {
        resolution: 'applied',
        evidenceRef: 'ticket-1',
        effectRef: null,
        note: null,
        retry: false,
      })
      await until('the second webhook arrived', () => receiver.received.length === 2)
      const told = receiver.received.map(({ body }) => JSON.parse(body.toString('utf8')))
      expect(told.map(({ type, data }) => [type, data.operation.status])).toEqual([
        ['operation.reconciliation_required', 'reconciliation_required'],
        ['operation.settled', 'succeeded'],
      ])
      expect(told[0].data.operation.counts.uncertain).toBe(1)
      expect(told[1].data.operation.version).toBeGreaterThan(told[0].data.operation.version)
      expect((await deliveriesOf({ id })).map(({ event }) => event)).toEqual(told.map(({ type }) => type))
    } finally {
      await engine.drain()
    }
  })

  it('a worker killed between the send and its note: another one sends the same again', async () => {
    const operation = await cancelled()
    receiver.answer(() => {})
    const fleet = openWorkerFleet({
      databaseUrl: service.url,
      typeFiles: [],
      env: { OPLEDGER_WEBHOOK_SECRET: SECRET, OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'allow' },
    })
    try {
      const first = await fleet.start()
      await until('the webhook arrived', () => receiver.received.length === 1)
      first.kill('SIGKILL')
      await until('its connection is gone', () => receiver.inFlight().now === 0)
      expect(await deliveryOf(operation)).toMatchObject({ state: 'pending', sending: true })
      expect(await redeliver((await deliveryOf(operation)).id)).toMatchObject({
        status: 409,
        body: { code: 'webhook-delivery-in-progress' },
      })
      await service.database.query(
        ({ sql }) => sql`update webhook_deliveries set held_until = now(), next_attempt_at = now()`,
      )
      await fleet.start()
      await until('it is delivered', async () => (await deliveryOf(operation)).state === 'delivered')
    } finally {
      await fleet.stop()
    }
    const [one, two] = receiver.received
    expect(receiver.received).toHaveLength(2)
    expect(two?.headers['webhook-id']).toBe(one?.headers['webhook-id'])
    expect(two?.body.equals(one?.body ?? Buffer.alloc(0))).toBe(true)
    for (const { headers, body } of receiver.received) new Webhook(SECRET).verify(body.toString('utf8'), headers)
    expect((await deliveryOf(operation)).log).toMatchObject([
      { attempt: 1, status: null, error: 'SENDER_LOST', duration_ms: null },
      { attempt: 2, status: 204 },
    ])
  })
})

describe('the routes', () => {
  const submit = (callbackUrl: unknown, key?: string) =>
    app.inject({
      method: 'POST',
      url: '/operations',
      payload: { type: 'grant', items: [{ key: 'a', input: {} }], callback_url: callbackUrl },
      headers: key === undefined ? {} : { 'idempotency-key': key },
    })

  it('take a callback URL and show it in one spelling', async () => {
    const answer = await submit('HTTPS://Example.com:443/hooks')
    expect(answer.statusCode).toBe(202)
    const { id, callback_url: url, links } = answer.json()
    expect(url).toBe('https://example.com/hooks')
    expect(await read(`/operations/${id}`)).toMatchObject({ callback_url: 'https://example.com/hooks' })
    expect(await read(links.webhook_deliveries)).toEqual({ items: [] })
    expect((await submit(null)).json()).toMatchObject({ callback_url: null })
  })

  it.each([
    ['another scheme', 'ftp://example.com/', 422, 'invalid-callback-url'],
    ['a relative one', '/hooks', 422, 'invalid-callback-url'],
    ['credentials', 'https://me:pw@example.com/', 422, 'invalid-callback-url'],
    ['a fragment', 'https://example.com/#x', 422, 'invalid-callback-url'],
    ['one that is too long when it is encoded', `https://example.com/${'ä'.repeat(500)}`, 422, 'invalid-callback-url'],
    ['one that is too long', `https://example.com/${'a'.repeat(2_048)}`, 400, 'invalid-request'],
    ['an empty text', '', 400, 'invalid-request'],
    ['a number', 5, 400, 'invalid-request'],
  ])('refuse %s, and nothing is stored', async (_, callbackUrl, status, code) => {
    const answer = await submit(callbackUrl)
    expect([answer.statusCode, answer.json().code]).toEqual([status, code])
    expect(answer.json().errors[0]).toMatchObject({ pointer: '/callback_url' })
    expect(await service.database.query(({ sql }) => sql`select 1 from operations`)).toEqual([])
  })

  it('refuse private networks where they are not allowed', async () => {
    const strict = await openTestService({
      types: service.context.types.list(),
      webhooks: { privateAddresses: 'refuse' },
    })
    try {
      for (const url of ['http://127.0.0.1/', 'http://2130706433/', 'http://[::1]/', 'http://localhost/']) {
        await expect(strict.submit('grant', [{ key: 'a' }], { callbackUrl: url })).rejects.toMatchObject({
          code: 'invalid-callback-url',
          errors: [{ pointer: '/callback_url' }],
        })
      }
    } finally {
      await strict.close()
    }
  })

  it('a callback URL is part of what an idempotency key stands for', async () => {
    const first = await submit('https://example.com/a', 'key-1')
    expect((await submit('https://example.com/a', 'key-1')).json().id).toBe(first.json().id)
    expect((await submit('https://example.com/b', 'key-1')).json().code).toBe('idempotency-key-reused')
  })

  it('a replay inherits it', async () => {
    const operation = await cancelled()
    const preflight = await service.services.preflightReplay(principal, operation.id, { scope: null })
    const { operation: replay } = await service.services.replayOperation(principal, operation.id, {
      preflightId: preflight.id,
      reason: 'again',
      force: [],
      ifMatchVersion: null,
    })
    expect(replay.callbackUrl).toBe(`${receiver.url}/hook`)
  })

  it('list deliveries page by page, and read one', async () => {
    const operation = await cancelled()
    await service.database.query(
      ({ sql }) => sql`
        insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url)
        select tenant_id, operation_id, event_version + n, event, status, facts, url
        from webhook_deliveries, generate_series(1, 4) n`,
    )
    const path = `/operations/${formatId('op', operation.id)}/webhook-deliveries`
    const first = await read(`${path}?limit=3`)
    expect(first.items).toHaveLength(3)
    const second = await read(`${path}?limit=3&cursor=${first.next_cursor}`)
    expect(second.items).toHaveLength(2)
    expect(second).not.toHaveProperty('next_cursor')
    const ids = [...first.items, ...second.items].map(({ id }: Delivery) => id)
    expect(new Set(ids).size).toBe(5)
    expect(await read(`/webhook-deliveries/${ids[4]}`)).toEqual(second.items[1])
    expect((await app.inject(`${path}?cursor=rubbish`)).json().code).toBe('invalid-cursor')
  })

  it('404 for what is not there, or belongs to another tenant', async () => {
    const operation = await cancelled()
    const { id } = await deliveryOf(operation)
    const nobody = `wh_${'0'.repeat(32)}`
    for (const url of [`/webhook-deliveries/${nobody}`, '/webhook-deliveries/rubbish']) {
      expect((await app.inject(url)).json().code).toBe('webhook-delivery-not-found')
    }
    expect(await redeliver(nobody)).toMatchObject({ status: 404, body: { code: 'webhook-delivery-not-found' } })
    const none = `/operations/op_${'0'.repeat(32)}/webhook-deliveries`
    expect((await app.inject(none)).json().code).toBe('operation-not-found')
    const stranger = { ...principal, tenantId: 2 }
    const uuid = parseId('wh', id) ?? ''
    const page = { limit: 10, position: null }
    expect(await service.services.listWebhookDeliveries(stranger, operation.id, page)).toBeNull()
    expect(await service.services.getWebhookDelivery(stranger, uuid)).toBeNull()
    await expect(service.services.redeliverWebhook(stranger, uuid)).rejects.toMatchObject({
      code: 'webhook-delivery-not-found',
    })
  })

  it.each([204, 410])('a redelivery after %d sends the same bytes again', async (status) => {
    const operation = await cancelled()
    receiver.answer(status)
    const sender = open()
    await send(sender)
    const { id, state } = await deliveryOf(operation)
    expect(state).toBe(status === 410 ? 'disabled' : 'delivered')
    expect(await redeliver(id)).toMatchObject({ status: 202, body: { id, state: 'pending' } })
    await send(sender)
    const [one, two] = receiver.received
    expect(two?.body.equals(one?.body ?? Buffer.alloc(0))).toBe(true)
    expect(await deliveryOf(operation)).toMatchObject({ id, state: 'delivered', attempts: 2 })
  })

  it('metrics count what has not arrived', async () => {
    await cancelled()
    const gauges = await service.services.measure(principal)
    expect(gauges.find(({ name }) => name === 'webhook_deliveries')?.values).toEqual([
      { labels: { state: 'pending' }, value: 1 },
      { labels: { state: 'failed' }, value: 0 },
      { labels: { state: 'disabled' }, value: 0 },
    ])
  })
})
