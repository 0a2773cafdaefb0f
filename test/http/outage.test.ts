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
import { openTcpProxy } from '../support/tcp-proxy.ts'

/** 5 s are promised; the rest is air for a busy machine, as in the deadline of a request. */
const RECOVERY_MS = 15_000
const DEADLINE_MS = 20_000
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

describe('a database that cannot be reached', () => {
  it('is told as 503 and found again without a restart', async () => {
    const proxy = await openTcpProxy(database.url, () => 'pass')
    try {
      const api = await start({}, proxy.url)
      await expectRecovered(api)
      await proxy.refuse()
      // connections that were cut are met once each
      await askAll(api)
      await expectUnavailable(api)
      await proxy.accept()
      await expectRecovered(api)
    } finally {
      await proxy.close()
    }
  })
})

// F7
it('lives while its sessions are killed under load, loses nothing that it accepted, and recovers (case 91)', async () => {
  const api = await start()
  await expectRecovered(api)
  const until = performance.now() + 4_000
  const killer = (async () => {
    while (performance.now() < until) {
      await admin`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'opledger api%' and random() < 0.5`
      await sleep(50)
    }
  })()
  const statuses = new Map<number, number>()
  const accepted: (string | undefined)[] = []
  const client = async (): Promise<void> => {
    while (performance.now() < until) {
      const answer = await submit(api)
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
      if (answer.status === 202) accepted.push(answer.body.id)
      const read = await ask(api, '/operations?limit=1')
      statuses.set(read.status, (statuses.get(read.status) ?? 0) + 1)
    }
  }
  await Promise.all([killer, ...Array.from({ length: 6 }, client)])
  for (const status of statuses.keys()) expect([200, 202, 503]).toContain(status)
  expect(accepted.length).toBeGreaterThan(0)
  await expectRecovered(api)
  for (const id of accepted) expect(await exists(id)).toBe(true)
  expect(api.output()).not.toMatch(/unhandled|TypeError/i)
})

// F23
it('two connections, 200 clients and a slow statement: everybody is answered, and nothing left open (case 95)', async () => {
  const api = await start({ DATABASE_POOL: '2' })
  await expectRecovered(api)
  const { body } = await submit(api)
  const locker = await admin.reserve()
  await locker`begin`
  await locker`lock table operations in access exclusive mode`
  const asked = Array.from({ length: 200 }, (_, i) => {
    if (i % 4 === 0) return submit(api)
    if (i % 4 === 1) return ask(api, `/operations/${body.id}`)
    return i % 4 === 2 ? ask(api, '/operations') : ask(api, `/operations/${body.id}/cancel`, { method: 'POST' })
  })
  await sleep(7_000) // longer than anybody waits for a connection
  expect((await ask(api, '/livez')).status).toBe(200)
  await locker`commit`
  locker.release()
  const answers = await Promise.all(asked)
  const statuses = new Set(answers.map(({ status }) => status))
  for (const status of statuses) expect([200, 202, 503]).toContain(status)
  expect(statuses.has(503)).toBe(true)
  for (const { status, headers, ms } of answers) {
    expect(ms).toBeLessThan(DEADLINE_MS)
    if (status === 503) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
  }
  const open = await admin`
    select query from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`
  expect(open).toEqual([])
  await expectRecovered(api)
})

describe('SIGTERM', () => {
  it('under load: not ready first, then a grace in which everything is served, and no request fails (case 85)', async () => {
    const api = await start()
    await expectRecovered(api)
    // a load balancer that looks each second and sends nothing to what is not ready
    let inRotation = true
    const probing = (async () => {
      while (inRotation) {
        await sleep(1_000)
        inRotation = await ask(api, '/readyz').then(
          ({ status }) => status === 200,
          () => false,
        )
      }
    })()
    const agent = new Agent({ keepAlive: true, maxSockets: 10 })
    const results: { status: number; id: string | undefined }[] = []
    const failures: unknown[] = []
    const client = async (): Promise<void> => {
      while (inRotation) {
        await postWith(agent, api).then(
          (result) => results.push(result),
          (error: unknown) => failures.push(error),
        )
        await sleep(100)
      }
    }
    const clients = Array.from({ length: 5 }, client)
    await sleep(500)
    // waits for a change that nobody makes
    const polled = postWith(agent, api).then(({ id }) =>
      ask(api, `/operations/${id}`, { headers: { prefer: 'wait=60' } }),
    )
    await sleep(200)
    api.child.kill('SIGTERM')
    await eventually('it says that it is not ready', async () => {
      const { status, body } = await ask(api, '/readyz')
      return status === 503 && body.code === 'shutting-down'
    })
    await Promise.all([probing, ...clients])
    expect(failures).toEqual([])
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set([202]))
    expect((await polled).status).toBe(200)
    expect(await waitForExit(api.child)).toEqual({ code: 0, signal: null })
    for (const { id } of results) expect(await exists(id)).toBe(true)
    agent.destroy()
  })

  it('does not wait for a download that nobody reads', async () => {
    const api = await start()
    const items = Array.from({ length: 10_000 }, (_, i) => ({ key: `${i}-`.padEnd(255, 'k'), input: {} }))
    const { body } = await ask(api, '/operations', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ type: 'grant', items }),
    })
    const download = httpGet(`${api.url}/operations/${body.id}/items`, { headers: { accept: 'application/x-ndjson' } })
    download.on('error', () => {})
    const [answer] = (await once(download, 'response')) as [IncomingMessage]
    expect(answer.statusCode).toBe(200)
    api.child.kill('SIGTERM')
    expect(await waitForExit(api.child)).toEqual({ code: 0, signal: null })
    expect(answer.complete).toBe(false)
    download.destroy()
  })
})

const postWith = async (agent: Agent, api: ApiProcess): Promise<{ status: number; id: string | undefined }> => {
  const request = httpRequest(`${api.url}/operations`, {
    agent,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(SUBMISSION) },
  })
  request.end(SUBMISSION)
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  let text = ''
  for await (const chunk of answer.setEncoding('utf8')) text += chunk
  return { status: answer.statusCode ?? 0, id: JSON.parse(text).id }
}
