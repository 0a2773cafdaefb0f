/**
 * An api is killed around the commit of what a client asked for. The client repeats, at another api too, and it has been done
 * once: one operation, one start, one cancel, one resolution.
 */
import { afterAll, beforeAll, expect } from 'vitest'
import type { ProbePoint } from '../../src/probe.ts'
import { until } from '../support/processes.ts'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import { isFinal } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'
import { ofKey, within } from './harness/traps.ts'

const WAIT_MS = 120_000

let stack: Stack
let account: Account
beforeAll(async () => {
  stack = await openStack({ apis: 2, workers: 1, random: seededRandom(16) })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

const killAt = async (point: ProbePoint, key: string): Promise<{ hit: Promise<unknown> }> => {
  const trap = await stack.probes.arm({ point, matches: ofKey(stack, key), action: { kind: 'kill' } })
  const hit = within(WAIT_MS, `an api stands at ${point}`, trap.hit)
  hit.catch(() => {})
  return { hit }
}

const eventsOf = async (key: string): Promise<string[]> => {
  const rows = await stack.sql<{ kind: string }[]>`
    select v.kind from operations o join operation_events v on v.tenant_id = o.tenant_id and v.operation_id = o.id
    where o.idempotency_key = ${key} order by v.version`
  return rows.map(({ kind }) => kind)
}
const times = async (key: string, kind: string): Promise<number> =>
  (await eventsOf(key)).filter((found) => found === kind).length

/** At any api that is there. */
const upload = (id: string, itemKey: string): Promise<void> =>
  until(
    `${itemKey} is uploaded`,
    async () => {
      for (const { url } of stack.apis) {
        const response = await fetch(`${url}/operations/${id}/items`, {
          method: 'POST',
          headers: { 'content-type': 'application/x-ndjson', 'idempotency-key': itemKey },
          body: JSON.stringify({ key: itemKey, input: {} }),
        }).catch(() => null)
        if (response?.status === 200) return true
      }
      return false
    },
    WAIT_MS,
  )

const submission = (key: string, mode = 'ok', more?: Record<string, unknown>) => ({
  type: 'fault-grant',
  key,
  items: more ? [] : [{ key: `${key}-0`, input: { mode } }],
  ...(more ? { more } : {}),
})

faultTest(
  'F16',
  'an api is killed before or after the commit of a POST: the client that repeats gets one operation',
  { short: 6, long: 24 },
  async (fault) => {
    await fault.each(async ({ index, seed }) => {
      const key = `f16-${seed}`
      const trap = await killAt(index % 2 === 0 ? 'submission-checked' : 'submission-committed', key)
      const id = await account.client.submit(submission(key))
      await trap.hit
      expect(await account.client.submit(submission(key))).toBe(id)
      const stored = await stack.sql`select from operations where idempotency_key = ${key}`
      expect(stored).toHaveLength(1)
    })
    await account.end()
  },
)

faultTest(
  'F16',
  'an api is killed after the commit of a start: the repeat is told that it is no draft, and it runs once',
  { short: 2, long: 10 },
  async (fault) => {
    await fault.each(async ({ seed }) => {
      const key = `f16-start-${seed}`
      const id = await account.client.submit(submission(key, 'ok', { draft: true }))
      await upload(id, `${key}-0`)
      const trap = await killAt('start-committed', key)
      const answer = await account.client.call('POST', `/operations/${id}/start`, {}, id)
      await trap.hit
      expect({ status: answer.status, code: answer.body.code }).toEqual({ status: 409, code: 'operation-not-draft' })
      await until(`${key} is over`, async () => isFinal(await account.client.get(id)), WAIT_MS)
      expect(await times(key, 'draft_closed')).toBe(1)
      expect((await stack.effects.log())[`${key}-0`]).toMatchObject({ requests: 1, applied: 1 })
    })
    await account.end()
  },
)

faultTest(
  'F16',
  'an api is killed after the commit of a cancel: the repeat is told that it is cancelled, once',
  { short: 2, long: 10 },
  async (fault) => {
    await fault.each(async ({ seed }) => {
      const key = `f16-cancel-${seed}`
      const items = Array.from({ length: 300 }, (_, index) => ({ key: `${key}-${index}`, input: { delay_ms: 60 } }))
      const id = await account.client.submit({ type: 'fault-grant', key, items })
      const trap = await killAt('cancel-committed', key)
      const answer = await account.client.act('cancel', id)
      await trap.hit
      expect([200, 202]).toContain(answer.status)
      await settle(stack, account.client, [id], { person: true })
      expect(await times(key, 'cancel_requested')).toBe(1)
      expect((await account.client.get(id)).status).toBe('cancelled')
    })
    await account.end()
  },
)

faultTest(
  'F16',
  'an api is killed after the commit of a resolution: the repeat is told what was resolved, and it stands once',
  { short: 2, long: 10 },
  async (fault) => {
    await fault.each(async ({ seed }) => {
      const key = `f16-resolve-${seed}`
      const id = await account.client.submit(submission(key, 'apply_then_reset'))
      const inDoubt = async (): Promise<boolean> => (await account.client.get(id)).status === 'reconciliation_required'
      await until(`${key} is in doubt`, inDoubt, WAIT_MS)
      const [found] = await account.client.openCases(id)
      if (found === undefined) throw new Error(`${key} has no case`)
      const trap = await killAt('resolution-committed', key)
      const answer = await account.client.resolve(found, { resolution: 'applied', evidence_ref: 'effect log' })
      await trap.hit
      expect(answer).toMatchObject({ status: 409, body: { code: 'case-already-resolved', resolution: 'applied' } })
      const ledger = await account.client.ledger(id)
      expect(ledger.map(({ state, source }) => `${state} by ${source}`)).toEqual([
        'uncertain by worker',
        'applied by operator',
      ])
    })
    await account.end()
  },
)
