/** Rows that another version of opledger wrote, with members that this one does not know: everything is still answered. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import openapi from '../../openapi/openapi.json' with { type: 'json' }
import { formatId } from '../../src/domain/ids.ts'
import { type DraftApi, openDraftApi } from '../support/drafts.ts'
import { eventually, untilStatus } from '../support/service.ts'
import { startTestEngine } from '../support/service-engine.ts'
import { openProvider, UNKNOWN } from '../support/service-provider.ts'

const provider = openProvider()
const type = provider.type('grant', { retry: { maxAttempts: 1, baseMs: 20, maxMs: 50 } })
const JSON_TYPE = { 'content-type': 'application/json' }
let api: DraftApi
beforeAll(async () => {
  api = await openDraftApi([type])
})
afterAll(() => api.close())

/** Every column of JSON gets what it never had: an object a member, a list an element. */
const plantUnknown = async (): Promise<string[]> => {
  const { database } = api.service
  const columns = await database.query(
    ({ sql }) => sql<{ table: string; column: string }>`
      select table_name as table, column_name as column from information_schema.columns c
      where table_schema = 'public' and data_type = 'jsonb' and (table_name, column_name) <> ('operations', 'after')
        and exists (select from pg_class t where t.relname = c.table_name and t.relkind = 'r') order by 1, 2`,
  )
  await database.transaction(async ({ script }) => {
    // no trigger is asked: another version has written it so
    await script("set local session_replication_role = 'replica'")
    for (const { table, column } of columns) {
      await script(`update ${table} set ${column} = case jsonb_typeof(${column})
        when 'object' then ${column} || '{"member_of_another_version": {"deep": [1, null]}}'
        when 'array' then ${column} || '["element of another version"]' else ${column} end`)
    }
    await script(`update operations set error = '{"code": "x", "detail": "y", "member_of_another_version": 1}',
      result_summary = coalesce(result_summary, '{}') || '{"member_of_another_version": 1}'`)
  })
  return columns.map(({ table, column }) => `${table}.${column}`)
}

it('answers every GET, and judges, with members that no code knows (case 79)', async () => {
  for (const key of ['failed', 'failed-too']) {
    provider.answer(key, { state: 'failed', failureClass: 'transient', reasonCode: 'BUSY' })
  }
  provider.answer('unknown', UNKNOWN)
  const engine = await startTestEngine({ url: api.service.url, types: [type] })
  const post = (path: string, body: object) => api.call('POST', path, JSON.stringify(body), JSON_TYPE)
  const submitted = await api.service.submit(
    'grant',
    ['applied', 'failed', 'unknown'].map((key) => ({ key })),
    { labels: { team: 'a' }, stopIf: ['ambiguous_effect_targets > 0'] },
  )
  const ended = await api.service.submit('grant', [{ key: 'failed-too' }])
  await untilStatus(api.service, submitted.id, 'reconciliation_required')
  await untilStatus(api.service, ended.id, 'failed')
  await engine.drain()
  const id = formatId('op', submitted.id)
  const preflight = await post(`/operations/${formatId('op', ended.id)}/replay-preflight`, {})
  expect(preflight.status).toBe(200)
  const bulk = await post('/bulk-actions', { action: 'cancel', filter: { type: 'grant' }, reason: 'r' })
  const pick = async (path: string): Promise<string> => (await api.call('GET', path)).body.items[0].id
  const ids: Record<string, string> = {
    '/operations/{id}': id,
    '/bulk-actions/{id}': bulk.body.id,
    '/reconciliation/{case_id}': await pick('/reconciliation'),
    '/dead-letters/{id}': await pick('/dead-letters'),
    '/incidents/{id}': await pick('/incidents'),
  }
  const [delivery] = await api.service.database.query(
    ({ sql }) => sql<{ id: string }>`
      insert into webhook_deliveries (tenant_id, operation_id, event_version, event, status, facts, url)
      values (1, ${submitted.id}::uuid, 2, 'operation.settled', 'failed', '{}', 'https://r.example/') returning id`,
  )
  ids['/webhook-deliveries/{id}'] = formatId('wh', delivery?.id ?? '')

  const columns = await plantUnknown()
  expect(columns).toEqual(expect.arrayContaining(['operations.labels', 'operations.result_summary', 'workers.types']))

  const answers: Record<string, number> = {}
  for (const [path, methods] of Object.entries(openapi.paths)) {
    // what an operation of this type never has
    if (!('get' in methods) || /artifact/.test(path)) continue
    const owner = Object.keys(ids).find((prefix) => path.startsWith(prefix))
    const url = (owner === undefined ? path : path.replace(owner, owner.replace(/\{\w+\}/, ids[owner] ?? '')))
      .replace('{key}', 'applied')
      .replace('{name}', 'grant')
      .replace('{code}', 'not-found')
    const answer = await fetch(api.url + url)
    await answer.text()
    answers[path] = answer.status
  }
  expect(Object.entries(answers).filter(([, status]) => status !== 200)).toEqual([])
  expect(Object.keys(answers).length).toBeGreaterThan(20)

  // what decides by these columns says so, or decides; it does not fall over
  const ended2 = `/operations/${formatId('op', ended.id)}`
  const judged = await post(`${ended2}/replay-preflight`, {})
  expect([200, 409, 422]).toContain(judged.status)
  const replayed = await post(`${ended2}/replay`, { preflight_id: preflight.body.preflight_id, reason: 'r' })
  expect(replayed.status).toBeLessThan(500)
  const started = await api.call('POST', `/bulk-actions/${bulk.body.id}/start`, '', JSON_TYPE)
  expect(started.status).toBe(202)
  await eventually('the service is ready', async () => (await api.call('GET', '/readyz')).status === 200)
})
