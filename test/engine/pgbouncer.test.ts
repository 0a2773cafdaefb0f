/**
 * Api and workers behind a PgBouncer in transaction mode, which does not know prepared statements: a connection to the server
 * belongs to a client for one transaction only. Wake-ups listen straight at the server. deploy/database.md says how.
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { parseId } from '../../src/domain/ids.ts'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { openWakeUps, type WakeUp } from '../../src/storage/wake-ups.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { DOWNLOAD_SECRET } from '../support/artifacts.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { missingPgbouncer, type Pgbouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { until } from '../support/processes.ts'
import { eventually, expectConserved, PROCESSES_MS } from '../support/service.ts'
import { artifactTypeFile } from '../support/service-artifact-type.ts'
import { importTypeFile } from '../support/service-import-type.ts'
import { grantLookup, grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

/** For an api with 12 connections and two workers with 22 each. */
const POOL = 4
const missing = missingPgbouncer()
const artifacts = mkdtempSync(path.join(os.tmpdir(), 'opledger-bouncer-'))
const file = writeTypeFile([grantType('grant', {}, { lookup: grantLookup(100), on_absent: 'retry' })])

let testDatabase: TestDatabase
let bouncer: Pgbouncer
let database: Database
let effects: EffectServer
let api: ApiProcess
let fleet: WorkerFleet
/** What every process was told, straight from the server. */
let listener: postgres.Sql
const told = new Set<string>()

beforeAll(async () => {
  if (missing !== null) return
  testDatabase = await createTestDatabase()
  bouncer = await startPgbouncer(testDatabase.url, POOL)
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'facts' })
  listener = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
  await listener.listen('opledger', (payload) => {
    for (const kind of payload.split(',')) told.add(kind)
  })
  effects = await startEffectServer()
  const options = {
    databaseUrl: bouncer.url,
    typeFiles: [file.file, importTypeFile, artifactTypeFile],
    env: {
      DATABASE_PREPARE: 'off',
      OPLEDGER_DIRECT_DATABASE_URL: testDatabase.url,
      OPLEDGER_ARTIFACT_STORE: `file:${artifacts}`,
      OPLEDGER_DOWNLOAD_SECRET: DOWNLOAD_SECRET,
      EFFECTS_URL: effects.url,
    },
  }
  fleet = openWorkerFleet(options)
  ;[api] = await Promise.all([startApi(options), fleet.start(), fleet.start()])
}, 2 * PROCESSES_MS)
afterAll(async () => {
  await fleet?.stop()
  await api?.kill()
  await effects?.close()
  await listener?.end()
  await database?.close()
  await bouncer?.stop()
  await testDatabase?.drop()
  file.remove()
  rmSync(artifacts, { recursive: true, force: true })
})
beforeEach((context) => {
  if (missing !== null) context.skip(missing)
  told.clear()
})

interface Operation {
  id: string
  status: string
  version: number
  counts: Record<string, number>
  cancel: { acknowledged_at: string | null }
}
const call = async (method: string, url: string, body?: object): Promise<{ status: number; body: Operation }> => {
  const answer = await fetch(`${api.url}${url}`, {
    method,
    headers: { 'content-type': 'application/json', 'idempotency-key': randomUUID() },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: (await answer.json()) as Operation }
}
const submit = async (body: object): Promise<string> => {
  const answer = await call('POST', '/operations', body)
  expect(answer.status, JSON.stringify(answer.body)).toBe(202)
  return answer.body.id
}
const view = async (id: string): Promise<Operation> => (await call('GET', `/operations/${id}`)).body
const reach = async (id: string, ...statuses: string[]): Promise<Operation> => {
  let seen = await view(id)
  await eventually(`${id} is ${statuses.join(' or ')}`, async () => {
    seen = await view(id)
    return statuses.includes(seen.status)
  }).catch((error: unknown) => {
    throw new Error(`${error}; it is ${JSON.stringify(seen)}; ${api.output()} ${bouncer.output().slice(-2_000)}`)
  })
  return seen
}
const conserved = (id: string): Promise<void> => expectConserved({ database }, parseId('op', id) ?? '')
const grants = (name: string, count: number, input: object = {}) =>
  Array.from({ length: count }, (_, n) => ({ key: `${name}-${n}`, input }))

describe('behind a PgBouncer in transaction mode', { timeout: 2 * PROCESSES_MS }, () => {
  test('an external operation runs, with a retry and a doubt that a lookup closes; each effect is made once', async () => {
    const items = [
      ...grants('plain', 10),
      { key: 'again', input: { mode: 'busy_once' } },
      { key: 'doubt', input: { mode: 'apply_then_reset' } },
    ]
    const id = await submit({ type: 'grant', items })
    expect((await reach(id, 'succeeded')).counts).toMatchObject({ total: 12, applied: 12 })
    for (const { key } of items) expect(effects.entry(`grant:${key}`).applied, key).toBe(1)
    await conserved(id)
  })

  test('so does a transactional one, and one that makes an artifact', async () => {
    const places = Array.from({ length: 300 }, (_, n) => ({
      key: `p${n}`,
      input: { name: `Place ${n}`, country: 'DE', lat: n / 10, lng: 0 },
    }))
    const ids = [
      await submit({ type: 'example-import', items: places }),
      await submit({ type: 'report', input: { chunks: 5 } }),
    ]
    for (const id of ids) {
      await reach(id, 'succeeded')
      await conserved(id)
    }
    const [row] = await database.query(({ sql }) => sql<{ n: number }>`select count(*)::int as n from example_places`)
    expect(row?.n).toBe(300)
  })

  test('a pause stops at the checkpoint and goes on there; a cancel is acknowledged, and nothing is sent after it', async () => {
    const [paused, cancelled] = [
      await submit({ type: 'grant', items: grants('paused', 100, { delay_ms: 100 }) }),
      await submit({ type: 'grant', items: grants('cancelled', 200, { delay_ms: 100 }) }),
    ]
    for (const id of [paused, cancelled]) {
      await eventually(`${id} has something in flight`, async () => ((await view(id)).counts.in_flight ?? 0) > 0)
    }
    await call('POST', `/operations/${paused}/pause`, {})
    expect((await call('POST', `/operations/${cancelled}/cancel`, {})).status).toBe(202)
    await eventually('it is acknowledged', async () => (await view(cancelled)).cancel.acknowledged_at !== null)
    const sent = () => Object.keys(effects.entries()).filter((key) => key.startsWith('grant:cancelled-')).length
    const before = sent()
    expect((await reach(cancelled, 'cancelled')).counts.unprocessed).toBeGreaterThan(0)
    expect(sent()).toBe(before)
    await reach(paused, 'paused')
    await call('POST', `/operations/${paused}/resume`, {})
    expect((await reach(paused, 'succeeded')).counts.applied).toBe(100)
    for (const { key } of grants('paused', 100)) expect(effects.entry(`grant:${key}`)).toMatchObject({ requests: 1 })
    for (const id of [paused, cancelled]) await conserved(id)
    // both went out through the pooler
    expect([...told]).toEqual(expect.arrayContaining(['work', 'stop', 'change']))
  })

  test('all that goes on on so few connections, and listening on one more a process', async () => {
    const [row] = await database.query(
      ({ sql }) => sql<{ pooled: number; listening: number }>`
        select count(*) filter (where query not ilike 'listen%' and application_name like 'opledger %')::int as pooled,
          count(*) filter (where query ilike 'listen "opledger"' and application_name like 'opledger % wake-ups')::int as listening
        from pg_stat_activity where datname = current_database()`,
    )
    expect(row?.listening).toBe(3)
    expect(row?.pooled).toBeLessThanOrEqual(POOL)
  })

  test('many at once: 300 operations through four connections', async () => {
    const ids = await Promise.all(
      Array.from({ length: 300 }, (_, n) => submit({ type: 'grant', items: grants(`many-${n}`, 1) })),
    )
    for (const id of ids) await reach(id, 'succeeded')
    for (const key of Object.keys(effects.entries()).filter((name) => name.startsWith('grant:many-'))) {
      expect(effects.entry(key), key).toMatchObject({ requests: 1, applied: 1 })
    }
  })

  test('the schema is brought up through it too, where nothing has to be', async () => {
    expect(await migrate({ url: bouncer.url })).toEqual({ applied: 0 })
  })

  test('who listens straight hears what is told through it', async () => {
    const heard: WakeUp[] = []
    const sender = openWakeUps({ url: bouncer.url, name: 'sender', onFault: () => {}, listenUrl: testDatabase.url })
    const hearer = openWakeUps({ url: bouncer.url, name: 'hearer', onFault: () => {}, listenUrl: testDatabase.url })
    hearer.on('work', () => heard.push('work'))
    try {
      // a listener is called once when it begins to listen
      await until('it listens', () => heard.length > 0)
      heard.length = 0
      sender.send('work')
      await until('it was told', () => heard.length > 0)
    } finally {
      await sender.close()
      await hearer.close()
    }
  })
})
