/**
 * Secrets that must not come out again: one canary in every input, real processes, a provider that repeats whatever it is sent,
 * and a search through everything that comes out: the answers of every GET route of the document (by construction: a route
 * for which there is nothing to ask fails the test), exports, problems, webhooks, the logs of api and worker, and all tables
 * but those columns that are there to keep the input.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ERROR_CODES } from '../../src/domain/errors.ts'
import { HIDDEN } from '../../src/domain/hidden-values.ts'
import { SCOPES } from '../../src/domain/scope.ts'
import { EVENT_STREAM } from '../../src/http/event-stream.ts'
import { hashApiKey } from '../../src/services/api-keys.ts'
import { DEFAULT_TENANT_ID } from '../../src/services/principal.ts'
import { insertApiKey } from '../../src/storage/api-keys.ts'
import { openDatabase } from '../../src/storage/database.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { signEvent } from '../support/callbacks.ts'
import { canaryTypeFile } from '../support/canary-types.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually, PROCESSES_MS } from '../support/service.ts'
import { writeTypeFile } from '../support/service-types.ts'
import { startWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.ts'
import { openWorkerFleet, type WorkerFleet, type WorkerProcess } from '../support/worker-process.ts'

/** By what they are; the text that is looked for is in all forms of it that we know. */
const canaries = new Map<string, string>()
/** So much of it is enough to be found, so that a part that was cut off is found too. */
const TRACE_LENGTH = 12

const canary = (what: string, prefix = ''): string => {
  const random = randomBytes(16).toString('hex')
  canaries.set(what, random)
  return `${prefix}${random}`
}
const signingCanary = (what: string): string => {
  const base64 = randomBytes(32).toString('base64')
  canaries.set(what, base64)
  return `whsec_${base64}`
}

const USER = canary('a masked member', 'user ')
const CARD = canary('a masked member within another one')
const PIN = 4_000_000_000_000_000 + Math.floor(Math.random() * 1e15)
canaries.set('a masked number', String(PIN))
const PROVIDER_TOKEN = canary('a secret of a type file')
const CALLBACK_SECRET = signingCanary('a secret that signs callbacks')
const WEBHOOK_SECRET = signingCanary('the webhook secret')
const DOWNLOAD_SECRET = canary('the download secret', 'download-secret-')
const DATABASE_PASSWORD = canary('the password of the database')
const API_KEY = canary('an API key', 'opl_')
const WRONG_KEY = canary('an unknown API key', 'opl_')
const BASIC = Buffer.from(`me:${canary('a password in an Authorization header')}`).toString('base64')
const IDEMPOTENCY_KEY = canary('an idempotency key')
const COOKIE = canary('a cookie')
const QUERY = canary('an unknown parameter')
const SIGNATURE = canary('a signature that is wrong')

/** Where a text or a part of it shows, as it is, in base64 or in a URL. */
const findCanaries = (text: string): string[] =>
  [...canaries].flatMap(([what, value]) => {
    const forms = [value, encodeURIComponent(value), Buffer.from(value).toString('base64')]
    return forms.some((form) => text.includes(form.slice(0, TRACE_LENGTH))) ? [what] : []
  })

interface Provider {
  url: string
  /** Everything that it was sent. */
  received(): string
  close(): Promise<void>
}

/** Repeats all it gets, in every member that a type may read. */
const startProvider = async (): Promise<Provider> => {
  let all = ''
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = ''
    for await (const chunk of request) body += String(chunk)
    const echo = `${request.url} ${JSON.stringify(request.headers)} ${body}`
    all += echo
    const { mode = 'ok', user = '' } = body === '' ? {} : (JSON.parse(body) as { mode?: string; user?: string })
    const status = { ok: 201, reject: 422, busy: 503, broken: 500 }[mode] ?? 200
    const { authorization } = request.headers
    response.writeHead(status, { 'content-type': 'application/json', 'x-echo': String(authorization) })
    response.end(JSON.stringify({ code: `${user} ${authorization}`, id: `${authorization} ${user}`, echo, body }))
  }
  const server = createServer((request, response) => void serve(request, response).catch(() => response.destroy()))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received: () => all,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const MASK = ['/user', '/payment', '/pin']
const INPUT_SCHEMA = {
  type: 'object',
  required: ['user'],
  properties: {
    user: { type: 'string', maxLength: 60 },
    pin: { type: 'integer' },
    mode: { enum: ['ok', 'reject', 'busy', 'broken'] },
  },
}
const policy = {
  version: 1,
  effect: 'external',
  idempotency_key: 'optional',
  lease_seconds: 2,
  mask: MASK,
  input: INPUT_SCHEMA,
}
const types = writeTypeFile([
  {
    ...policy,
    name: 'echo',
    parallelism: 1,
    retry: { max_attempts: 2, base_ms: 20, max_ms: 40 },
    http: {
      request: {
        url: '{env.PROVIDER_URL}/echo?user={input.user}',
        headers: { Authorization: 'Bearer {secret.PROVIDER}', 'X-Pin': '{input.pin}' },
        body: { user: '{input.user}', card: '{input.payment.card}', pin: '{input.pin}', mode: '{input.mode}' },
        timeout_ms: 900,
      },
      outcome: [
        { status: [201], state: 'applied', ref: '/id' },
        { status: [422], state: 'failed', class: 'validation_rejected', reason_code: '/code' },
        { status: [503], state: 'failed', class: 'transient', reason_code: '/code' },
      ],
      lookup: {
        url: '{env.PROVIDER_URL}/lookup/{input.user}',
        headers: { Authorization: 'Bearer {secret.PROVIDER}' },
        after_ms: 100,
        timeout_ms: 900,
        outcome: [{ status: [200], state: 'applied', ref: '/id' }],
      },
      callback: {
        secret: '{secret.CALLBACK}',
        effect_key: '/reference',
        outcome: [{ field: '/status', equals: ['done'], state: 'applied' }],
      },
    },
  },
  { ...policy, name: 'elsewhere', remote: { call_timeout_ms: 900 } },
])

let database: TestDatabase
let admin: postgres.Sql
let role: string
let provider: Provider
let receiver: WebhookReceiver
let dataDir: string
let api: ApiProcess
let fleet: WorkerFleet
let worker: WorkerProcess
/** All that was said to clients, with where. */
const outputs: [where: string, text: string][] = []
/** Ids by the path segment that they stand behind. */
const ids = new Map<string, string>()

const ask = async (
  method: string,
  url: string,
  {
    body,
    headers = {},
    key = API_KEY as string | null,
  }: { body?: unknown; headers?: Record<string, string>; key?: string | null } = {},
) => {
  const answer = await fetch(`${api.url}${url}`, {
    method,
    headers: {
      ...(key !== null && { authorization: `Bearer ${key}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  const text = headers.accept === EVENT_STREAM ? await readStream(answer) : await answer.text()
  return { status: answer.status, text, all: `${JSON.stringify([...answer.headers])} ${text}` }
}
/** As far as it tells what has happened: then it waits for more. */
const readStream = async ({ body }: Response): Promise<string> => {
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of body ?? []) {
    text += decoder.decode(chunk as Uint8Array, { stream: true })
    if (text.includes('event: progress')) break
  }
  return text
}
/** Asks, and keeps what is said for the search. */
const heard = async (...[method, url, options]: Parameters<typeof ask>): Promise<{ status: number; text: string }> => {
  const answer = await ask(method, url, options)
  outputs.push([`${method} ${url} → ${answer.status}`, answer.all])
  return answer
}
const submit = async (body: object, headers: Record<string, string> = {}): Promise<string> => {
  const answer = await heard('POST', '/operations', { body, headers })
  expect([answer.status, answer.text]).toEqual([202, expect.any(String)])
  return JSON.parse(answer.text).id
}
const settled = async (id: string, statuses: string[]): Promise<void> => {
  let status = ''
  await eventually(`${id} is ${statuses.join(' or ')}`, async () => {
    status = JSON.parse((await ask('GET', `/operations/${id}`)).text).status
    return statuses.includes(status)
  })
}
const firstId = async (url: string): Promise<string> => {
  let id: string | undefined
  await eventually(`there is something at ${url}`, async () => {
    id = JSON.parse((await ask('GET', url)).text).items[0]?.id
    return id !== undefined
  })
  return id ?? ''
}
const FINAL = ['succeeded', 'partially_succeeded', 'failed', 'cancelled']
const secretInput = (mode: string) => ({ user: USER, payment: { card: { number: CARD } }, pin: PIN, mode })

beforeAll(async () => {
  database = await createTestDatabase()
  admin = postgres(database.url, { max: 1, onnotice: () => {} })
  role = `canary_${randomBytes(4).toString('hex')}`
  await admin.unsafe(`create role ${role} login superuser password '${DATABASE_PASSWORD}'`)
  const withPassword = new URL(database.url)
  withPassword.username = role
  withPassword.password = DATABASE_PASSWORD
  const direct = openDatabase({ url: database.url, size: 1, name: 'test' })
  await direct.query((connection) =>
    insertApiKey(connection, {
      tenantId: DEFAULT_TENANT_ID,
      name: 'canary',
      keyHash: hashApiKey(API_KEY),
      scopes: SCOPES,
      expiresInDays: null,
    }),
  )
  await direct.close()
  provider = await startProvider()
  receiver = await startWebhookReceiver()
  dataDir = mkdtempSync(path.join(os.tmpdir(), 'opledger-canary-'))
  const env = {
    PROVIDER_URL: provider.url,
    OPLEDGER_SECRET_PROVIDER: PROVIDER_TOKEN,
    OPLEDGER_SECRET_CALLBACK: CALLBACK_SECRET,
    OPLEDGER_WEBHOOK_SECRET: WEBHOOK_SECRET,
    OPLEDGER_WEBHOOK_PRIVATE_ADDRESSES: 'allow',
    OPLEDGER_DOWNLOAD_SECRET: DOWNLOAD_SECRET,
    OPLEDGER_DATA_DIR: dataDir,
    LOG_LEVEL: 'trace',
    AUTH: 'keys',
  }
  const typeFiles = [types.file, canaryTypeFile]
  api = await startApi({ databaseUrl: withPassword.href, typeFiles, env })
  fleet = openWorkerFleet({ databaseUrl: withPassword.href, typeFiles, env })
  worker = await fleet.start()
}, PROCESSES_MS)
afterAll(async () => {
  await fleet?.stop()
  await api?.kill()
  await provider?.close()
  await receiver?.close()
  // tables that the worker has made ahead are its own
  await admin?.unsafe(`reassign owned by ${role} to current_user`)
  await admin?.unsafe(`drop role if exists ${role}`)
  await admin?.end()
  await database?.drop()
  types.remove()
  rmSync(dataDir, { recursive: true, force: true })
})

describe('canaries', { timeout: PROCESSES_MS }, () => {
  it('go in everywhere', async () => {
    const items = ['ok', 'reject', 'busy', 'broken'].map((mode) => ({ key: mode, input: secretInput(mode) }))
    const echo = await submit(
      { type: 'echo', items, callback_url: `${receiver.url}/hook` },
      { 'idempotency-key': IDEMPOTENCY_KEY, cookie: `session=${COOKIE}` },
    )
    ids.set('operations', echo)
    const told = [
      await submit({
        type: 'tell-tale',
        items: ['throw', 'say'].map((how) => ({ key: how, input: { user: USER, how } })),
      }),
      await submit({
        type: 'tell-tale-import',
        items: ['throw', 'sql'].map((how) => ({ key: how, input: { user: USER, how } })),
      }),
      await submit({ type: 'tell-tale-report', input: { user: USER, how: 'throw' } }),
    ]
    const report = await submit({ type: 'tell-tale-report', input: { user: USER, how: 'say' } })
    ids.set('reported', report)
    // the same key, with another body
    await heard('POST', '/operations', {
      body: { type: 'echo', items },
      headers: { 'idempotency-key': IDEMPOTENCY_KEY },
    })
    await settled(echo, [...FINAL, 'reconciliation_required'])
    for (const id of told) await settled(id, [...FINAL, 'reconciliation_required'])
    await settled(report, ['succeeded'])
  })

  it('are refused in every way that a request can be refused in', async () => {
    await heard('GET', '/operations', { key: WRONG_KEY })
    await heard('GET', '/operations', { key: null, headers: { authorization: `Basic ${BASIC}` } })
    await heard('GET', `/operations?token=${QUERY}`)
    await heard('GET', `/operations?cursor=${QUERY}`)
    await heard('GET', `/operations?limit=${QUERY}`)
    await heard('GET', `/operations?status=${QUERY}`)
    await heard('GET', `/nowhere?token=${QUERY}`)
    const bad = [
      { user: `${USER} ${USER} ${USER}`, mode: 'ok' },
      { user: 5, pin: PIN },
      { user: USER, mode: CARD },
      { user: USER, pin: CARD },
    ]
    for (const input of bad)
      await heard('POST', '/operations', { body: { type: 'echo', items: [{ key: 'a', input }] } })
    await heard('POST', '/operations', { body: `{"type":"echo","items":[{"key":"a","input":"${USER}` })
    await heard('POST', '/operations', {
      body: { type: 'tell-tale', items: [{ key: 'a', input: { user: USER, how: CARD } }] },
    })
    await heard('POST', '/operations', { body: { type: 'tell-tale-report', input: { user: USER, how: CARD } } })
    const draft = await submit({ type: 'echo', draft: true })
    const upload = (contentType: string, body: string) =>
      heard('POST', `/operations/${draft}/items`, { body, headers: { 'content-type': contentType } })
    await upload(
      'application/x-ndjson',
      `${JSON.stringify({ key: 'a', input: { user: USER, mode: CARD } })}\n{"key": "${USER}`,
    )
    await upload('text/csv', `key,user,pin\na,"${USER}",${CARD}\nb,"${USER}"x,1\n`)
    await upload('application/x-ndjson', `${JSON.stringify({ key: 'a', input: { user: USER } })}\n`)
    const event = { reference: 'x', status: 'done', customer: USER }
    const { headers, body } = signEvent('evt_1', event, { secret: CALLBACK_SECRET })
    await heard('POST', '/callbacks/echo', { body, headers, key: null })
    await heard('POST', '/callbacks/echo', {
      body,
      headers: { ...headers, 'webhook-signature': `v1,${SIGNATURE}` },
      key: null,
    })
    expect(outputs.filter(([where]) => / → [45]/.test(where)).length).toBeGreaterThan(15)
  })

  it('are told to a worker elsewhere, which tells them in its results', async () => {
    const id = await submit({ type: 'elsewhere', items: [{ key: 'a', input: { user: USER, pin: PIN } }] })
    const me = { host: 'h', pid: 1, code_version: '1', types: [{ name: 'elsewhere', version: 1 }] }
    const registered = JSON.parse((await ask('POST', '/worker/claims', { body: me })).text)
    const claimed = await ask('POST', '/worker/claims', {
      body: { ...me, worker: registered.worker, wait_seconds: 30 },
    })
    // the one place where it belongs
    expect(findCanaries(claimed.text)).toContain('a masked member')
    const { lease, items } = JSON.parse(claimed.text).batch
    const [{ effect_key, send }] = items
    for (const [what, token] of Object.entries({
      'the token of a worker': registered.worker,
      'the token of a lease': lease,
    }))
      canaries.set(what, String(token).split('.').at(-1) ?? '')
    const failed = {
      effect_key,
      send,
      state: 'failed',
      failure_class: 'conflict',
      reason_code: `NO ${USER}`,
      message: `no ${USER}, pin ${PIN}`,
    }
    const reported = await ask('POST', '/worker/results', { body: { lease, results: [failed], max_items: 0 } })
    expect(JSON.parse(reported.text)).toMatchObject({ recorded: 1 })
    await heard('POST', '/worker/heartbeat', { body: { worker: `${registered.worker}x`, leases: [] } })
    const [signing] = await admin<{ key: string }[]>`select key from signing_keys`
    canaries.set('the key that signs tokens', signing?.key ?? '')
    await settled(id, FINAL)
    const ledger = await heard('GET', `/operations/${id}/ledger`)
    expect(ledger.text).toContain(`no ${HIDDEN}, pin ${HIDDEN}`)
  })

  it('are exported with the ledger, if they are there', async () => {
    const exported = await submit({
      type: 'ledger-export',
      input: { operation_id: ids.get('operations'), format: 'csv' },
    })
    await settled(exported, ['succeeded'])
    const { download } = JSON.parse((await heard('GET', `/operations/${exported}/artifact`)).text)
    const file = await heard('GET', download.url, { key: null })
    expect(file.text.split('\r\n').length).toBeGreaterThan(4)
  })

  it('come out nowhere: every GET route of the document, in every form that it has', async () => {
    const bulk = await heard('POST', '/bulk-actions', {
      body: { action: 'cancel', filter: { type: 'echo' }, reason: 'r' },
    })
    ids.set('bulk-actions', JSON.parse(bulk.text).id)
    for (const list of ['reconciliation', 'dead-letters', 'incidents']) ids.set(list, await firstId(`/${list}`))
    ids.set('webhook-deliveries', await firstId(`/operations/${ids.get('operations')}/webhook-deliveries`))
    for (const verb of ['replay-preflight', 'compensation-preflight'])
      await heard('POST', `/operations/${ids.get('operations')}/${verb}`, { body: {} })

    interface Route {
      parameters?: { in: string; name: string }[]
      responses: Record<string, { content?: Record<string, unknown> }>
    }
    const document: { paths: Record<string, { get?: Route }> } = JSON.parse((await heard('GET', '/openapi.json')).text)
    const gets = Object.entries(document.paths).flatMap(([route, { get }]) => (get ? [{ route, get }] : []))
    expect(gets.length).toBeGreaterThan(20)
    const names: Record<string, string[]> = {
      name: ['echo', 'tell-tale'],
      key: ['ok', 'reject', 'busy', 'broken'],
      code: [...ERROR_CODES],
    }
    for (const { route, get } of gets) {
      const accepts = Object.keys(get.responses['200']?.content ?? { 'application/json': {} })
      const [, place = ''] = route.split('/')
      const own = route === '/operations/{id}/artifact' ? ids.get('reported') : ids.get(place)
      let urls = [route]
      for (const [, name = ''] of route.matchAll(/\{(\w+)\}/g)) {
        const values = names[name] ?? [own].filter((id) => id !== undefined)
        urls = urls.flatMap((url) => values.map((value) => url.replace(`{${name}}`, value)))
      }
      if (route === '/artifacts/{id}/download') {
        const { download } = JSON.parse((await ask('GET', `/operations/${ids.get('reported')}/artifact`)).text)
        urls = [download.url]
      }
      expect([route, urls.length]).toEqual([route, expect.toSatisfy((count: number) => count > 0)])
      for (const url of urls) {
        for (const accept of accepts) {
          const { status } = await heard('GET', url, { headers: { accept } })
          expect([url, accept, status]).toEqual([url, accept, expect.toSatisfy((code: number) => code < 300)])
        }
      }
    }
    const leaks = outputs.flatMap(([where, text]) => findCanaries(text).map((what) => `${what} in ${where}`))
    expect(leaks).toEqual([])
  })

  it('nor in what is sent to receivers, in the logs, and in what is kept', async () => {
    await eventually('a webhook was sent', () => receiver.received.length > 0)
    const webhooks = receiver.received.map(({ headers, body }) => `${JSON.stringify(headers)} ${body}`).join('\n')
    expect(findCanaries(webhooks)).toEqual([])

    expect(api.output()).toContain('"level"')
    expect(worker.output()).toContain('worker started')
    expect(findCanaries(api.output())).toEqual([])
    expect(findCanaries(worker.output())).toEqual([])

    // inputs and idempotency keys are kept where they are needed, and shown nowhere
    const KEPT: Record<string, string[]> = {
      operation_items: ['input'],
      operations: ['idempotency_key', 'input'],
      signing_keys: ['key'],
    }
    const tables = await admin<{ name: string }[]>`
      select c.relname as name from pg_class c
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`
    const found: string[] = []
    for (const { name } of tables) {
      const rows = await admin.unsafe(
        `select (to_jsonb(t) - array[${(KEPT[name] ?? ['']).map((column) => `'${column}'`).join()}]::text[])::text as row from ${name} t`,
      )
      for (const what of findCanaries(rows.map(({ row }) => row).join('\n'))) found.push(`${what} in ${name}`)
    }
    expect(found).toEqual([])
  })

  it('were there: the provider has seen them, and the ledger tells that something was hidden', async () => {
    const seen = findCanaries(provider.received())
    expect(seen).toEqual(
      expect.arrayContaining([
        'a masked member',
        'a masked member within another one',
        'a masked number',
        'a secret of a type file',
      ]),
    )
    const ledger = (await ask('GET', `/operations/${ids.get('operations')}/ledger`)).text
    expect(ledger.split(HIDDEN).length).toBeGreaterThan(4)
  })
})
