/** What an upload costs the api in memory: as much for many rows as for few. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'

const ROWS = 300_000
const ROWS_PER_WRITE = 1_000
/** As objects the rows would take some 200 MB. */
const GROWTH_MAX_MB = 100

const typeFile = writeTypeFile([grantType('grant')])
let testDatabase: TestDatabase
let api: ApiProcess
beforeAll(async () => {
  testDatabase = await createTestDatabase()
  api = await startApi({
    databaseUrl: testDatabase.url,
    typeFiles: [typeFile.file],
    env: { EFFECTS_URL: 'http://127.0.0.1:1' },
  })
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

test.runIf(process.platform === 'linux')(
  '300,000 rows leave the memory of the api as it was',
  async () => {
    const created = await fetch(`${api.url}/operations`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ type: 'grant', draft: true }),
    })
    const { id } = (await created.json()) as { id: string }
    const before = memoryMb('VmRSS')
    const upload = httpRequest(`${api.url}/operations/${id}/items`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-ndjson' },
    })
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
