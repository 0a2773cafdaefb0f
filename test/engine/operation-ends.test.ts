/** The log of real processes has one line for each operation's end, told by whoever ended it. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/processes.ts'
import { PROCESSES_MS } from '../support/service.ts'
import { openWorkerFleet, type WorkerFleet, type WorkerProcess } from '../support/worker-process.ts'

const TRACE = 'a'.repeat(32)
const CANARY = 'canary-of-an-input'
const ENDS_MS = 60_000

let database: TestDatabase
let api: ApiProcess
let fleet: WorkerFleet
let workers: WorkerProcess[]
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startApi({ databaseUrl: database.url, typeFiles: [], env: { LOG_LEVEL: 'info' } })
  fleet = openWorkerFleet({ databaseUrl: database.url, typeFiles: [] })
  workers = [await fleet.start(), await fleet.start()]
}, PROCESSES_MS)
afterAll(async () => {
  await fleet.stop()
  await api.kill()
  await database.drop()
})

interface Line {
  name: string
  operation_id: string
  [field: string]: unknown
}
const output = (): string => [api, ...workers].map((one) => one.output()).join('\n')
const endsOf = (id: string): Line[] =>
  output()
    .split('\n')
    .filter((line) => line.includes('"operation ended"') && line.endsWith('}'))
    .map((line): Line => JSON.parse(line))
    .filter(({ operation_id }) => operation_id === id)

const call = async (path: string, body?: object, headers: Record<string, string> = {}) => {
  const answer = await fetch(api.url + path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
  })
  return answer.json() as Promise<{ id: string; status: string; items: { id: string }[] }>
}
const submit = async (type: string, inputs: object[], headers: Record<string, string> = {}): Promise<string> =>
  (await call('/operations', { type, items: inputs.map((input, n) => ({ key: `k${n}`, input })) }, headers)).id

it('whoever makes it final says so, once: a worker at the end of its work, the api at a cancel or a resolution', {
  timeout: PROCESSES_MS,
}, async () => {
  const place = { name: CANARY, country: 'DE', lat: 1, lng: 2 }
  const notified = await submit('example-notify', [{ to: CANARY }, { to: CANARY, mode: 'reject' }], {
    traceparent: `00-${TRACE}-${'b'.repeat(16)}-01`,
  })
  const imported = await submit('example-import', [place, place, place])
  const { id: drafted } = await call('/operations', { type: 'example-import', draft: true })
  expect((await call(`/operations/${drafted}/cancel`, {})).status).toBe('cancelled')
  const doubted = await submit('example-notify', [{ to: CANARY, mode: 'uncertain' }])
  await until(
    'its effect is uncertain',
    async () => (await call(`/operations/${doubted}`)).status === 'reconciliation_required',
    ENDS_MS,
  )
  expect(endsOf(doubted)).toEqual([])
  const { items } = await call(`/reconciliation?operation_id=${doubted}`)
  await call(`/reconciliation/${items[0]?.id}/resolve`, { resolution: 'applied', evidence_ref: 'ticket 7' })

  const ended = [notified, imported, drafted, doubted]
  await until('all have ended', () => ended.every((id) => endsOf(id).length > 0), ENDS_MS)
  expect(ended.map((id) => endsOf(id).length)).toEqual([1, 1, 1, 1])
  const counts = { applied: 0, skipped: 0, failed: 0, uncertain: 0 }
  const level = 'info'
  const took_ms = expect.any(Number)
  expect(endsOf(notified)[0]).toMatchObject({
    ...{ level, name: 'worker', type: 'example-notify', status: 'partially_succeeded', took_ms, trace_id: TRACE },
    ...{ ...counts, total: 2, applied: 1, failed: 1 },
  })
  expect(endsOf(imported)[0]).toMatchObject({ name: 'worker', status: 'succeeded', ...counts, total: 3, applied: 3 })
  expect(endsOf(drafted)[0]).toMatchObject({ name: 'api', status: 'cancelled', ...counts, total: 0 })
  expect(endsOf(doubted)[0]).toMatchObject({ name: 'api', status: 'succeeded', ...counts, total: 1, applied: 1 })
  expect(output()).not.toContain(CANARY)
})
