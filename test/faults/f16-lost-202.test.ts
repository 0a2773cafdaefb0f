import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { faultTest } from './harness/fault.ts'
import { openStack, type Stack } from './harness/stack.ts'

let stack: Stack
beforeAll(async () => {
  stack = await openStack({ apis: 1, workers: 1, random: seededRandom(1) })
})
afterAll(() => stack.close())

faultTest(
  'F16',
  'an api is killed around the commit of a POST: the client that repeats gets one operation',
  { short: 6, long: 100 },
  (fault) =>
    fault.each(async ({ index, seed }) => {
      const point = index % 2 === 0 ? 'submission-checked' : 'submission-committed'
      const key = `f16-${seed}`
      const trap = await stack.probes.arm({ point, matches: () => true, action: { kind: 'kill' } })
      const submission = { type: 'fault-grant', key, items: [{ key: `${key}-0`, input: { mode: 'ok' } }] }
      const id = await stack.client.submit(submission)
      await trap.hit
      expect(await stack.client.submit(submission)).toBe(id)
      const [stored] = await stack.sql<{ n: number }[]>`
      select count(*)::int as n from operations where idempotency_key = ${key}`
      expect(stored?.n).toBe(1)
    }),
)
