/** Traces of real processes: the POST of an operation and what workers did of it, seen by whoever takes them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type OtlpReceiver, type ReceivedSpan, startOtlpReceiver } from '../support/otlp-receiver.ts'
import { until } from '../support/processes.ts'
import { PROCESSES_MS } from '../support/service.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const CALLER = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16) }
const CANARY = 'canary-of-an-input'
const SPANS_MS = 60_000

let database: TestDatabase
let receiver: OtlpReceiver
let api: ApiProcess
let fleet: WorkerFleet
beforeAll(async () => {
  database = await createTestDatabase()
  receiver = await startOtlpReceiver()
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=to%20the%20door',
  }
  api = await startApi({ databaseUrl: database.url, typeFiles: [], env })
  fleet = openWorkerFleet({ databaseUrl: database.url, typeFiles: [], env })
  await fleet.start()
}, PROCESSES_MS)
afterAll(async () => {
  await fleet.stop()
  await api.kill()
  await receiver.close()
  await database.drop()
})

const submit = async (type: string, input: object, traceparent?: string): Promise<string> => {
  const answer = await fetch(`${api.url}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(traceparent && { traceparent }) },
    body: JSON.stringify({ type, items: ['one', 'two'].map((key) => ({ key: `${key}-${CANARY}`, input })) }),
  })
  const body = (await answer.json()) as { id: string }
  expect(answer.status, JSON.stringify(body)).toBe(202)
  return body.id
}
const runsOf = (id: string): ReceivedSpan[] =>
  receiver.spans.filter(({ name, attributes }) => name === 'shard run' && attributes['opledger.operation_id'] === id)
/** The POST that a run is linked to. Each process tells its spans in its own time: the run may be told first. */
const postOf = async ({ links: [link] }: ReceivedSpan): Promise<ReceivedSpan | undefined> => {
  const find = (): ReceivedSpan | undefined => receiver.spans.find(({ spanId }) => spanId === link?.spanId)
  await until('the POST was told', () => find() !== undefined, SPANS_MS)
  return find()
}
const below = ({ spanId }: ReceivedSpan): ReceivedSpan[] =>
  receiver.spans.filter((span) => span.parentSpanId === spanId)

describe('an operation that is traced', { timeout: PROCESSES_MS }, () => {
  it.each([
    ['example-notify', { to: CANARY }, { name: 'call', kind: 3, count: 2 }],
    ['example-import', { name: CANARY, country: 'DE', lat: 1, lng: 2 }, { name: 'batch', kind: 1, count: 1 }],
  ])(
    '%s: its POST is below its caller, and its run and what that did are linked to the POST',
    async (type, input, done) => {
      const id = await submit(type, input, `00-${CALLER.traceId}-${CALLER.spanId}-01`)
      await until('the run was told', () => runsOf(id).length > 0, SPANS_MS)
      const [run] = runsOf(id)
      if (!run) throw new Error('there is no run')
      const post = await postOf(run)
      expect(post).toMatchObject({
        process: 'api',
        name: 'POST /operations',
        kind: 2,
        traceId: CALLER.traceId,
        parentSpanId: CALLER.spanId,
        attributes: { 'http.request.method': 'POST', 'http.route': '/operations', 'http.response.status_code': 202 },
        failed: false,
      })
      expect(run).toMatchObject({ process: 'worker', kind: 5, failed: false, attributes: { 'opledger.type': type } })
      expect(run.links).toEqual([{ traceId: CALLER.traceId, spanId: post?.spanId }])
      // days may lie between the two: the run is a trace of its own
      expect([run.traceId === CALLER.traceId, run.parentSpanId]).toEqual([false, undefined])
      await until('what the run did was told', () => below(run).length >= done.count, SPANS_MS)
      expect(below(run)).toHaveLength(done.count)
      for (const span of below(run)) {
        expect(span).toMatchObject({ name: done.name, kind: done.kind, traceId: run.traceId, links: run.links })
      }
    },
  )

  it('begins a trace where its caller has none, and none where its caller samples none', async () => {
    const fresh = await submit('example-notify', { to: 'somebody' })
    const unsampled = await submit('example-notify', { to: 'somebody' }, `00-${'e'.repeat(32)}-${'f'.repeat(16)}-00`)
    const last = await submit('example-notify', { to: 'somebody' }, `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`)
    await until('the runs were told', () => runsOf(fresh).length > 0 && runsOf(last).length > 0, SPANS_MS)
    const [run] = runsOf(fresh)
    const post = run && (await postOf(run))
    expect([post?.name, post?.parentSpanId]).toEqual(['POST /operations', undefined])
    expect(runsOf(unsampled)).toEqual([])
    expect(receiver.text()).not.toContain('e'.repeat(32))
  })

  it('is shown with the headers of the collector, and without inputs, keys of items or reads', () => {
    expect(receiver.headers.length).toBeGreaterThan(0)
    for (const headers of receiver.headers) expect(headers['x-collector-key']).toBe('to the door')
    expect(receiver.text()).not.toContain(CANARY)
    expect(receiver.spans.filter(({ name }) => name.startsWith('GET'))).toEqual([])
    const attributes = new Set(receiver.spans.flatMap((span) => Object.keys(span.attributes)))
    expect([...attributes].sort()).toEqual([
      'http.request.method',
      'http.response.status_code',
      'http.route',
      'opledger.attempt',
      'opledger.epoch',
      'opledger.items',
      'opledger.operation_id',
      'opledger.outcome',
      'opledger.shard',
      'opledger.step',
      'opledger.type',
    ])
  })
})
