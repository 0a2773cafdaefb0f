/** A thousand clients that wait for a change, and an api that has three connections to the database for all of them. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import postgres from 'postgres'
import { Agent, request } from 'undici'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/processes.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

const CLIENTS = 1_000
const OPERATIONS = 20
const POOL = 3
/** Besides the pool: one that listens for wake-ups, one that sends them. */
const OWN_CONNECTIONS = 2

const types = writeTypeFile([grantType('grant')])
let database: TestDatabase
let admin: postgres.Sql
let api: ApiProcess

beforeAll(async () => {
  database = await createTestDatabase()
  admin = postgres(database.url, { max: 1, onnotice: () => {}, connection: { application_name: 'admin' } })
  const env = { EFFECTS_URL: 'http://127.0.0.1:9', DATABASE_POOL: String(POOL) }
  api = await startApi({ databaseUrl: database.url, typeFiles: [types.file], env })
})
afterAll(async () => {
  await api?.kill()
  await admin?.end()
  await database?.drop()
  types.remove()
})

interface Seen {
  id: string
  etag: string
}

const submit = async (key: string): Promise<Seen> => {
  const response = await fetch(`${api.url}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ type: 'grant', items: [{ key, input: {} }] }),
  })
  const { id } = (await response.json()) as { id: string }
  return { id, etag: response.headers.get('etag') ?? '' }
}

const connections = async (): Promise<number> =>
  (
    await admin`select 1 from pg_stat_activity
      where datname = current_database() and application_name like 'opledger api%'`
  ).length

it('holds no connection for a client that waits, answers others meanwhile, and then tells all of them', async () => {
  const operations = await Promise.all(Array.from({ length: OPERATIONS }, (_, index) => submit(`key-${index}`)))
  let sent = 0
  const onSent = (): void => void sent++
  subscribe('undici:client:sendHeaders', onSent)
  const agent = new Agent()
  const waiting = Array.from({ length: CLIENTS }, async (_, index) => {
    const { id, etag } = operations[index % OPERATIONS] as Seen
    const headers = { prefer: 'wait=60', 'if-none-match': etag }
    const answer = await request(`${api.url}/operations/${id}`, { headers, dispatcher: agent })
    const { status } = (await answer.body.json()) as { status: string }
    return [answer.statusCode, answer.headers['preference-applied'], status].join(' ')
  })
  await until('all of them have asked', () => sent >= CLIENTS)
  unsubscribe('undici:client:sendHeaders', onSent)
  expect(await connections()).toBeLessThanOrEqual(POOL + OWN_CONNECTIONS)
  expect((await fetch(`${api.url}/operations?limit=1`)).status).toBe(200)
  for (const { id } of operations) {
    const cancelled = await fetch(`${api.url}/operations/${id}/cancel`, { method: 'POST' })
    expect(cancelled.status).toBe(200)
  }
  const answers = await Promise.all(waiting)
  await agent.close()
  expect(answers).toHaveLength(CLIENTS)
  // a cancel is stored first, and takes effect right behind it: whoever looks in between sees that
  for (const answer of new Set(answers)) expect(answer).toMatch(/^200 wait=60 cancel(_requested|led)$/)
})
