/**
 * Two tenants of one service that runs with keys: one to which something of each kind belongs, and one that has nothing. All
 * that people of the first write carries MARK, so that it is known wherever it shows.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import pino from 'pino'
import { SCOPES, type Scope } from '../../src/domain/scope.ts'
import { buildServer } from '../../src/http/server.ts'
import { openObjectStore } from '../../src/objects/open-object-store.ts'
import { createApiKey } from '../../src/services/api-keys.ts'
import { createTenant } from '../../src/services/tenants.ts'
import { DOWNLOAD_SECRET } from './artifacts.ts'
import { startEffectServer } from './effect-server.ts'
import { eventually, openTestService, type TestService } from './service.ts'
import { artifactTypeFile } from './service-artifact-type.ts'
import { startTestEngine } from './service-engine.ts'
import { grantType, writeTypeFile } from './service-types.ts'

export const MARK = 'xyzzy'

export interface Answer {
  status: number
  headers: Headers
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted on member by member
  body: any
}

export interface Ask {
  path: string
  body?: unknown
  headers?: Record<string, string>
}

/** What belongs to the first tenant. */
export interface Owned {
  /** With an applied item, one in doubt, and a dead letter. */
  operation: string
  item: string
  later: string
  draft: string
  unapproved: string
  preflight: string
  bulk: string
  case: string
  deadLetter: string
  incident: string
  delivery: string
  published: string
  /** As the artifact names it: it works for whoever has it. */
  download: string
  worker: string
  lease: string
}

export interface TenantWorld {
  service: TestService
  url: string
  tenants: { owner: number; stranger: number }
  owned: Owned
  /** The keys that were used to make what there is. */
  ownerKey: string
  keyOf(tenantId: number, name: string, scopes: readonly Scope[]): Promise<string>
  call(method: string, key: string | null, ask: Ask): Promise<Answer>
  /** Submits, and waits for the status. Answers with the id. */
  run(key: string, body: object, status: string, headers?: Record<string, string>): Promise<string>
  close(): Promise<void>
}

export const remoteClaim = { host: `${MARK}-host`, pid: 1, code_version: 'w1', types: [{ name: 'mail', version: 1 }] }

export const openTenantWorld = async (): Promise<TenantWorld> => {
  const root = mkdtempSync(path.join(os.tmpdir(), 'opledger-tenants-'))
  const effects = await startEffectServer()
  const types = writeTypeFile([
    grantType('grant'),
    grantType('approved', { approval: 'always' }),
    { name: 'mail', version: 1, effect: 'external', idempotency_key: 'optional', remote: {} },
  ])
  const objects = await openObjectStore({ kind: 'file', directory: path.join(root, 'objects'), required: true })
  const service = await openTestService({
    typeFiles: [types.file, artifactTypeFile],
    env: { EFFECTS_URL: effects.url },
    downloads: { objects, secret: DOWNLOAD_SECRET },
    webhooks: { privateAddresses: 'allow' },
  })
  const engine = await startTestEngine({
    url: service.url,
    types: service.context.types.list(),
    objects,
    maintenance: false,
  })
  const app = await buildServer({
    services: service.services,
    config: { auth: 'keys', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`

  const call: TenantWorld['call'] = async (method, key, { path: at, body, headers = {} }) => {
    const isText = typeof body === 'string'
    const answer = await fetch(`${url}${at}`, {
      method,
      headers: {
        ...(key !== null && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && !isText && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    })
    const text = await answer.text()
    const isJson = /json/.test(answer.headers.get('content-type') ?? '') && text !== '' && !text.includes('\n{')
    return { status: answer.status, headers: answer.headers, text, body: isJson ? JSON.parse(text) : null }
  }
  const run: TenantWorld['run'] = async (key, body, status, headers = {}) => {
    const submitted = await call('POST', key, { path: '/operations', body, headers })
    if (submitted.status !== 202) throw new Error(`not accepted: ${submitted.text}`)
    const at = `/operations/${submitted.body.id}`
    let answer = submitted
    await eventually(`${JSON.stringify(body)} is ${status}`, async () => {
      answer = await call('GET', key, { path: at })
      return answer.body.status === status
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}; it is ${answer.text}`)
    })
    return submitted.body.id
  }
  const keyOf: TenantWorld['keyOf'] = async (tenantId, name, scopes) =>
    (await createApiKey(service.database, { tenantId, name, scopes, expiresInDays: null })).key

  const tenants = { owner: 1, stranger: await createTenant(service.database, 'stranger') }
  const ownerKey = await keyOf(tenants.owner, `${MARK}-person`, SCOPES)
  const owned = await makeOwned({ call, run }, ownerKey)

  return {
    service,
    url,
    tenants,
    owned,
    ownerKey,
    keyOf,
    call,
    run,
    async close() {
      await app.close()
      await engine.drain()
      await service.close()
      await effects.close()
      types.remove()
      rmSync(root, { recursive: true, force: true })
    },
  }
}

const makeOwned = async ({ call, run }: Pick<TenantWorld, 'call' | 'run'>, key: string): Promise<Owned> => {
  const told = { reason: MARK, labels: { team: MARK } }
  const get = async (at: string) => (await call('GET', key, { path: at })).body
  const post = async (at: string, body: unknown) => {
    const answer = await call('POST', key, { path: at, body })
    if (answer.status >= 300) throw new Error(`${at}: ${answer.text}`)
    return answer.body
  }
  const operation = await run(
    key,
    {
      type: 'grant',
      items: [
        { key: `${MARK}-ok`, input: {} },
        { key: `${MARK}-busy`, input: { mode: 'busy' } },
        { key: `${MARK}-doubt`, input: { mode: 'apply_then_hang' } },
        { key: 'common', input: {} },
      ],
      callback_url: `http://127.0.0.1:9/${MARK}`,
      ...told,
    },
    'reconciliation_required',
    { 'idempotency-key': 'a-key' },
  )
  const hour = new Date(Date.now() + 3_600_000).toISOString()
  const submit = async (body: object) => (await post('/operations', { ...told, ...body })).id as string
  const items = [{ key: `${MARK}-1`, input: {} }]
  const later = await submit({ type: 'grant', items: [{ key: `${MARK}-later`, input: {} }], run_after: hour })
  const draft = await submit({ type: 'grant', draft: true })
  const unapproved = await submit({ type: 'approved', items })
  const published = await run(key, { type: 'report', input: { chunks: 1, key: MARK }, ...told }, 'succeeded')
  const { download } = await get(`/operations/${published}/artifact`)
  const { preflight_id: preflight } = await post(`/operations/${operation}/replay-preflight`, {})
  const bulk = await post('/bulk-actions', { action: 'cancel', filter: { labels: { team: MARK } }, reason: MARK })
  await submit({ type: 'mail', items: [{ key: `${MARK}-mail`, input: {} }] })
  const { worker } = await post('/worker/claims', remoteClaim)
  const { worker: named, batch } = await post('/worker/claims', { ...remoteClaim, worker, wait_seconds: 10 })
  const of = `operation_id=${operation}`
  return {
    operation,
    item: `${MARK}-ok`,
    later,
    draft,
    unapproved,
    preflight,
    bulk: bulk.id,
    case: (await get(`/reconciliation?${of}`)).items[0].id,
    deadLetter: (await get(`/dead-letters?${of}`)).items[0].id,
    incident: (await get('/incidents')).items[0].id,
    delivery: (await get(`/operations/${operation}/webhook-deliveries`)).items[0].id,
    published,
    download: download.url,
    worker: named,
    lease: batch.lease,
  }
}
