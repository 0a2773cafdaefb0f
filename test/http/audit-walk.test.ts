/**
 * Every writing route of the OpenAPI document leaves exactly one entry of the audit: who, what, on what, why. The table below is
 * held against the document, so a route without a line fails here.
 */
import { createHash, randomUUID } from 'node:crypto'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AUDIT_ACTIONS, type AuditAction } from '../../src/domain/audit.ts'
import { formatId } from '../../src/domain/ids.ts'
import type { Executor } from '../../src/domain/operation-type.ts'
import { SCOPES } from '../../src/domain/scope.ts'
import type { App } from '../../src/http/app.ts'
import { generateOpenApi } from '../../src/http/openapi.ts'
import { buildServer } from '../../src/http/server.ts'
import { bulkActions } from '../../src/maintenance/bulk-actions.ts'
import { compileCallback } from '../../src/operation-types/callback-rules.ts'
import { createApiKey } from '../../src/services/api-keys.ts'
import { CALLBACK, SECRETS, signEvent } from '../support/callbacks.ts'
import { plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'
import { claimOne, claimWindow, GRANT, storeOperation, tell } from '../support/races.ts'
import { remoteType } from '../support/remote-work.ts'
import { openTestService, type TestService } from '../support/service.ts'

const asked: Executor = {
  kind: 'external',
  callTimeoutMs: 1,
  send: () => Promise.reject(new Error('a planted type is never run')),
  lookup: { afterMs: 0, timeoutMs: 1_000, find: async () => ({ state: 'unknown', reasonCode: 'BUSY' }) },
}
const callback = compileCallback(CALLBACK, {
  type: 'pay',
  env: {},
  secrets: (name) => (name === 'CALLBACK' ? SECRETS[0] : undefined),
})

let service: TestService
let app: App
let url: string
const keys = { alice: '', bob: '' }
beforeAll(async () => {
  service = await openTestService({
    types: [
      plantedType(GRANT.name, { executor: asked, compensator: asked, compensation: 'available' }),
      plantedType('guarded', { approval: 'always' }),
      plantedType('pay', { callback }),
      remoteType('elsewhere'),
    ],
  })
  app = await buildServer({
    services: service.services,
    config: { auth: 'keys', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  url = await app.listen({ port: 0, host: '127.0.0.1' })
  const author = { actor: 'test', auth: 'command_line', scope: null, requestId: null, traceId: null } as const
  for (const name of ['alice', 'bob'] as const) {
    keys[name] = (await createApiKey(service.database, { name, scopes: SCOPES, expiresInDays: null }, author)).key
  }
})
afterAll(async () => {
  await app.close()
  await service.close()
})

interface Asked {
  path: string
  body?: object | string
  headers?: Record<string, string>
  by?: 'alice' | 'bob' | 'nobody'
}
const TRACE = 'c'.repeat(32)
const ask = async ({ path, body, headers = {}, by = 'alice' }: Asked, requestId: string) => {
  const answer = await fetch(url + path, {
    method: 'POST',
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    headers: {
      'x-request-id': requestId,
      traceparent: `00-${TRACE}-${'d'.repeat(16)}-01`,
      ...(typeof body === 'object' && { 'content-type': 'application/json' }),
      ...(by !== 'nobody' && { authorization: `Bearer ${keys[by]}` }),
      ...headers,
    },
  })
  const text = await answer.text()
  return { status: answer.status, body: text === '' ? {} : JSON.parse(text) }
}

interface Entry {
  actor: string
  auth: string
  scope: string | null
  action: string
  subject_kind: string
  subject_id: string
  reason: string | null
  trace_id: string | null
  details: string
}
const entriesOf = (requestId: string): Promise<Entry[]> =>
  service.database.query(
    ({ sql }) => sql<Entry>`
      select actor, auth, scope, action, subject_kind, subject_id, reason, trace_id, details::text from audit_entries
      where tenant_id = 1 and request_id = ${requestId}`,
  )
const countAll = async (): Promise<number> => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ n: number }>`select count(*)::int as n from audit_entries`,
  )
  return row?.n ?? 0
}

const WHY = 'as ticket 7 says'
const plant = async (status: 'running' | 'failed' | 'succeeded', type = GRANT.name): Promise<string> => {
  const entries = {
    running: undefined,
    failed: [{ state: 'failed', failureClass: 'transient' } as const],
    succeeded: [{ state: 'applied' } as const],
  }[status]
  const id = await plantOperation(service.database, {
    type,
    status,
    items: [{ key: 'a', ...(entries && { entries }) }],
  })
  if (status === 'succeeded') await plantEffects(service.database, id)
  return id
}
const op = (uuid: string): string => formatId('op', uuid)
const made = async (asking: Asked) => {
  const { status, body } = await ask(asking, randomUUID())
  expect(status, JSON.stringify(body)).toBeLessThan(300)
  return body
}
const draft = async (): Promise<string> =>
  (await made({ path: '/operations', body: { type: GRANT.name, draft: true } })).id
const upload = (id: string): Asked => ({
  path: `/operations/${id}/items`,
  body: `${JSON.stringify({ key: randomUUID(), input: { secret: 'canary' } })}\n`,
  headers: { 'content-type': 'application/x-ndjson', 'idempotency-key': randomUUID() },
})
/** The id of an uncertain effect's case. */
const openCase = async (): Promise<string> => {
  const effectKey = randomUUID()
  const id = await storeOperation(service.database, { items: [{ key: 'a', effectKey }] })
  // what other lines have left ready stands in nobody's way
  await service.database.query(
    ({ sql }) =>
      sql`update operation_shards set run_at = now() + interval '1 hour' where operation_id <> ${id}::uuid and state = 'ready'`,
  )
  const lease = await claimOne(service.database)
  await claimWindow(service.database, lease, 0, 1)
  await tell(service.database, lease, { ord: 0, effectKey }, { effect: 'uncertain', item: 'uncertain' })
  const [row] = await service.database.query(
    ({ sql }) => sql<{ id: string }>`select id from reconciliation_cases where operation_id = ${id}::uuid`,
  )
  return formatId('case', row?.id ?? '')
}
const deadLetter = async (): Promise<{ id: string; incident: string }> => {
  const fingerprint = createHash('md5').update(randomUUID()).digest('hex')
  const [row] = await service.database.query(
    async ({ sql }) => sql<{ id: string }>`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, reason_code, message,
        attempts, fingerprint)
      select tenant_id, operation_id, ord, ${GRANT.name}, item_key, effect_key, 'transient', 'BUSY', 'no room', 3, ${fingerprint}
      from operation_items where operation_id = ${await plant('failed')}::uuid
      returning id`,
  )
  return { id: formatId('dl', row?.id ?? ''), incident: formatId('inc', fingerprint) }
}
const delivery = async (): Promise<string> => {
  const [row] = await service.database.query(
    ({ sql }) => sql<{ id: string }>`
      insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, url, facts, state, next_attempt_at)
      values (1, gen_random_uuid(), 1, 'operation.settled', 'failed', 'https://example.org/hook', '{}', 'failed', null)
      returning id`,
  )
  return formatId('wh', row?.id ?? '')
}
const bulk = (): Asked => ({
  path: '/bulk-actions',
  body: { action: 'cancel', filter: { type: GRANT.name, requested_by: randomUUID() }, reason: WHY },
  headers: { 'idempotency-key': randomUUID() },
})

interface Line {
  action: AuditAction
  kind: string
  make(): Promise<Asked> | Asked
  /** Of the entry; the id that the answer names, or the one in the path. */
  subject: (asked: Asked, body: { id: string }) => string
  reason: string | null
  /** What the same request does when it comes again: nothing new, or once more. */
  again: 'nothing' | 'another'
  actor?: string
  auth?: string
  scope?: string | null
}
const inPath = ({ path }: Asked): string => path.split('/')[2] ?? ''
const answered = (_asked: Asked, { id }: { id: string }): string => id

const LINES: Record<string, Line> = {
  submitOperation: {
    action: 'operation.submit',
    kind: 'operation',
    make: () => ({
      path: '/operations',
      body: { type: GRANT.name, reason: WHY, items: [{ key: 'a', input: { secret: 'canary' } }] },
      headers: { 'idempotency-key': randomUUID() },
    }),
    subject: answered,
    reason: WHY,
    again: 'nothing',
  },
  uploadItems: {
    action: 'operation.items_add',
    kind: 'operation',
    make: async () => upload(await draft()),
    subject: inPath,
    reason: null,
    again: 'nothing',
  },
  startOperation: {
    action: 'operation.start',
    kind: 'operation',
    async make() {
      const id = await draft()
      await made(upload(id))
      return { path: `/operations/${id}/start`, body: { reason: WHY } }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  cancelOperation: {
    action: 'operation.cancel',
    kind: 'operation',
    make: async () => ({ path: `/operations/${op(await plant('running'))}/cancel`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  pauseOperation: {
    action: 'operation.pause',
    kind: 'operation',
    make: async () => ({ path: `/operations/${op(await plant('running'))}/pause`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  resumeOperation: {
    action: 'operation.resume',
    kind: 'operation',
    async make() {
      const id = op(await plant('running'))
      await made({ path: `/operations/${id}/pause` })
      return { path: `/operations/${id}/resume`, body: { reason: WHY } }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  preflightReplay: {
    action: 'operation.replay_preflight',
    kind: 'operation',
    make: async () => ({ path: `/operations/${op(await plant('failed'))}/replay-preflight` }),
    subject: inPath,
    reason: null,
    again: 'another',
  },
  replayOperation: {
    action: 'operation.replay',
    kind: 'operation',
    async make() {
      const path = `/operations/${op(await plant('failed'))}/replay`
      const { preflight_id } = await made({ path: `${path}-preflight` })
      return { path, body: { preflight_id, reason: WHY } }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  preflightCompensation: {
    action: 'operation.compensation_preflight',
    kind: 'operation',
    make: async () => ({ path: `/operations/${op(await plant('succeeded'))}/compensation-preflight` }),
    subject: inPath,
    reason: null,
    again: 'another',
  },
  compensateOperation: {
    action: 'operation.compensate',
    kind: 'operation',
    make: async () => ({ path: `/operations/${op(await plant('succeeded'))}/compensations`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  decideApproval: {
    action: 'operation.approve',
    kind: 'operation',
    async make() {
      const { id } = await made({ path: '/operations', body: { type: 'guarded', items: [{ key: 'a', input: {} }] } })
      return { path: `/operations/${id}/approval`, body: { decision: 'approve', note: WHY }, by: 'bob' }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
    actor: 'bob',
  },
  createBulkAction: {
    action: 'bulk_action.create',
    kind: 'bulk_action',
    make: bulk,
    subject: answered,
    reason: WHY,
    again: 'nothing',
  },
  startBulkAction: {
    action: 'bulk_action.start',
    kind: 'bulk_action',
    make: async () => ({ path: `/bulk-actions/${(await made(bulk())).id}/start`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  abortBulkAction: {
    action: 'bulk_action.abort',
    kind: 'bulk_action',
    make: async () => ({ path: `/bulk-actions/${(await made(bulk())).id}/abort`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  lookupCase: {
    action: 'case.lookup',
    kind: 'case',
    make: async () => ({ path: `/reconciliation/${await openCase()}/lookup` }),
    subject: inPath,
    reason: null,
    again: 'another',
  },
  resolveCase: {
    action: 'case.resolve',
    kind: 'case',
    make: async () => ({
      path: `/reconciliation/${await openCase()}/resolve`,
      body: { resolution: 'applied', evidence_ref: 'ticket 7', note: WHY },
    }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  receiveCallback: {
    action: 'callback.receive',
    kind: 'callback',
    make: () => {
      const signed = signEvent(randomUUID(), { data: { status: 'settled', reference: 'no effect has this key' } })
      return { path: '/callbacks/pay', body: signed.body, headers: signed.headers, by: 'nobody' }
    },
    subject: ({ headers }) => headers?.['webhook-id'] ?? '',
    reason: null,
    again: 'nothing',
    actor: 'provider:pay',
    auth: 'signature',
    scope: null,
  },
  discardDeadLetter: {
    action: 'dead_letter.discard',
    kind: 'dead_letter',
    make: async () => ({ path: `/dead-letters/${(await deadLetter()).id}/discard`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  resolveIncident: {
    action: 'incident.resolve',
    kind: 'incident',
    make: async () => ({ path: `/incidents/${(await deadLetter()).incident}/resolve`, body: { reason: WHY } }),
    subject: inPath,
    reason: WHY,
    again: 'another',
  },
  redeliverWebhook: {
    action: 'webhook.redeliver',
    kind: 'webhook_delivery',
    make: async () => ({ path: `/webhook-deliveries/${await delivery()}/redeliver` }),
    subject: inPath,
    reason: null,
    again: 'another',
  },
  pauseOperationType: {
    action: 'operation_type.pause',
    kind: 'operation_type',
    async make() {
      await ask({ path: '/operation-types/pay/resume' }, randomUUID())
      return { path: '/operation-types/pay/pause', body: { reason: WHY } }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  resumeOperationType: {
    action: 'operation_type.resume',
    kind: 'operation_type',
    async make() {
      await ask({ path: '/operation-types/pay/pause' }, randomUUID())
      return { path: '/operation-types/pay/resume', body: { reason: WHY } }
    },
    subject: inPath,
    reason: WHY,
    again: 'nothing',
  },
  claimWork: {
    action: 'worker.register',
    kind: 'worker',
    make: () => ({
      path: '/worker/claims',
      body: { host: 'h', pid: 1, code_version: 'w1', types: [{ name: 'elsewhere', version: 1 }] },
    }),
    subject: () => expect.stringMatching(/^[0-9a-f-]{36}$/),
    reason: null,
    again: 'another',
  },
}

/** What a worker says stands in the ledger, item by item, under the id that its registration has tied to a key. */
const TOLD_BY_THE_LEDGER = ['reportWork', 'giveBackWork', 'beatWork']

interface Documented {
  paths: Record<string, Record<string, { operationId: string }>>
}
it('the table names every writing route of the document, and every action but those of the command line', async () => {
  const document: Documented = JSON.parse(await generateOpenApi())
  const writing = Object.values(document.paths).flatMap((methods) =>
    Object.entries(methods).flatMap(([method, { operationId }]) => (method === 'get' ? [] : [operationId])),
  )
  expect([...Object.keys(LINES), ...TOLD_BY_THE_LEDGER].sort()).toEqual(writing.sort())
  const told = Object.values(LINES).map(({ action }) => action)
  const elsewhere = [
    'operation.reject',
    'api_key.create',
    'api_key.rotate',
    'api_key.revoke',
    'tenant.create',
    'database.restored',
  ]
  expect([...told, ...elsewhere].sort()).toEqual([...AUDIT_ACTIONS].sort())
})

describe.each(Object.entries(LINES))('%s', (_operationId, line) => {
  it('leaves one entry: who, what, on what, why', async () => {
    const asked = await line.make()
    const requestId = randomUUID()
    const before = await countAll()
    const { status, body } = await ask(asked, requestId)
    expect(status, JSON.stringify(body)).toBeLessThan(300)
    const entries = await entriesOf(requestId)
    expect(entries).toEqual([
      {
        actor: line.actor ?? 'alice',
        auth: line.auth ?? 'key',
        scope:
          line.scope === undefined
            ? expect.stringMatching(/^(operations:write|replay|approve|reconcile|types:admin|work)$/)
            : line.scope,
        action: line.action,
        subject_kind: line.kind,
        subject_id: line.subject(asked, body),
        reason: line.reason,
        trace_id: TRACE,
        details: expect.not.stringContaining('canary'),
      },
    ])
    expect(await countAll()).toBe(before + 1)

    const repeated = randomUUID()
    const { status: second } = await ask(asked, repeated)
    const left = (await entriesOf(repeated)).length
    expect([left, second < 500]).toEqual([line.again === 'another' ? 1 : 0, true])
  })

  it('leaves none where it is refused', async () => {
    const asked = await line.make()
    const before = await countAll()
    const requestId = randomUUID()
    const strange: Asked = {
      ...asked,
      by: 'alice',
      path: /\/(op|case|dl|inc|wh|bulk)_[0-9a-f]{32}/.test(asked.path)
        ? asked.path.replace(/_[0-9a-f]{32}/, `_${'0'.repeat(32)}`)
        : asked.path.replace('/pay', '/unknown'),
      ...(asked.path.split('/').length === 2 || asked.path === '/worker/claims' ? { body: { nothing: 'known' } } : {}),
    }
    const { status } = await ask(strange, requestId)
    expect([status >= 400 && status < 500, await entriesOf(requestId), await countAll()]).toEqual([true, [], before])
    const { status: unknown } = await ask(
      { ...asked, headers: { ...asked.headers, 'webhook-signature': 'v1,no' }, by: 'nobody' },
      requestId,
    )
    expect([unknown, await countAll()]).toEqual([401, before])
  })
})

it('an operation that is rejected says so, and why', async () => {
  const { id } = await made({ path: '/operations', body: { type: 'guarded', items: [{ key: 'a', input: {} }] } })
  const requestId = randomUUID()
  await ask({ path: `/operations/${id}/approval`, body: { decision: 'reject', note: WHY }, by: 'bob' }, requestId)
  expect(await entriesOf(requestId)).toMatchObject([
    { actor: 'bob', action: 'operation.reject', subject_id: id, reason: WHY },
  ])
})

it('what a worker does for a bulk action is told of whoever asked for it, once a target', async () => {
  const ids = [op(await plant('running', 'guarded')), op(await plant('running', 'guarded'))]
  const bulkAction = await made({
    path: '/bulk-actions',
    body: { action: 'cancel', filter: { type: 'guarded', status: ['running'] }, reason: WHY, dry_run: false },
  })
  const worker = bulkActions(service.context, pino({ level: 'silent' }))
  for (let runs = 0; runs < 20; runs++) {
    await service.database.query(({ sql }) => sql`update bulk_actions set next_at = clock_timestamp()`)
    await worker.runOnce()
  }
  const entries = await entriesOf(bulkAction.id)
  expect(entries.map(({ subject_id }) => subject_id).sort()).toEqual(ids.sort())
  for (const entry of entries) {
    expect(entry).toMatchObject({ actor: 'alice', auth: 'bulk_action', action: 'operation.cancel' })
    expect(entry.reason).toBe(`${WHY} (${bulkAction.id})`)
  }
})

/** Trailing zeros are not written, so texts do not compare. */
const microsecondsOf = (at: string): number =>
  Date.parse(at) * 1_000 + Number((at.split('.')[1] ?? '').replace('Z', '').padEnd(6, '0').slice(3))

describe('GET /audit', () => {
  const read = async (query: string, accept = 'application/json', by: 'alice' | 'bob' = 'alice') => {
    const answer = await app.inject({
      url: `/audit${query}`,
      headers: { accept, authorization: `Bearer ${keys[by]}` },
    })
    return { status: answer.statusCode, type: answer.headers['content-type'], text: answer.body }
  }

  it('lists the newest first, in pages, each entry once', async () => {
    const seen: string[] = []
    let cursor: string | undefined = ''
    const total = await countAll()
    while (cursor !== undefined) {
      const page: { items: { id: string; at: string }[]; next_cursor?: string } = JSON.parse(
        (await read(`?limit=7${cursor === '' ? '' : `&cursor=${cursor}`}`)).text,
      )
      seen.push(...page.items.map(({ at, id }) => `${at} ${id}`))
      cursor = page.next_cursor
    }
    expect(seen).toHaveLength(total)
    expect(new Set(seen).size).toBe(total)
    const times = seen.map((one) => microsecondsOf(one.split(' ')[0] ?? ''))
    expect(times).toEqual([...times].sort((a, b) => b - a))
  })

  it.each<[string, (entry: { actor: string; action: string; subject_id: string }) => boolean]>([
    ['?actor=bob', ({ actor }) => actor === 'bob'],
    ['?action=operation.cancel,operation.pause', ({ action }) => /^operation\.(cancel|pause)$/.test(action)],
    ['?action=operation.submit', ({ action }) => action === 'operation.submit'],
    ['?actor=provider:pay&action=callback.receive', ({ actor }) => actor === 'provider:pay'],
    ['?subject=pay', ({ subject_id }) => subject_id === 'pay'],
  ])('%s', async (query, holds) => {
    const all = JSON.parse((await read('?limit=500')).text).items
    const { items } = JSON.parse((await read(`${query}&limit=500`)).text)
    expect(items.length).toBeGreaterThan(0)
    expect(items).toEqual(all.filter(holds))
  })

  it('ends where the time says', async () => {
    const { items } = JSON.parse((await read('?limit=500')).text)
    const middle = items[Math.floor(items.length / 2)].at
    const after = JSON.parse((await read(`?limit=500&created_after=${middle}`)).text).items
    const before = JSON.parse((await read(`?limit=500&created_before=${middle}`)).text).items
    expect(after.every(({ at }: { at: string }) => microsecondsOf(at) > microsecondsOf(middle))).toBe(true)
    expect(before.every(({ at }: { at: string }) => microsecondsOf(at) < microsecondsOf(middle))).toBe(true)
    expect(after.length + before.length).toBeGreaterThanOrEqual(items.length - 2)
  })

  it('gives all of it out as NDJSON and as CSV', async () => {
    const total = await countAll()
    const ndjson = await read('?limit=1', 'application/x-ndjson')
    expect([ndjson.status, ndjson.type]).toEqual([200, 'application/x-ndjson; charset=utf-8'])
    const lines = ndjson.text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toHaveLength(total)
    const csv = await read('?action=operation_type.pause', 'text/csv')
    const [head, first] = csv.text.split('\r\n')
    expect(head).toBe('id,at,actor,auth,scope,action,subject_kind,subject_id,reason,request_id,trace_id,details')
    expect(first).toContain(',alice,key,types:admin,operation_type.pause,operation_type,pay,')
  })

  it('is for those whom it is for, and refuses what it does not know', async () => {
    const author = { actor: 'test', auth: 'command_line', scope: null, requestId: null, traceId: null } as const
    const scopes = SCOPES.filter((scope) => scope !== 'audit:read')
    const { key } = await createApiKey(service.database, { name: 'carol', scopes, expiresInDays: null }, author)
    const answer = await app.inject({ url: '/audit', headers: { authorization: `Bearer ${key}` } })
    expect(answer.statusCode).toBe(403)
    expect((await read('?who=alice')).status).toBe(400)
    expect((await read('?action=operation.explode')).status).toBe(400)
  })

  it("shows nothing of another tenant's", async () => {
    await service.database.query(
      ({ sql }) => sql`
        insert into audit_entries (tenant_id, actor, auth, action, subject_kind, subject_id)
        values (2, 'stranger', 'key', 'operation.cancel', 'operation', 'op_of_tenant_2')`,
    )
    for (const accept of ['application/json', 'application/x-ndjson', 'text/csv'])
      expect((await read('?subject=op_of_tenant_2', accept)).text).not.toContain('stranger')
  })
})
