/** A type that says `counts: ranges`: whoever may not read the ledger finds no exact count of it, wherever they look. */
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fingerprint } from '../../src/domain/failure.ts'
import { formatId } from '../../src/domain/ids.ts'
import { SCOPES, type Scope } from '../../src/domain/scope.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { createApiKey } from '../../src/services/api-keys.ts'
import { type PlantedItem, plantedType, plantOperation } from '../support/planted-operation.ts'
import { openTestService, type TestService } from '../support/service.ts'

/** Nobody else has such numbers: each that is found somewhere is a leak. */
const APPLIED = 3_137
const CONFLICTS = 523
const DEAD = 417
const UNCERTAIN = 313
const UNPROCESSED = 211
const EXACT = [
  APPLIED,
  CONFLICTS,
  DEAD,
  UNCERTAIN,
  UNPROCESSED,
  CONFLICTS + DEAD,
  DEAD + UNPROCESSED,
  APPLIED + CONFLICTS + DEAD + UNCERTAIN + UNPROCESSED,
]

let service: TestService
let app: App
let url: string
let guest: string
let clerk: string
beforeAll(async () => {
  service = await openTestService({
    types: [plantedType('sealed', { counts: 'ranges' }), plantedType('plain')],
    webhooks: { privateAddresses: 'allow' },
  })
  app = await buildServer({
    services: service.services,
    config: { auth: 'keys', publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
  const keyOf = async (name: string, scopes: readonly Scope[]) =>
    (await createApiKey(service.database, { name, scopes, expiresInDays: null })).key
  guest = await keyOf(
    'guest',
    SCOPES.filter((scope) => scope !== 'ledger:read'),
  )
  clerk = await keyOf('clerk', SCOPES)
  const id = await plant('sealed')
  sealed = formatId('op', id)
  await service.database.query(
    ({ sql }) => sql`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, reason_code, message,
        attempts, fingerprint, created_at)
      select tenant_id, operation_id, ord, 'sealed', item_key, effect_key, 'transient', 'BUSY', 'no room', 3, ${incident()}, now()
      from operation_items where operation_id = ${id}::uuid and left(item_key, 1) = 'd'`,
  )
}, 120_000)
afterAll(async () => {
  await app?.close()
  await service?.close()
})

let sealed: string
const incident = () =>
  fingerprint({ type: 'sealed', failureClass: 'transient', reasonCode: 'BUSY', message: 'no room' })
const many = (prefix: string, count: number, item: Omit<PlantedItem, 'key'>): PlantedItem[] =>
  Array.from({ length: count }, (_, index) => ({ key: `${prefix}-${index}`, ...item }))

/** Rows one by one would take long: one statement each makes the others out of the first. */
const plant = async (type: string): Promise<string> => {
  const id = await plantOperation(service.database, {
    type,
    status: 'reconciliation_required',
    items: [
      ...many('a', 1, { entries: [{ state: 'applied' }] }),
      ...many('c', 1, { entries: [{ state: 'failed', failureClass: 'conflict' }] }),
      ...many('d', DEAD, { entries: [{ state: 'failed', failureClass: 'transient' }] }),
      ...many('u', 1, { entries: [{ state: 'uncertain' }] }),
      ...many('w', 1, {}),
    ],
  })
  await service.database.query(
    ({ sql }) => sql`
      with shown (prefix, n) as (values ('a', ${APPLIED}::int), ('c', ${CONFLICTS}::int), ('u', ${UNCERTAIN}::int), ('w', ${UNPROCESSED}::int)),
      made as (
        insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
        select i.tenant_id, i.operation_id, 10000 * ascii(s.prefix) + g, s.prefix || '-' || g, i.effect_key || g, '{}', 'h'
        from shown s join operation_items i on i.operation_id = ${id}::uuid and i.item_key = s.prefix || '-0',
          generate_series(1, s.n - 1) g
        returning tenant_id, operation_id, ord, item_key, effect_key)
      insert into ledger_entries (tenant_id, operation_id, ord, item_key, attempt, state, failure_class, effect_key, input_hash,
        source, code_version)
      select tenant_id, operation_id, ord, item_key, 1,
        case left(item_key, 1) when 'a' then 'applied' when 'c' then 'failed' else 'uncertain' end,
        case left(item_key, 1) when 'c' then 'conflict' when 'u' then 'ambiguous_effect' end, effect_key, 'h', 'worker', 'c1'
      from made where left(item_key, 1) <> 'w'`,
  )
  const total = APPLIED + CONFLICTS + DEAD + UNCERTAIN + UNPROCESSED
  await service.database.query(
    ({ sql }) =>
      sql`update operations set items_total = ${total}, started_at = now() - interval '1 minute' where id = ${id}::uuid`,
  )
  await service.database.query(
    ({ sql }) => sql`
      update operation_shards set applied = ${APPLIED}, failed = ${CONFLICTS + DEAD}, uncertain = ${UNCERTAIN},
        failed_conflict = ${CONFLICTS}, failed_transient = ${DEAD}, to_ord = 2000000, cursor = 2000000
      where operation_id = ${id}::uuid`,
  )
  return id
}

const call = async (
  method: string,
  key: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
) => {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  const isJson = /^application\/(problem\+)?json/.test(answer.headers.get('content-type') ?? '')
  return { status: answer.status, text, body: isJson ? JSON.parse(text) : null }
}

/** Whole numbers of the text that count something, told from times and ids. */
const exactIn = (text: string): number[] => {
  const plain = text.replace(/"\d{4}-\d\d-\d\dT[^"]*"|[0-9a-f]{32}|[0-9a-f-]{36}|"version":\d+/g, '')
  return EXACT.filter((count) => new RegExp(`(?<![\\d.])${count}(?![\\d.])`).test(plain))
}
const expectRanges = ({ text, status }: { text: string; status: number }): void => {
  expect(status, text).toBeLessThan(410)
  expect(exactIn(text), text).toEqual([])
}

/** Of the entries of an audit with this action. */
const detailsOf = (items: readonly { action: string; details: object }[], action: string): object[] =>
  items.filter((item) => item.action === action).map(({ details }) => details)

const RANGES = {
  total: { min: 1_000, max: 9_999 },
  applied: { min: 1_000, max: 9_999 },
  skipped: { min: 0, max: 0 },
  failed: { min: 100, max: 999 },
  uncertain: { min: 100, max: 999 },
  unprocessed: { min: 100, max: 999 },
  in_flight: { min: 0, max: 0 },
}

describe('whoever may not read the ledger', () => {
  it('sees ranges in the operation, and nothing that they could be computed from', async () => {
    const answer = await call('GET', guest, `/operations/${sealed}`)
    expectRanges(answer)
    expect(answer.body).toMatchObject({
      counts: { total: 1_000, applied: 1_000, skipped: 0, failed: 100, uncertain: 100, unprocessed: 100, in_flight: 0 },
      count_ranges: RANGES,
      failures: { conflict: 100, transient: 100 },
      progress: { ratio: 0.9, rate_per_second: null },
    })
  })

  it.each([
    ['the list', 'GET', '/operations?type=sealed'],
    ['the health report', 'GET', '/health-report'],
    ['the types', 'GET', '/operation-types'],
  ])('sees ranges in %s', async (_name, method, path) => {
    expectRanges(await call(method, guest, path))
  })

  it.each([
    ['a preflight of a replay', 'replay-preflight', {}],
    ['a preflight of a compensation', 'compensation-preflight', {}],
    ['a pause', 'pause', {}],
  ])('sees ranges in the answer to %s', async (_name, verb, body) => {
    expectRanges(await call('POST', guest, `/operations/${sealed}/${verb}`, body))
  })

  it('sees ranges in the metrics', async () => {
    const { text } = await call('GET', guest, '/metrics')
    const lines = text.split('\n').filter((line) => line.includes('type="sealed"'))
    expect(lines).toContain('opledger_uncertain_items{type="sealed"} 100')
    expect(exactIn(lines.join('\n'))).toEqual([])
  })

  it('sees ranges where a replay is blocked, and in its stop conditions', async () => {
    const preflight = await call('POST', guest, `/operations/${sealed}/replay-preflight`, {})
    expect(preflight.body).toMatchObject({ counts_in_ranges: true, ambiguous_effect_targets: 100, failed_targets: 100 })
    const body = { preflight_id: preflight.body.preflight_id, reason: 'r' }
    const blocked = await call('POST', guest, `/operations/${sealed}/replay`, body)
    expect([blocked.status, blocked.body.code]).toEqual([409, 'replay-blocked'])
    expect(blocked.body.stop_if).toContainEqual({
      condition: 'ambiguous_effect_targets > 0',
      actual: 100,
      tripped: true,
    })
    expectRanges(blocked)
  })

  it('sees ranges in the stream of events', async () => {
    const abort = new AbortController()
    const answer = await fetch(`${url}/operations/${sealed}/events`, {
      headers: { authorization: `Bearer ${guest}`, accept: 'text/event-stream' },
      signal: abort.signal,
    })
    let text = ''
    for await (const piece of answer.body ?? []) {
      text += Buffer.from(piece).toString()
      if (text.includes('event: progress')) break
    }
    abort.abort()
    expect(text).toContain('"count_ranges":{"total":{"min":1000')
    expect(exactIn(text)).toEqual([])
  })

  it('is not shown items, ledger, places, dead letters, incidents or cases', async () => {
    const below = ['items', 'ledger', 'checkpoints', 'items/a-0/history'].map((name) => `/operations/${sealed}/${name}`)
    for (const path of [...below, '/dead-letters', '/incidents', '/reconciliation']) {
      expect(await call('GET', guest, path), path).toMatchObject({ status: 403, body: { scope: 'ledger:read' } })
    }
  })

  it('finds no operations by their items', async () => {
    for (const filter of ['item_key=a-0', 'effect_key=x']) {
      expect(await call('GET', guest, `/operations?${filter}`)).toMatchObject({
        status: 403,
        body: { scope: 'ledger:read' },
      })
      expect((await call('GET', clerk, `/operations?${filter}`)).status).toBe(200)
    }
  })

  it('learns of a draft how much they have uploaded themselves, and of the whole a range', async () => {
    const { body } = await call('POST', clerk, '/operations', { type: 'sealed', draft: true })
    const upload = async (key: string, from: number, rows: number) => {
      const lines = Array.from({ length: rows }, (_, row) => `{"key": "up-${from + row}", "input": {}}\n`)
      const answer = await fetch(`${url}/operations/${body.id}/items`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/x-ndjson' },
        body: lines.join(''),
      })
      return answer.json()
    }
    expect(await upload(clerk, 0, 40)).toEqual({ added: 40, total: 40 })
    expect(await upload(guest, 40, 7)).toEqual({ added: 7, total: 10 })
  })

  it('sees ranges in the audit, as JSON, NDJSON and CSV', async () => {
    const { body: draft } = await call('POST', clerk, '/operations', { type: 'sealed', draft: true })
    const lines = Array.from({ length: DEAD }, (_, row) => `{"key": "audited-${row}", "input": {}}\n`)
    await fetch(`${url}/operations/${draft.id}/items`, {
      method: 'POST',
      headers: { authorization: `Bearer ${clerk}`, 'content-type': 'application/x-ndjson' },
      body: lines.join(''),
    })
    expect((await call('POST', clerk, `/operations/${draft.id}/start`)).status).toBe(202)
    const path = `/audit?subject=${draft.id}`
    const seen = { add: { added: 100, counts_in_ranges: true }, start: { items: 100, counts_in_ranges: true } }
    const exact = { add: { added: DEAD }, start: { items: DEAD } }
    for (const [key, { add, start }] of [[guest, seen] as const, [clerk, exact] as const]) {
      const { body } = await call('GET', key, path)
      expect(detailsOf(body.items, 'operation.items_add')).toEqual([add])
      expect(detailsOf(body.items, 'operation.start')).toEqual([start])
    }
    for (const accept of ['application/json', 'application/x-ndjson', 'text/csv']) {
      expectRanges(await call('GET', guest, '/audit', undefined, { accept }))
      expect(exactIn((await call('GET', clerk, path, undefined, { accept })).text)).toEqual([DEAD])
    }
  })

  it('sees ranges of what a replay has taken, in the audit', async () => {
    const of = await plant('plain')
    await service.database.query(
      ({ sql }) => sql`
        insert into audit_entries select a.* from audit_row(1, ${JSON.stringify({
          actor: 'clerk',
          auth: 'key',
          action: 'operation.replay',
          subject_kind: 'operation',
          subject_id: formatId('op', of),
          details: { operation: sealed, targets: DEAD, forced: 'STALE' },
        })}::text::jsonb) a`,
    )
    const path = `/audit?subject=${formatId('op', of)}`
    const [shown] = detailsOf((await call('GET', guest, path)).body.items, 'operation.replay')
    expect(shown).toEqual({ operation: sealed, targets: 100, forced: 'STALE', counts_in_ranges: true })
    const [exact] = detailsOf((await call('GET', clerk, path)).body.items, 'operation.replay')
    expect(exact).toEqual({ operation: sealed, targets: DEAD, forced: 'STALE' })
  })

  it('has no exact counts sent to an address', async () => {
    const submit = (type: string) =>
      call('POST', guest, '/operations', {
        type,
        items: [{ key: 'k', input: {} }],
        callback_url: 'http://127.0.0.1:9/',
      })
    expect(await submit('sealed')).toMatchObject({ status: 403, body: { scope: 'ledger:read' } })
    expect((await submit('plain')).status).toBe(202)
  })

  it('sees ranges of an incident that is resolved, and no list as long as it', async () => {
    const id = incident()
    const path = `/incidents/inc_${id}/resolve`
    const answer = await call('POST', guest, path, { reason: 'mended' })
    expectRanges(answer)
    expect(answer.body).toMatchObject({ counts_in_ranges: true, count: 100, preflights: [{ targets: 100 }] })
    expect(answer.body.preflights[0].scope).toEqual({ states: ['failed'], failure_classes: ['transient'] })
  })
})

describe('whoever may read the ledger', () => {
  it('sees exact counts', async () => {
    const { body } = await call('GET', clerk, `/operations/${sealed}`)
    expect([body.counts.applied, body.counts.uncertain, body.count_ranges]).toEqual([APPLIED, UNCERTAIN, null])
    const metrics = (await call('GET', clerk, '/metrics')).text
    expect(metrics).toContain(`opledger_uncertain_items{type="sealed"} ${UNCERTAIN}`)
    const preflight = await call('POST', clerk, `/operations/${sealed}/replay-preflight`, {})
    expect(preflight.body).toMatchObject({ counts_in_ranges: false, ambiguous_effect_targets: UNCERTAIN })
  })
})

it('a type that says nothing shows exact counts to everybody', async () => {
  const id = formatId('op', await plant('plain'))
  const { body } = await call('GET', guest, `/operations/${id}`)
  expect([body.counts.applied, body.count_ranges]).toEqual([APPLIED, null])
})
