/** A real api process whose database goes away, comes back, kills sessions, or is slow; and one that is told to stop. */
import { once } from 'node:events'
import { Agent, get as httpGet, request as httpRequest, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { waitForExit } from '../support/processes.ts'
import { eventually } from '../support/service.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openPausingProxy } from '../support/pausing-proxy.ts'
import { openTcpProxy } from '../support/tcp-proxy.ts'

/** 5 s are promised; the rest is air for a busy machine, as in the deadline of a request. */
const RECOVERY_MS = 15_000
const DEADLINE_MS = 45_000
const SUBMISSION = JSON.stringify({ type: 'grant', items: [{ key: 'a', input: {} }] })

const types = writeTypeFile([grantType('grant')])
let database: TestDatabase
/** A session besides the api: it kills, locks, and reads what really happened. */
let admin: postgres.Sql
let apis: ApiProcess[] = []

beforeAll(async () => {
  database = await createTestDatabase()
  admin = postgres(database.url, { max: 3, onnotice: () => {}, connection: { application_name: 'admin' } })
})
afterEach(async () => {
  for (const api of apis) await api.kill()
  apis = []
})
afterAll(async () => {
  await admin.end()
  await database.drop()
  types.remove()
})

const start = async (env: Record<string, string> = {}, databaseUrl = database.url): Promise<ApiProcess> => {
  const api = await startApi({
    databaseUrl,
    typeFiles: [types.file],
    env: { EFFECTS_URL: 'http://127.0.0.1:9', ...env },
  })
  apis.push(api)
  return api
}

interface Answer {
  status: number
  headers: Headers
  body: { code?: string; id?: string; items?: unknown[]; checks?: unknown[] }
  ms: number
}

const ask = async (api: ApiProcess, path: string, init: RequestInit = {}): Promise<Answer> => {
  const startedAt = performance.now()
  const response = await fetch(`${api.url}${path}`, { signal: AbortSignal.timeout(60_000), ...init })
  const text = await response.text()
  return {
    status: response.status,
    headers: response.headers,
    body: /json/.test(response.headers.get('content-type') ?? '') ? JSON.parse(text) : {},
    ms: performance.now() - startedAt,
  }
}
const submit = (api: ApiProcess, headers: Record<string, string> = {}) =>
  ask(api, '/operations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: SUBMISSION,
  })
const exists = async (id: string | undefined): Promise<boolean> =>
  (await admin`select 1 from operations where id = ${(id ?? '').replace('op_', '')}::uuid`).length === 1

/** One of each kind of request that needs the database. */
const askAll = (api: ApiProcess): Promise<Answer[]> =>
  Promise.all([
    ask(api, '/operations'),
    submit(api),
    ask(api, `/operations/op_${'0'.repeat(32)}/cancel`, { method: 'POST' }),
    ask(api, `/operations/op_${'0'.repeat(32)}`),
    ask(api, '/health-report'),
  ])

const expectUnavailable = async (api: ApiProcess): Promise<void> => {
  for (const answer of await askAll(api)) {
    expect(answer).toMatchObject({
      status: 503,
      body: { code: expect.stringMatching(/database-unavailable|overloaded/) },
    })
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(answer.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect(answer.ms).toBeLessThan(DEADLINE_MS)
  }
  const ready = await ask(api, '/readyz')
  expect(ready).toMatchObject({ status: 503, body: { code: 'not-ready', checks: [{ name: 'database', ok: false }] } })
  expect((await ask(api, '/livez')).status).toBe(200)
  expect((await ask(api, '/metrics')).status).toBe(200)
}

const expectRecovered = async (api: ApiProcess): Promise<void> => {
  await eventually('the api is ready again', async () => (await ask(api, '/readyz')).status === 200, {
    withinMs: RECOVERY_MS,
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}; it printed ${api.output().slice(-2_000)}`)
  })
  // what was cut before it was used is thrown away by the first that meets it
  await eventually('a submission is accepted again', async () => (await submit(api)).status === 202, {
    withinMs: RECOVERY_MS,
  })
  expect((await askAll(api)).map(({ status }) => status)).toEqual([200, 202, 404, 404, 200])
  expect(api.isRunning()).toBe(true)
}

describe('quiet', () => {
  // F6
  it('is told as 503 within the deadline also when it only went quiet', async () => {
    const proxy = await openPausingProxy(database.url)
    try {
      const api = await start({}, proxy.url)
      await expectRecovered(api)
      proxy.pause()
      console.log((await askAll(api)).map(a=>[a.status,a.body.code,Math.round(a.ms)])); await expectUnavailable(api)
      proxy.resume()
      await expectRecovered(api)
    } finally {
      await proxy.close()
    }
  }, 180_000)
})
