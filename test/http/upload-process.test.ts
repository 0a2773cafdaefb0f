/** Uploads to a real api process: what they cost it in memory, and what is left when it is killed. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseId } from '../../src/domain/ids.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/processes.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

const ROWS = 300_000
const ROWS_PER_WRITE = 1_000
/** As objects the rows would take some 200 MB. */
const GROWTH_MAX_MB = 100

const NDJSON = { 'content-type': 'application/x-ndjson' }

const ROW = '{"key":"user:1","input":{}}'

const typeFile = writeTypeFile([grantType('grant')])
let testDatabase: TestDatabase
let api: ApiProcess
const start = () =>
  startApi({
    databaseUrl: testDatabase.url,
    typeFiles: [typeFile.file],
    env: { EFFECTS_URL: 'http://127.0.0.1:1' },
  })
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  api = await start()
})
afterAll(async () => {
  await api.kill()
  await testDatabase.drop()
  typeFile.remove()
})

function* rows(): Generator<string> {
  for (let from = 0; from < ROWS; from += ROWS_PER_WRITE) {
    yield Array.from(
      { length: ROWS_PER_WRITE },
      (_, n) => `{"key":"user:${from + n}","input":{"mode":"ok","target":"t-${from + n}"}}\n`,
    ).join('')
  }
}

const memoryMb = (field: 'VmRSS' | 'VmHWM'): number => {
  const status = readFileSync(`/proc/${api.child.pid}/status`, 'utf8')
  return Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(status)?.[1]) / 1024
}

const draft = async (): Promise<string> => {
  const created = await fetch(`${api.url}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ type: 'grant', draft: true }),
  })
  return ((await created.json()) as { id: string }).id
}
const openUpload = (id: string) => httpRequest(`${api.url}/operations/${id}/items`, { method: 'POST', headers: NDJSON })

test.runIf(process.platform === 'linux')(
  '300,000 rows leave the memory of the api as it was',
  async () => {
    const upload = openUpload(await draft())
    const before = memoryMb('VmRSS')
    const [[response]] = (await Promise.all([once(upload, 'response'), pipeline(Readable.from(rows()), upload)])) as [
      [IncomingMessage],
      unknown,
    ]
    expect(response.statusCode).toBe(200)
    expect(JSON.parse(String(await response.toArray().then((chunks) => Buffer.concat(chunks))))).toEqual({
      added: ROWS,
      total: ROWS,
    })
    expect(memoryMb('VmHWM') - before).toBeLessThan(GROWTH_MAX_MB)
  },
  240_000,
)

test('an api that is killed in the middle of an upload has added nothing, and the next upload finds its place', async () => {
  const id = await draft()
  const upload = openUpload(id)
  upload.on('error', () => {})
  upload.write(Array.from({ length: 6_000 }, (_, n) => `{"key":"user:${n}","input":{}}\n`).join(''))
  const sql = postgres(testDatabase.url, { max: 1, onnotice: () => {} })
  const stored = async () => sql`select item_key from operation_items where operation_id = ${parseId('op', id)}`
  await until('its first chunk is stored', async () => (await stored()).length > 0)
  await api.kill()
  api = await start()

  const send = () => fetch(`${api.url}/operations/${id}/items`, { method: 'POST', headers: NDJSON, body: ROW })
  expect((await send()).status).toBe(409)
  await sql`update operation_uploads set last_seen_at = now() - interval '31 seconds' where state = 'live'`
  expect(await (await send()).json()).toEqual({ added: 1, total: 1 })
  expect(await stored()).toEqual([{ item_key: 'user:1' }])
  await sql.end()
})
