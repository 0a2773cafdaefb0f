import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type FailureClass, fingerprint } from '../../src/domain/failure.ts'
import { formatId } from '../../src/domain/ids.ts'
import type { App } from '../../src/http/app.ts'
import { buildServer } from '../../src/http/server.ts'
import { plantedType, plantOperation } from '../support/planted-operation.ts'
import { openTestService, type TestService } from '../support/service.ts'

/** The routes of dead letters, incidents and histories over the real database. */
let service: TestService
let app: App

beforeAll(async () => {
  service = await openTestService({ types: [plantedType('grant'), plantedType('mail')] })
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

const read = async (url: string) => {
  const answer = await app.inject(url)
  expect([url, answer.statusCode]).toEqual([url, 200])
  return answer.json()
}
const post = async (url: string, body: object, by = 'dev') => {
  const answer = await app.inject({ method: 'POST', url, payload: body, headers: { 'x-principal': by } })
  return { status: answer.statusCode, body: answer.json() }
}

interface Listed {
  id: string
  item_key: string
  status: string
  incident_id: string
}
const pagesOf = async (url: string): Promise<Listed[][]> => {
  const pages: Listed[][] = []
  let next: string | undefined = url
  while (next !== undefined) {
    const page: { items: Listed[]; next_cursor?: string } = await read(next)
    pages.push(page.items)
    next = page.next_cursor && `${url}&cursor=${page.next_cursor}`
  }
  return pages
}
const keysOf = async (query: string): Promise<string[]> =>
  (await pagesOf(`/dead-letters?${query}`)).flat().map((letter) => letter.item_key)

/** An operation whose items all failed and died, all in one microsecond. */
const plantDead = async (
  keys: string[],
  { type = 'grant', message = 'no room', failureClass = 'transient' as FailureClass } = {},
): Promise<string> => {
  const id = await plantOperation(service.database, {
    type,
    status: 'failed',
    items: keys.map((key) => ({ key, entries: [{ state: 'failed', failureClass }] })),
  })
  const cause = fingerprint({ type, failureClass: 'transient', reasonCode: 'BUSY', message })
  await service.database.query(
    ({ sql }) => sql`
      insert into dead_letters (tenant_id, operation_id, ord, type, item_key, effect_key, failure_class, reason_code, message,
        attempts, fingerprint, created_at)
      select tenant_id, operation_id, ord, ${type}, item_key, effect_key, ${failureClass}, 'BUSY', ${message}, 3, ${cause},
        statement_timestamp()
      from operation_items where operation_id = ${id}::uuid`,
  )
  return formatId('op', id)
}

const DEAD_LETTER = `/dead-letters/dl_${'0'.repeat(32)}`
const INCIDENT = `/incidents/inc_${'0'.repeat(32)}`

describe('dead letters', () => {
  let grants: string
  let mails: string
  beforeAll(async () => {
    grants = await plantDead(['d1', 'd2', 'd3', 'd4', 'd5'])
    mails = await plantDead(['m1'], { type: 'mail', failureClass: 'bug_suspected' })
  })

  it('are listed in full', async () => {
    const [letter] = (await read(`/dead-letters?operation_id=${mails}`)).items
    expect(letter).toEqual({
      id: expect.stringMatching(/^dl_[0-9a-f]{32}$/),
      operation_id: mails,
      type: 'mail',
      item_key: 'm1',
      step: null,
      effect_key: expect.stringMatching(/:m1$/),
      failure_class: 'bug_suspected',
      reason_code: 'BUSY',
      message: 'no room',
      attempts: 3,
      incident_id: expect.stringMatching(/^inc_[0-9a-f]{32}$/),
      status: 'open',
      created_at: expect.stringMatching(/Z$/),
      closing: null,
    })
    expect(await read(`/dead-letters/${letter.id}`)).toEqual(letter)
  })

  it('come oldest first, page by page, none lost or twice within one microsecond', async () => {
    const pages = await pagesOf(`/dead-letters?operation_id=${grants}&limit=2`)
    expect(pages.map((page) => page.length)).toEqual([2, 2, 1])
    expect(
      pages
        .flat()
        .map((letter) => letter.item_key)
        .sort(),
    ).toEqual(['d1', 'd2', 'd3', 'd4', 'd5'])
    expect((await keysOf('limit=3')).at(-1)).toBe('m1')
  })

  it('are filtered', async () => {
    const [mail] = (await read(`/dead-letters?operation_id=${mails}`)).items
    expect(await keysOf('type=mail')).toEqual(['m1'])
    expect(await keysOf('failure_class=bug_suspected,conflict')).toEqual(['m1'])
    expect(await keysOf(`incident_id=${mail.incident_id}`)).toEqual(['m1'])
    expect(await keysOf(`incident_id=${mail.incident_id}&type=grant`)).toEqual([])
    expect(await keysOf('status=recovered')).toEqual([])
    expect(await keysOf('status=open,discarded')).toHaveLength(6)
    expect(await keysOf('operation_id=op_nope')).toEqual([])
    expect(await keysOf('incident_id=inc_nope')).toEqual([])
    expect(await keysOf('incident_id=op_nope')).toEqual([])
  })

  it.each([
    ['/dead-letters?status=lost', 400, 'invalid-request'],
    ['/dead-letters?failure_class=odd', 400, 'invalid-request'],
    ['/dead-letters?nope=1', 400, 'invalid-request'],
    ['/dead-letters?cursor=rubbish', 400, 'invalid-cursor'],
    ['/dead-letters/nope', 404, 'dead-letter-not-found'],
    [DEAD_LETTER, 404, 'dead-letter-not-found'],
    ['/incidents?status=discarded', 400, 'invalid-request'],
    ['/incidents?cursor=rubbish', 400, 'invalid-cursor'],
    ['/incidents/nope', 404, 'incident-not-found'],
    [INCIDENT, 404, 'incident-not-found'],
  ])('%s is refused with %i', async (url, status, code) => {
    const answer = await app.inject(url)
    expect([answer.statusCode, answer.json().code]).toEqual([status, code])
  })

  it('refuse a cursor of other filters', async () => {
    const { next_cursor } = await read('/dead-letters?type=grant&limit=1')
    const answer = await app.inject(`/dead-letters?type=mail&limit=1&cursor=${next_cursor}`)
    expect([answer.statusCode, answer.json().code]).toEqual([400, 'invalid-cursor'])
  })

  it('are discarded once, with a reason and by whom', async () => {
    const [letter] = (await read(`/dead-letters?operation_id=${grants}&limit=1`)).items
    const url = `/dead-letters/${letter.id}/discard`
    for (const body of [{}, { reason: '' }, { reason: 7 }, { reason: 'x', note: 'y' }])
      expect(await post(url, body)).toMatchObject({ status: 400, body: { code: 'invalid-request' } })
    expect(await post(url, { reason: 'left the company' }, 'ann')).toMatchObject({
      status: 200,
      body: { id: letter.id, status: 'discarded', closing: { by: 'ann', reason: 'left the company' } },
    })
    expect(await post(url, { reason: 'me too' }, 'ben')).toMatchObject({
      status: 409,
      body: { code: 'dead-letter-already-closed', outcome: 'discarded', closed_by: 'ann' },
    })
    expect(await keysOf('status=discarded')).toEqual([letter.item_key])
    expect(await post(`${DEAD_LETTER}/discard`, { reason: 'x' })).toMatchObject({
      status: 404,
      body: { code: 'dead-letter-not-found' },
    })
  })
})

describe('incidents', () => {
  it('are told in full, and resolved with the preflights to run', async () => {
    const message = 'the directory is closed'
    const first = await plantDead(['i1', 'i2'], { message })
    const second = await plantDead(['i3'], { message })
    const [{ incident_id: id }] = (await read(`/dead-letters?operation_id=${first}`)).items
    const incident = await read(`/incidents/${id}`)
    expect(incident).toEqual({
      id,
      type: 'grant',
      fingerprint: id.slice('inc_'.length),
      status: 'open',
      count: 3,
      open_count: 3,
      operation_count: 2,
      first_seen_at: expect.stringMatching(/Z$/),
      last_seen_at: expect.stringMatching(/Z$/),
      sample: { message, reason_code: 'BUSY', failure_class: 'transient', item_key: 'i3', operation_id: second },
      resolution: null,
    })
    expect((await pagesOf('/incidents?type=grant&limit=1')).flat()).toContainEqual(incident)
    for (const body of [{}, { fixed_in: 'r7' }])
      expect(await post(`/incidents/${id}/resolve`, body)).toMatchObject({ status: 400 })
    const resolved = await post(`/incidents/${id}/resolve`, { fixed_in: 'r7', reason: 'it is open again' }, 'ann')
    expect(resolved).toMatchObject({
      status: 200,
      body: {
        id,
        status: 'resolved',
        open_count: 0,
        resolution: {
          resolved_by: 'ann',
          fixed_in: 'r7',
          reason: 'it is open again',
          resolved_at: expect.stringMatching(/Z$/),
        },
        has_more_preflights: false,
      },
    })
    expect(resolved.body.preflights).toEqual([
      {
        operation_id: first,
        href: `/operations/${first}/replay-preflight`,
        scope: { states: ['failed'], item_keys: ['i1', 'i2'] },
        targets: 2,
      },
      {
        operation_id: second,
        href: `/operations/${second}/replay-preflight`,
        scope: { states: ['failed'], item_keys: ['i3'] },
        targets: 1,
      },
    ])
    for (const { href, scope, targets } of resolved.body.preflights)
      expect(await post(href, { scope })).toMatchObject({
        status: 200,
        body: { replay_targets: targets, allowed: true },
      })
    expect((await pagesOf('/incidents?status=resolved&limit=1')).flat().map((each) => each.id)).toEqual([id])
    expect((await pagesOf('/incidents?status=open&limit=1')).flat().map((each) => each.id)).not.toContain(id)
    expect(await post(`${INCIDENT}/resolve`, { reason: 'x' })).toMatchObject({ status: 404 })
  })
})

describe('the history of an item', () => {
  it('is told event by event, whatever the key looks like', async () => {
    const key = 'a/b?c%d é'
    const operation = await plantDead([key])
    const url = `/operations/${operation}/items/${encodeURIComponent(key)}/history`
    const { items } = await read(url)
    expect(items.map(({ kind }: { kind: string }) => kind)).toEqual(['accepted', 'ledger_entry', 'dead_letter'])
    expect(items[0]).toMatchObject({ operation_id: operation, actor: 'tester', replay_of: null, entry: null })
    expect(items[1]).toMatchObject({ entry: { item_key: key, state: 'failed', failure_class: 'transient' } })
    expect(items[2]).toMatchObject({
      dead_letter_id: expect.stringMatching(/^dl_/),
      incident_id: expect.stringMatching(/^inc_/),
    })
    expect((await pagesOf(`${url}?limit=1`)).flat()).toEqual(items)
  })

  it.each(['nobody', '%00', 'x'.repeat(3_000), '%20'])('answers 404 for the key %s', async (key) => {
    const operation = await plantDead(['somebody'])
    const answer = await app.inject(`/operations/${operation}/items/${key}/history`)
    expect([answer.statusCode, answer.json().code]).toEqual([404, 'item-not-found'])
    const elsewhere = await app.inject(`/operations/op_${'0'.repeat(32)}/items/somebody/history`)
    expect([elsewhere.statusCode, elsewhere.json().code]).toEqual([404, 'operation-not-found'])
  })
})
