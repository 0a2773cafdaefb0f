import { createHash, randomUUID } from 'node:crypto'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { plantEffects, plantedType, plantOperation } from '../support/planted-operation.ts'
import { openTestService, type TestService } from '../support/service.ts'

/** The read routes over the real database. */
let service: TestService
let app: App

beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant', { owner: 'identity-team' }), plantedType('import')] })
  app = await openApp('off')
})
afterAll(async () => {
  await app.close()
  await service.close()
})

const openApp = async (auth: 'off' | 'keys'): Promise<App> =>
  buildServer({
    services: service.services,
    config: { auth, publicUrl: null },
    state: { draining: false },
    log: pino({ level: 'silent' }),
  })

const read = async (url: string) => {
  const answer = await app.inject(url)
  expect([url, answer.statusCode]).toEqual([url, 200])
  return answer.json()
}

const idsOf = async (url: string): Promise<string[]> => (await read(url)).items.map(({ id }: { id: string }) => id)

const readAll = async (url: string): Promise<Record<string, unknown>[]> => {
  const rows: Record<string, unknown>[] = []
  let next: string | undefined = url
  while (next !== undefined) {
    const page: { items: Record<string, unknown>[]; next_cursor?: string } = await read(next)
    rows.push(...page.items)
    next = page.next_cursor && `${url}&cursor=${page.next_cursor}`
  }
  return rows
}

describe('operations', () => {
  const ids: string[] = []
  beforeAll(async () => {
    for (let i = 0; i < 5; i++)
      ids.unshift(
        await plantOperation(service.database, { type: 'grant', status: 'running', items: [{ key: `a${i}` }] }),
      )
    await service.database.query(async ({ sql }) => {
      const labels = JSON.stringify({ batch: 'L7', odd: '"}\' ü' })
      await sql`update operations set labels = ${labels}::text::jsonb where id in (${ids[0] ?? ''}::uuid, ${ids[3] ?? ''}::uuid)`
      // the same microsecond: only the id tells them apart
      await sql`update operations set created_at = '2026-05-05 05:05:05.000001+00' where id in (${ids[1] ?? ''}::uuid, ${ids[2] ?? ''}::uuid)`
    })
    await plantOperation(service.database, { type: 'grant', status: 'running', items: [{ key: 'x' }], tenantId: 2 })
  })

  it.each([1, 2, 3, 50])('come newest first, by pages of %i, without loss or repetition', async (limit) => {
    const rows = await readAll(`/operations?type=grant&limit=${limit}`)
    const found = rows.map(({ id }) => id)
    expect(new Set(found).size).toBe(5)
    expect(found).toEqual(
      [ids[0], ids[3], ids[4], ...[ids[1], ids[2]].sort().reverse()].map((id) => formatId('op', id ?? '')),
    )
  })

  it('are selected by every filter', async () => {
    const [first, fourth] = [ids[0], ids[3]].map((id) => formatId('op', id ?? ''))
    expect(await idsOf('/operations?label.batch=L7')).toEqual([first, fourth])
    expect(await idsOf(`/operations?label.batch=L7&label.odd=${encodeURIComponent('"}\' ü')}`)).toEqual([first, fourth])
    expect(await idsOf('/operations?label.batch=L8')).toEqual([])
    expect(await idsOf('/operations?type=grant&status=succeeded,failed')).toEqual([])
    expect(await idsOf('/operations?type=grant&status=running,failed')).toHaveLength(5)
    expect(await idsOf('/operations?requested_by=tester&type=grant')).toHaveLength(5)
    expect(await idsOf('/operations?requested_by=nobody')).toEqual([])
    expect(await idsOf('/operations?created_before=2026-05-05T05:05:05.000002Z')).toHaveLength(2)
    expect(await idsOf('/operations?created_before=2026-05-05T07:05:05.000001%2B02:00')).toHaveLength(0)
    expect(await idsOf('/operations?type=grant&created_after=2026-05-05T05:05:05.000001Z')).toHaveLength(3)
    expect(await idsOf(`/operations?replay_of=${first}`)).toEqual([])
  })

  it('are found by the key of an item, and by the effect that they were the last to send', async () => {
    const plant = async (key: string, tenantId = 1): Promise<string> => {
      const id = await plantOperation(service.database, {
        ...{ type: 'import', status: 'succeeded', tenantId },
        items: [
          { key, entries: [{ state: 'applied' }] },
          { key: 'other', entries: [{ state: 'applied' }] },
        ],
        effectKey: (item) => `found:${item.key}:${item.key === 'other' ? item.id : ''}`,
      })
      return id
    }
    const first = await plant('shared/ü key')
    await plantEffects(service.database, first)
    const second = await plant('shared/ü key')
    await plant('shared/ü key', 3)
    const idOf = (id: string): string => formatId('op', id)
    const key = encodeURIComponent('shared/ü key')
    expect(await idsOf(`/operations?item_key=${key}`)).toEqual([idOf(second), idOf(first)])
    expect(await idsOf(`/operations?item_key=${key}&status=running`)).toEqual([])
    expect(await idsOf(`/operations?item_key=${key}&type=import&created_after=2026-01-01T00:00:00Z`)).toHaveLength(2)
    expect(await idsOf('/operations?item_key=shared')).toEqual([])
    expect((await readAll(`/operations?item_key=${key}&limit=1`)).map(({ id }) => id)).toEqual([
      idOf(second),
      idOf(first),
    ])

    const effect = encodeURIComponent('found:shared/ü key:')
    expect(await idsOf(`/operations?effect_key=${effect}`)).toEqual([idOf(first)])
    expect(await idsOf(`/operations?effect_key=${effect}&item_key=${key}`)).toEqual([idOf(first)])
    expect(await idsOf(`/operations?effect_key=${effect}&item_key=nothing`)).toEqual([])
    expect(await idsOf('/operations?effect_key=found')).toEqual([])
    // what another tenant sent is not found
    await service.database.query(({ sql }) => sql`update effects set tenant_id = 3 where operation_id = ${first}::uuid`)
    expect(await idsOf(`/operations?effect_key=${effect}`)).toEqual([])
  })

  it('are not searched with another search under the same cursor', async () => {
    for (const key of ['c1', 'c2'])
      for (let i = 0; i < 2; i++)
        await plantOperation(service.database, { type: 'import', status: 'running', items: [{ key }] })
    const { next_cursor } = await read('/operations?item_key=c1&limit=1')
    const answer = await app.inject(`/operations?item_key=c2&limit=1&cursor=${next_cursor}`)
    expect([answer.statusCode, answer.json().code]).toEqual([400, 'invalid-cursor'])
  })

  it('stay within the tenant', async () => {
    const [foreign] = await service.database.query(
      ({ sql }) => sql<{ id: string }>`select id from operations where tenant_id = 2`,
    )
    const id = formatId('op', foreign?.id ?? '')
    for (const below of ['', '/items', '/ledger', '/checkpoints', '/events']) {
      const answer = await app.inject(`/operations/${id}${below}`)
      expect([answer.statusCode, answer.json().code]).toEqual([404, 'operation-not-found'])
    }
  })
})

describe('outcomes', () => {
  let url: string
  let id: string
  beforeAll(async () => {
    id = await plantOperation(service.database, {
      type: 'import',
      status: 'running',
      items: [
        { key: 'done', entries: [{ state: 'applied' }] },
        { key: 'again', entries: [{ state: 'failed', failureClass: 'transient' }, { state: 'applied' }] },
        { key: 'refused', entries: [{ state: 'failed', failureClass: 'conflict' }] },
        { key: 'doubt', entries: [{ state: 'uncertain' }] },
        { key: 'waits', entries: [{ state: 'failed', failureClass: 'transient' }] },
        { key: 'new' },
      ],
    })
    url = `/operations/${formatId('op', id)}`
    await service.database.query(async ({ sql }) => {
      await sql`
        insert into item_retries (tenant_id, operation_id, ord, shard, effect_key, attempt, run_at, reason, prior_state, prior_class)
        values (1, ${id}::uuid, 4, 0, 'e', 2, '2027-01-01 00:00:00.5+00', 'failed', 'failed', 'transient')`
      for (const version of [1, 2, 3])
        await sql`
          insert into operation_events (tenant_id, operation_id, version, kind, status, actor)
          values (1, ${id}::uuid, ${version}, ${`k${version}`}, 'running', 'tester')`
    })
  })

  const keysOf = async (query: string): Promise<unknown[]> =>
    (await readAll(`${url}/items?limit=2${query}`)).map(({ key }) => key)

  it('shows the latest state of each item', async () => {
    const items = await readAll(`${url}/items?limit=4`)
    const states = items.map(({ key, state, failure_class, attempt, retry_at }) => [
      key,
      state,
      failure_class,
      attempt,
      retry_at,
    ])
    expect(states).toEqual([
      ['done', 'applied', null, 1, null],
      ['again', 'applied', null, 2, null],
      ['refused', 'failed', 'conflict', 1, null],
      ['doubt', 'uncertain', 'ambiguous_effect', 1, null],
      ['waits', 'failed', 'transient', 1, '2027-01-01T00:00:00.5Z'],
      ['new', 'unprocessed', null, 0, null],
    ])
  })

  it.each([
    ['', ['done', 'again', 'refused', 'doubt', 'waits', 'new']],
    ['&state=failed', ['refused', 'waits']],
    ['&state=failed,uncertain', ['refused', 'doubt', 'waits']],
    ['&state=unprocessed', ['new']],
    ['&state=applied,failed', ['done', 'again', 'refused', 'waits']],
    ['&failure_class=transient', ['waits']],
    ['&failure_class=conflict,ambiguous_effect', ['refused', 'doubt']],
    ['&key=doubt', ['doubt']],
    ['&key=nobody', []],
    ['&state=skipped', []],
  ])('filters items: %s', async (query, keys) => expect(await keysOf(query)).toEqual(keys))

  it('streams what it pages', async () => {
    const paged = await readAll(`${url}/items?limit=2`)
    const streamed = await app.inject({ url: `${url}/items`, headers: { accept: 'application/x-ndjson' } })
    expect(
      streamed.body
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(paged)
    const filtered = await app.inject({ url: `${url}/items?state=failed`, headers: { accept: 'text/csv' } })
    expect(filtered.body.trim().split('\r\n')).toHaveLength(3)
  })

  it('shows no retry once a cancel gave it up', async () => {
    const cancel = (at: string | null) =>
      service.database.query(
        ({ sql }) => sql`update operations set cancel_requested_at = ${at}::timestamptz where id = ${id}::uuid`,
      )
    await cancel('2026-11-29 00:00:00+00')
    const [item] = await readAll(`${url}/items?limit=2&key=waits`)
    await cancel(null)
    expect(item).toMatchObject({ state: 'failed', retry_at: null })
  })

  it('pages the ledger in the order of items and time', async () => {
    const entries = await readAll(`${url}/ledger?limit=2`)
    expect(entries.map(({ item_key, attempt, state }) => [item_key, attempt, state])).toEqual([
      ['done', 1, 'applied'],
      ['again', 1, 'failed'],
      ['again', 2, 'applied'],
      ['refused', 1, 'failed'],
      ['doubt', 1, 'uncertain'],
      ['waits', 1, 'failed'],
    ])
    const streamed = await app.inject({ url: `${url}/ledger`, headers: { accept: 'application/x-ndjson' } })
    expect(
      streamed.body
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(entries)
  })

  it('takes no position that storage cannot', async () => {
    const { next_cursor: cursor } = await read(`${url}/items?limit=1`)
    const [hash] = JSON.parse(Buffer.from(cursor, 'base64url').toString())
    for (const ord of [2 ** 31, -1, 1.5, '1']) {
      const forged = Buffer.from(JSON.stringify([hash, { ord }])).toString('base64url')
      expect((await app.inject(`${url}/items?cursor=${forged}`)).statusCode).toBe(400)
    }
  })

  it('shows checkpoints and events', async () => {
    const [checkpoint] = await readAll(`${url}/checkpoints?limit=1`)
    expect(checkpoint).toMatchObject({
      shard: 0,
      from_ord: 0,
      to_ord: 6,
      cursor: 5,
      state: 'ready',
      epoch: 0,
      owner: null,
    })
    const events = await readAll(`${url}/events?limit=2`)
    expect(events.map(({ version, kind }) => [version, kind])).toEqual([
      [1, 'k1'],
      [2, 'k2'],
      [3, 'k3'],
    ])
  })
})

describe('cases', () => {
  it('come oldest first, with every filter', async () => {
    const operationId = randomUUID()
    await service.database.query(async ({ sql }) => {
      for (let ord = 0; ord < 4; ord++)
        await sql`
          insert into reconciliation_cases (tenant_id, operation_id, shard, ord, type, item_key, effect_key, send, cause, opened_at)
          values (1, ${operationId}::uuid, 0, ${ord}, 'grant', ${`k${ord}`}, ${`e${ord}`}, 1, 'worker_lost', '2026-01-01 00:00:00.000001+00')`
      await sql`
        update reconciliation_cases set closed_at = '2026-01-02 00:00:00+00', resolution = 'applied', resolved_by = 'ann',
          resolution_source = 'operator', evidence_ref = 'ticket-1' where ord = 3 and operation_id = ${operationId}::uuid`
    })
    const url = `/reconciliation?operation_id=${formatId('op', operationId)}`
    const all = await readAll(`${url}&limit=1`)
    expect(all).toHaveLength(4)
    expect(new Set(all.map(({ id }) => id)).size).toBe(4)
    const keys = async (query: string) =>
      (await readAll(`${url}&limit=3${query}`)).map(({ item_key }) => item_key).sort()
    expect(await keys('&status=open')).toEqual(['k0', 'k1', 'k2'])
    expect(await keys('&status=resolved')).toEqual(['k3'])
    expect(await keys('&status=open,resolved')).toEqual(['k0', 'k1', 'k2', 'k3'])
    expect(await keys('&item_key=k1&type=grant')).toEqual(['k1'])
    expect(await keys('&type=import')).toEqual([])
    const resolved = all.find(({ item_key }) => item_key === 'k3')
    expect(await read(`/reconciliation/${resolved?.id}`)).toEqual(resolved)
    expect(resolved).toMatchObject({
      status: 'resolved',
      owner: 'identity-team',
      opened_at: '2026-01-01T00:00:00.000001Z',
      resolution: {
        resolution: 'applied',
        resolved_by: 'ann',
        evidence_ref: 'ticket-1',
        resolved_at: '2026-01-02T00:00:00Z',
      },
    })
  })
})

describe('types and workers', () => {
  it('throws the kill switch once, and shows who did', async () => {
    const pause = (reason: string) =>
      app.inject({ method: 'POST', url: '/operation-types/grant/pause', payload: { reason } })
    const first = (await pause('provider is down')).json()
    expect(first.paused).toMatchObject({ by: 'dev', reason: 'provider is down' })
    expect((await pause('another reason')).json().paused).toEqual(first.paused)
    expect(
      (await read('/operation-types')).items.map(({ name, paused }: Record<string, unknown>) => [
        name,
        paused === null,
      ]),
    ).toEqual([
      ['grant', false],
      ['import', true],
    ])
    const resumed = await app.inject({ method: 'POST', url: '/operation-types/grant/resume' })
    expect(resumed.json().paused).toBeNull()
    expect(await read('/operation-types/grant')).toMatchObject({ cancel_guarantee: 'no_new_sends', p95_ms: null })
  })

  it('calls a worker gone after two missed beats', async () => {
    const [alive, gone] = [randomUUID(), randomUUID()]
    await service.database.query(async ({ sql }) => {
      for (const [id, seconds] of [
        [alive, 1],
        [gone, 30],
      ] as const)
        await sql`
          insert into workers (id, host, pid, code_version, types, beat_ms, last_seen_at)
          values (${id}::uuid, 'h', 7, 'c1', '[]', 10000, now() - ${seconds}::int * interval '1 second')`
    })
    const { items } = await read('/workers')
    expect(items.find(({ id }: { id: string }) => id === alive)).toMatchObject({ state: 'active', leases: 0, pid: 7 })
    expect(items.find(({ id }: { id: string }) => id === gone)).toMatchObject({ state: 'gone' })
  })

  it('is ready, reports and measures', async () => {
    expect(await read('/readyz')).toMatchObject({
      status: 'ready',
      checks: expect.arrayContaining([{ name: 'database', ok: true, detail: null }]),
    })
    expect((await read('/health-report')).types.length).toBeGreaterThanOrEqual(2)
    const { body } = await app.inject('/metrics')
    expect(body).toContain('opledger_measure_failures_total 0')
  })
})

describe('API keys', () => {
  it('open the tenant that they belong to, until they expire or are revoked', async () => {
    const keyed = await openApp('keys')
    const ask = async () => {
      const answer = await keyed.inject({ url: '/operations', headers: { authorization: 'Bearer opl_secret' } })
      return [answer.statusCode, answer.json().items?.length]
    }
    const change = (set: 'revoked' | 'expired' | 'valid') =>
      service.database.query(({ sql }) => {
        const [revoked, expired] = [set === 'revoked', set === 'expired']
        return sql`
          update api_keys set revoked_at = case when ${revoked} then now() end,
            expires_at = case when ${expired} then now() - interval '1 second' else now() + interval '1 hour' end`
      })
    const hash = createHash('sha256').update('opl_secret').digest('hex')
    expect(await ask()).toEqual([401, undefined])
    await service.database.query(
      ({ sql }) => sql`
        insert into api_keys (tenant_id, name, key_hash, scopes) values (2, 'ci', ${hash}, '{operations:read,unheard_of}')`,
    )
    expect(await ask()).toEqual([200, 1])
    await change('revoked')
    expect(await ask()).toEqual([401, undefined])
    await change('expired')
    expect(await ask()).toEqual([401, undefined])
    await change('valid')
    expect(await ask()).toEqual([200, 1])
    await keyed.close()
  })
})
