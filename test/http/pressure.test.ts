/** What a process under pressure still answers. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatId } from '../../src/domain/ids.ts'
import { LOOP_DELAY_LAST_MS_MAX, LOOP_DELAY_MS_MAX } from '../../src/http/limits.ts'
import { Pressure } from '../../src/http/pressure.ts'
import { type Edge, openEdge } from './fake-services.ts'

const pressure = new Pressure()
let edge: Edge
let operation: string
beforeAll(async () => {
  edge = await openEdge({}, undefined, { pressure })
  operation = `/operations/${formatId('op', edge.fake.add().id)}`
})
afterAll(() => edge.app.close())

const put = (loopDelayMs: number): void => {
  for (const _ of [1, 2]) pressure.look({ loopDelayMs, heapShare: 0, queueMs: 0 })
}
const ask = async (method: 'GET' | 'POST', url: string, payload?: object) => {
  const answer = await edge.app.inject({ method, url, ...(payload && { payload }) })
  return answer
}
const isRefused = async (method: 'GET' | 'POST', url: string): Promise<boolean> => {
  const answer = await ask(method, url, method === 'POST' && !url.endsWith('/cancel') ? {} : undefined)
  if (answer.statusCode !== 503) return false
  expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
  expect(answer.json().code).toBe('overloaded')
  return true
}

const ALWAYS = ['GET /livez', 'GET /readyz', 'GET /metrics']
const LAST = [
  'POST OP/cancel',
  'POST OP/pause',
  'POST /worker/heartbeat',
  'POST /worker/results',
  'POST /worker/give-back',
  'POST /callbacks/t',
  'POST /operation-types/t/pause',
  'POST /bulk-actions/bulk_0/abort',
]
const FIRST = [
  'GET /operations',
  'GET OP',
  'POST /operations',
  'POST /worker/claims',
  'GET /workers',
  'GET /openapi.json',
]
const refused = async (routes: string[]): Promise<string[]> => {
  const found: string[] = []
  for (const route of routes) {
    const [method = '', path = ''] = route.split(' ')
    if (await isRefused(method as 'GET', path.replace('OP', operation))) found.push(route)
  }
  return found
}

describe('a process', () => {
  it.each([
    ['that is calm answers everybody', LOOP_DELAY_MS_MAX, []],
    ['that is strained refuses most', LOOP_DELAY_MS_MAX + 1, FIRST],
    ['that drowns refuses all but probes and metrics', LOOP_DELAY_LAST_MS_MAX + 1, [...FIRST, ...LAST]],
    ['that is calm again answers again', 0, []],
  ])('%s', async (_what, delayMs, expected) => {
    put(delayMs)
    expect(await refused([...FIRST, ...LAST, ...ALWAYS])).toEqual(expected)
  })

  it('asks nobody who they are before it refuses', async () => {
    put(LOOP_DELAY_LAST_MS_MAX + 1)
    edge.fake.calls.length = 0
    expect(await isRefused('GET', '/operations')).toBe(true)
    expect(edge.fake.calls).toEqual([])
    put(0)
  })
})
