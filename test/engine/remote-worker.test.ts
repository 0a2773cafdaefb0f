import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ApiProcess, startApi } from '../support/api-process.ts'
import { type EffectServer, startEffectServer } from '../support/effect-server.ts'
import { waitForExit, waitForLine } from '../support/processes.ts'
import {
  expectConserved,
  openTestService,
  PROCESSES_MS,
  type TestItem,
  type TestService,
  untilStatus,
} from '../support/service.ts'

/** examples/worker/worker.py against a real api and a provider: a program in another language, killed in the middle. */
const EXAMPLE = fileURLToPath(new URL('../../examples/worker/', import.meta.url))
const BATCH = 4
/** Long enough for a kill, short enough for the worker's timeout. */
const DELAY_MS = 250

let service: TestService
let api: ApiProcess
let provider: EffectServer
const workers = new Set<ChildProcess>()

beforeAll(async () => {
  const typeFiles = [`${EXAMPLE}types.yaml`]
  service = await openTestService({ typeFiles })
  provider = await startEffectServer()
  api = await startApi({ databaseUrl: service.url, typeFiles })
}, PROCESSES_MS)
afterAll(async () => {
  for (const worker of workers) worker.kill('SIGKILL')
  await api.kill()
  await provider.close()
  await service.close()
})

const startWorker = async (): Promise<ChildProcess> => {
  const worker = spawn('python3', [`${EXAMPLE}worker.py`, api.url, `${provider.url}/grants`], {
    stdio: ['ignore', 'pipe', 'pipe'],
    // the system's Python first: a launcher before it would be what is killed
    env: { PATH: `/usr/bin:/bin:${process.env.PATH}`, HOME: process.env.HOME },
  })
  workers.add(worker)
  await waitForLine(worker, /^ready$/)
  return worker
}

const mails = (name: string, count: number, input: Record<string, number | string> = {}): TestItem[] =>
  Array.from({ length: count }, (_, n) => ({
    key: `${name}-${n}`,
    input: { to: `${name}-${n}@example.org`, ...input },
  }))

test(
  'a worker in Python that is killed in the middle leaves what it had in hand uncertain, and nothing is sent twice',
  async () => {
    const first = await startWorker()
    const seen = provider.requestsSeen(2)
    const slow = mails('killed', BATCH, { delay_ms: DELAY_MS })
    const { id } = await service.submit('welcome-mail', [...slow, ...mails('after', 6)])
    await seen
    first.kill('SIGKILL')
    await waitForExit(first)
    await startWorker()
    const view = await untilStatus(service, id, ['reconciliation_required', 'succeeded', 'partially_succeeded'])
    expect([view.status, view.counts]).toMatchObject([
      'reconciliation_required',
      { total: BATCH + 6, applied: 6, uncertain: BATCH, unprocessed: 0 },
    ])
    const items = await service.items(id)
    const log = provider.entries()
    expect(Math.max(...Object.values(log).map(({ requests }) => requests))).toBe(1)
    for (const { key } of slow) expect(items.get(key)?.state).toBe('uncertain')
    for (const [key, item] of items) {
      if (key.startsWith('after')) expect(log[item.effectKey ?? '']).toMatchObject({ requests: 1, applied: 1 })
    }
    expect((await service.cases(id)).map(({ cause }) => cause)).toEqual(Array(BATCH).fill('worker_lost'))
    await expectConserved(service, id)
  },
  PROCESSES_MS,
)

test(
  'one that is told to end finishes the item in the air, and gives the rest back as it was',
  async () => {
    for (const worker of workers) worker.kill('SIGKILL')
    const worker = await startWorker()
    const before = Object.keys(provider.entries()).length
    const requests = Object.values(provider.entries()).reduce((sum, entry) => sum + entry.requests, 0)
    const seen = provider.requestsSeen(requests + 1)
    const { id } = await service.submit('welcome-mail', mails('ended', 8, { delay_ms: DELAY_MS }))
    await seen
    worker.kill('SIGTERM')
    expect(await waitForExit(worker)).toMatchObject({ code: 0 })
    const view = await service.view(id)
    const sent = Object.keys(provider.entries()).length - before
    expect(view.counts).toMatchObject({ uncertain: 0, applied: sent, inFlight: 0, unprocessed: 8 - sent })
    await expectConserved(service, id)
    await startWorker()
    const done = await untilStatus(service, id, 'succeeded')
    expect(done.counts.applied).toBe(8)
    expect(Math.max(...Object.values(provider.entries()).map((entry) => entry.requests))).toBe(1)
  },
  PROCESSES_MS,
)

test(
  'answers of the provider become results, and what gets no answer is uncertain',
  async () => {
    const items = ['ok', 'reject', 'never_answer', 'error_before_apply'].map((mode) => ({
      key: `mode-${mode}`,
      input: { to: 'somebody', mode },
    }))
    const { id } = await service.submit('welcome-mail', items)
    await untilStatus(service, id, 'reconciliation_required')
    const states = [...(await service.items(id)).values()].map(({ key, state, failureClass }) => [
      key,
      state,
      failureClass,
    ])
    expect(states).toEqual([
      ['mode-ok', 'applied', null],
      ['mode-reject', 'failed', 'validation_rejected'],
      ['mode-never_answer', 'uncertain', 'ambiguous_effect'],
      ['mode-error_before_apply', 'uncertain', 'ambiguous_effect'],
    ])
  },
  PROCESSES_MS,
)
