/** Progress as it is seen from outside: an event stream, and the cancel button of the examples, with a real api and worker. */
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { mount } from '../../examples/cancel-button/cancel-button.js'
import { choosePort } from '../../src/embedded/postmaster.ts'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { openPage, PARTS } from '../support/cancel-page.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { until, waitForExit, waitForLine } from '../support/processes.ts'
import { grantType, writeTypeFile } from '../support/service-types.ts'
import { openWorkerFleet, type WorkerFleet } from '../support/worker-process.ts'

const types = writeTypeFile([grantType('grant')])
let database: TestDatabase
let effects: EffectServer
let api: ApiProcess
let workers: WorkerFleet
let backend: ChildProcess
let backendUrl: string

const startBackend = async (): Promise<void> => {
  const port = await choosePort(null)
  const file = fileURLToPath(new URL('../../examples/cancel-button/serve.mjs', import.meta.url))
  const env = { PATH: process.env.PATH, PORT: String(port), OPLEDGER_URL: api.url }
  backend = spawn(process.execPath, [file], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  await waitForLine(backend, /^http:/)
  backendUrl = `http://127.0.0.1:${port}`
}

beforeAll(async () => {
  database = await createTestDatabase()
  effects = await startEffectServer()
  const process = { databaseUrl: database.url, typeFiles: [types.file], env: { EFFECTS_URL: effects.url } }
  workers = openWorkerFleet(process)
  ;[api] = await Promise.all([startApi(process), workers.start()])
  await startBackend()
})
afterAll(async () => {
  backend?.kill()
  if (backend) await waitForExit(backend)
  await workers?.stop()
  await api?.kill()
  await effects?.close()
  await database?.drop()
  types.remove()
})

/** Of `count` items, four at a time, each of which takes `delayMs`. */
const submit = async (name: string, count: number, delayMs: number): Promise<string> => {
  const items = Array.from({ length: count }, (_, index) => ({ key: `${name}-${index}`, input: { delay_ms: delayMs } }))
  const response = await fetch(`${api.url}/operations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ type: 'grant', items }),
  })
  return ((await response.json()) as { id: string }).id
}

interface Frame {
  id: string | null
  event: string | null
  data: { status: string } | null
}

const frameOf = (text: string): Frame => {
  const field = (name: string): string | null => new RegExp(`^${name}: (.*)$`, 'm').exec(text)?.[1] ?? null
  const data = field('data')
  return { id: field('id'), event: field('event'), data: data === null ? null : JSON.parse(data) }
}

/** The frames of a stream until its end, or until `isEnough`: then the client leaves. */
const readStream = async (
  id: string,
  lastId: string | null,
  isEnough: (frame: Frame) => boolean = () => false,
): Promise<Frame[]> => {
  const headers = { accept: 'text/event-stream', ...(lastId !== null && { 'last-event-id': lastId }) }
  const response = await fetch(`${api.url}/operations/${id}/events`, { headers })
  expect(response.status).toBe(200)
  const frames: Frame[] = []
  let rest = ''
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const parts = (rest + chunk).split('\n\n')
    rest = parts.pop() ?? ''
    frames.push(...parts.map(frameOf))
    if (frames.some(isEnough)) return frames
  }
  expect(rest).toBe('')
  return frames
}

const idsOf = (frames: readonly Frame[]): string[] => frames.flatMap(({ id }) => (id === null ? [] : [id]))

describe('the event stream', () => {
  it('is resumed behind what was seen, ends after the final state, and is then refused to whoever comes back', async () => {
    const id = await submit('told', 12, 200)
    const seen = idsOf(await readStream(id, null, (frame) => frame.id !== null))
    const resumed = await readStream(id, seen.at(-1) ?? '')
    const { items } = (await (await fetch(`${api.url}/operations/${id}/events`)).json()) as {
      items: { version: number }[]
    }
    expect([...seen, ...idsOf(resumed)]).toEqual(items.map(({ version }) => String(version)))
    expect(resumed.findLast(({ event }) => event === 'progress')?.data).toMatchObject({ status: 'succeeded' })
    const headers = { accept: 'text/event-stream', 'last-event-id': idsOf(resumed).at(-1) ?? '' }
    expect((await fetch(`${api.url}/operations/${id}/events`, { headers })).status).toBe(204)
  })
})

describe('the cancel button of the examples', () => {
  it('follows an operation through its own backend, cancels it, and says what became of it', async () => {
    const id = await submit('pressed', 400, 600)
    const page = openPage()
    const close = mount(page, `${backendUrl}/operations/${id}`)
    try {
      await until('it runs', () => page.dataset.status === 'running')
      expect(page.parts.button.hidden).toBe(false)
      expect(page.parts.promise.textContent).toMatch(/Nothing new is sent/)
      page.press()
      await until('it has stopped', () => page.dataset.status === 'cancelled')
    } finally {
      close()
    }
    expect(page.headlines.indexOf('Stopping, checking results')).toBeGreaterThan(page.headlines.indexOf('Running'))
    expect(page.headlines.at(-1)).toBe('Cancelled')
    expect(page.parts.detail.textContent).toMatch(/^(\d+ applied, )?\d+ not processed\. Check/)
    expect([page.parts.button.hidden, page.parts.promise.textContent, page.parts.trouble.textContent]).toEqual([
      true,
      '',
      '',
    ])
  })

  it('is a page whose parts are there, under a policy that lets nothing else in', async () => {
    const page = await fetch(backendUrl)
    expect(page.headers.get('content-security-policy')).toMatch(/^default-src 'self';/)
    const html = await page.text()
    const named = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, file]) => `${backendUrl}/${file}`)
    expect(named).toHaveLength(2)
    for (const url of [...named, `${backendUrl}/cancel-button.js`]) expect((await fetch(url)).status, url).toBe(200)
    for (const part of PARTS) expect(html).toContain(`data-part="${part}"`)
  })

  it('passes nothing on but a poll and a cancel', async () => {
    const id = await submit('private', 1, 0)
    for (const [method, path] of [
      ['GET', '/operations'],
      ['GET', `/operations/${id}/items`],
      ['POST', `/operations/${id}/pause`],
      ['POST', '/operations'],
    ]) {
      const response = await fetch(`${backendUrl}${path}`, { method: method ?? '' })
      expect([method, path, response.status]).toEqual([method, path, 404])
    }
  })
})
