/**
 * A call that still waits for its connection when the cancel is acknowledged: its provider never sees it. All connections to
 * the provider are held by another operation here; once they are free again, what waited for one has its turn.
 */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { loadOperationTypes } from '../../src/operation-types/registry.ts'
import { ledgerSource } from '../../src/services/ledger-source.ts'
import {
  eventually,
  expectConserved,
  openTestService,
  PROCESSES_MS,
  principal,
  type TestService,
  untilStatus,
} from '../support/service.ts'
import { startTestEngine, type TestEngine } from '../support/service-engine.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

/** Of CONNECTIONS_MAX in src/operation-types/outbound.ts. */
const CONNECTIONS = 512
const ITEMS = 400
/** Nothing here waits for a call's time to be over. */
const request = { url: '{env.EFFECTS_URL}/grants', headers: { 'Idempotency-Key': '{effect_key}' }, timeout_ms: 120_000 }
const file = writeTypeFile([
  grantType('grant', { concurrency: ITEMS, lease_seconds: 300, stall_ms: 300_000 }, { request }),
])

/** A provider that keeps every request until it is told to answer. */
const openPatientProvider = async () => {
  const keys: string[] = []
  let waiting: http.ServerResponse[] = []
  let isOpen = false
  const server = http.createServer((incoming, response) => {
    keys.push(String(incoming.headers['idempotency-key']))
    incoming.resume()
    if (isOpen) response.writeHead(201).end('{}')
    else waiting.push(response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    keys,
    answerAll() {
      isOpen = true
      for (const response of waiting) response.writeHead(201).end('{}')
      waiting = []
    },
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

let provider: Awaited<ReturnType<typeof openPatientProvider>>
let service: TestService
let engine: TestEngine
beforeAll(async () => {
  provider = await openPatientProvider()
  const env = { EFFECTS_URL: provider.url }
  service = await openTestService({ typeFiles: [file.file], env })
  const registry = await loadOperationTypes({
    paths: [file.file],
    env,
    secrets: () => undefined,
    ledger: ledgerSource(service.database),
  })
  engine = await startTestEngine({ url: service.url, types: registry.list() })
})
afterAll(async () => {
  provider.answerAll()
  await engine.drain()
  await service.close()
  await provider.close()
  file.remove()
})

const keys = (prefix: string) => Array.from({ length: ITEMS }, (_, i) => ({ key: `${prefix}-${i}` }))

it('a call that waits for a connection is not begun after the cancel was acknowledged', {
  timeout: PROCESSES_MS,
}, async () => {
  const first = await service.submit('grant', keys('first'))
  await eventually('the first ones are there', () => provider.keys.length === ITEMS)
  const second = await service.submit('grant', keys('second'))
  await eventually('all connections are taken', () => provider.keys.length === CONNECTIONS)
  await eventually('the rest waits', async () => (await service.view(second.id)).counts.inFlight === ITEMS)

  await service.services.cancelOperation(principal, second.id, { reason: null, ifMatchVersion: null })
  await eventually('it was acknowledged', async () => (await service.view(second.id)).cancel.acknowledgedAt !== null)
  expect(provider.keys).toHaveLength(CONNECTIONS)
  provider.answerAll()

  expect((await untilStatus(service, first.id, 'succeeded')).counts.applied).toBe(ITEMS)
  const begun = CONNECTIONS - ITEMS
  const view = await untilStatus(service, second.id, ['cancelled', 'completed_after_cancel'])
  expect(view.counts).toMatchObject({ applied: begun, unprocessed: ITEMS - begun, inFlight: 0, uncertain: 0 })
  expect(provider.keys).toHaveLength(CONNECTIONS)
  const effects = await service.database.query(
    ({ sql }) => sql<{ state: string; n: number }>`
      select state, count(*)::int as n from effects where operation_id = ${second.id}::uuid group by 1 order by 1`,
  )
  expect(effects).toEqual([
    { state: 'absent', n: ITEMS - begun },
    { state: 'applied', n: begun },
  ])
  expect((await service.ledger(second.id)).length).toBe(begun)
  await expectConserved(service, second.id)
})
