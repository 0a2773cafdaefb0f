import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Answer } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { openJanitors } from './harness/janitors.ts'
import { openStack, type Stack } from './harness/stack.ts'

const CLIENTS = 100
const OLD_KEY_CLIENTS = 20
/** Of each client, once nothing is left but the summary. */
const POSTS_AFTER = 3

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: 1, random: seededRandom(14) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const rowsWith = async (key: string): Promise<string[]> => {
  const rows = await stack.sql<{ id: string }[]>`select id::text as id from operations where idempotency_key = ${key}`
  return rows.map(({ id }) => id)
}
const idsOf = (answers: readonly Answer[]): Set<unknown> => new Set(answers.map(({ body }) => body.id))
const atOnce = <T>(count: number, of: (index: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => of(index)))

faultTest('F14', '100 POSTs with one key at two apis: one row, one id, no 5xx', { short: 8, long: 50 }, (fault) =>
  fault.each(async ({ seed }) => {
    const key = `f14-${seed}`
    const submission = { type: 'fault-grant', key, items: [{ key, input: {} }] }
    const answers = await atOnce(CLIENTS, () => account.client.trySubmit(submission))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
    expect(idsOf(answers).size).toBe(1)
    expect(await rowsWith(key)).toHaveLength(1)
    const replayed = answers.filter(({ headers }) => headers['idempotent-replayed'] === 'true')
    expect(replayed).toHaveLength(CLIENTS - 1)
  }),
)

faultTest(
  'F15',
  'one key with other bodies at once: one of them is accepted, the others are refused with 422',
  { short: 8, long: 50 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f15-${seed}`
      const submissionOf = (index: number) => ({
        type: 'fault-grant',
        key,
        items: [{ key, input: { delay_ms: index % 4 } }],
      })
      const answers = await atOnce(20, (index) => account.client.trySubmit(submissionOf(index)))
      const accepted = answers.flatMap(({ status }, index) => (status === 202 ? [index % 4] : []))
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202, 422]))
      expect(new Set(accepted).size).toBe(1)
      expect(answers.filter(({ status }) => status === 202)).toHaveLength(5)
      for (const { status, body } of answers) if (status === 422) expect(body.code).toBe('idempotency-key-reused')
      expect(await rowsWith(key)).toHaveLength(1)
      await account.end()
    }),
)

faultTest(
  'F15',
  'one key with the members of the body in another order: the same operation',
  { short: 8, long: 50 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f15-order-${seed}`
      const call = (body: unknown) => account.client.tryCall('POST', '/operations', body, key)
      const item = { key, input: { mode: 'ok', delay_ms: 1 } }
      const bodies = [
        { type: 'fault-grant', reason: 'why', items: [item] },
        { items: [{ input: { delay_ms: 1, mode: 'ok' }, key }], reason: 'why', type: 'fault-grant' },
      ]
      const answers = await atOnce(20, (index) => call(bodies[index % 2]))
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
      expect(idsOf(answers).size).toBe(1)
      expect(await rowsWith(key)).toHaveLength(1)
      await account.end()
    }),
)

faultTest(
  'F15',
  'one key while retention takes all that it may of what the key names: the same operation, and its effect once',
  { short: 3, long: 20 },
  (fault) =>
    fault.each(async ({ seed }) => {
      const key = `f15-old-${seed}`
      const submission = { type: 'fault-grant', key, items: [{ key, input: {} }] }
      const id = await account.client.submit(submission)
      const janitors = openJanitors(stack, ['fault-grant'], () => [id])
      const answers: Answer[] = []
      let isGone = false
      const posting = async (): Promise<void> => {
        for (let after = 0; after < POSTS_AFTER; after += isGone ? 1 : 0) {
          answers.push(await account.client.trySubmit(submission))
        }
      }
      const clients = atOnce(OLD_KEY_CLIENTS, posting)
      try {
        await until(`${id} is gone but for its summary`, async () => {
          const { body } = await account.client.call('GET', `/operations/${id}`)
          return body.ledger_purged_at !== null
        })
      } finally {
        isGone = true
        await clients
        await janitors.stop()
      }
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
      expect(idsOf(answers)).toEqual(new Set([id]))
      expect(await rowsWith(key)).toHaveLength(1)
      expect((await stack.effects.idleLog())[key]).toMatchObject({ requests: 1, applied: 1 })
      await account.end()
    }),
)
