/** What providers do to a call, and what may be concluded from it (F19); what they say when they are asked (F20). */
import net, { type AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect } from 'vitest'
import { seededRandom } from '../support/random.ts'
import { type Account, openAccount } from './harness/account.ts'
import type { Case } from './harness/client.ts'
import { faultTest } from './harness/fault.ts'
import { closeCases } from './harness/person.ts'
import { settle } from './harness/phase-two.ts'
import { openStack, type Stack } from './harness/stack.ts'

/** A port on which nobody listens. */
const refusedUrl = async (): Promise<string> => {
  const server = net.createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return `http://127.0.0.1:${port}`
}

let stack: Stack
let account: Account
beforeAll(async () => {
  const env = { FAULTS_REFUSED_URL: await refusedUrl() }
  const types = ['types.yaml', 'refused.yaml'].map((file) => new URL(`harness/${file}`, import.meta.url).pathname)
  stack = await openStack({ workers: 2, random: seededRandom(19), types, env })
  account = openAccount(stack)
})
afterAll(async () => {
  await account.close()
  await stack.close()
})

/** Nobody can tell from the answer whether it was done: uncertain, with a case. */
const AMBIGUOUS = [
  'apply_then_hang',
  'apply_then_reset',
  'error_before_apply',
  'error_after_apply',
  'never_answer',
  'reset',
  'trickle',
  'truncate',
  'redirect',
  'odd',
] as const
const CLEAR = { ok: 'applied', already: 'skipped', reject: 'failed', conflict: 'failed' } as const

const itemsOf = (key: string, mode: string, count: number) =>
  Array.from({ length: count }, (_, index) => ({ key: `${key}-${index}`, input: { mode } }))

faultTest(
  'F19',
  'a call that hangs, breaks off or is answered oddly is uncertain and queued, and is never repeated',
  { short: 4, long: 200 },
  async (fault) => {
    fault.count(AMBIGUOUS.length * fault.runs)
    const ids = await Promise.all(
      AMBIGUOUS.map((mode) => {
        const key = `f19-${fault.seed}-${mode}`
        return account.client.submit({ type: 'fault-grant', key, items: itemsOf(key, mode, fault.runs) })
      }),
    )
    const ended = await settle(stack, account.client, ids, {
      orAt: ['reconciliation_required'],
      withinMs: 60_000 + fault.runs * 3_000,
    })
    const log = await stack.effects.idleLog()
    for (const [index, mode] of AMBIGUOUS.entries()) {
      const operation = ended[index]
      expect(operation?.counts, mode).toMatchObject({ uncertain: fault.runs, applied: 0, failed: 0, unprocessed: 0 })
      const cases: Case[] = await account.client.openCases(operation?.id)
      expect(cases.length, mode).toBe(fault.runs)
      for (const { effect_key } of cases) expect(log[effect_key]?.requests, effect_key).toBe(1)
    }
    // and evidence brings each of them to its end, done once at most
    for (const id of ids) await closeCases(stack, account.client, [id], { absentToo: true, retry: false })
    for (const { id, counts } of await settle(stack, account.client, ids)) expect(counts.uncertain, id).toBe(0)
    for (const entry of Object.values(await stack.effects.log())) expect(entry.applied).toBeLessThanOrEqual(1)
    await account.end()
  },
)

faultTest(
  'F19',
  'a clear answer is taken at its word, and a refusal before the first byte is tried again',
  { short: 4, long: 200 },
  async (fault) => {
    const modes = Object.keys(CLEAR) as (keyof typeof CLEAR)[]
    fault.count((modes.length + 2) * fault.runs)
    const submit = (mode: string, type = 'fault-grant') => {
      const key = `f19-clear-${fault.seed}-${mode}-${type}`
      return account.client.submit({ type, key, items: itemsOf(key, mode, fault.runs) })
    }
    const clear = await settle(stack, account.client, await Promise.all(modes.map((mode) => submit(mode))), {
      withinMs: 120_000,
    })
    for (const [index, mode] of modes.entries()) {
      expect(clear[index]?.counts[CLEAR[mode]], mode).toBe(fault.runs)
    }
    const [busy, refused] = await settle(
      stack,
      account.client,
      await Promise.all([submit('busy_once'), submit('ok', 'fault-refused')]),
      {
        withinMs: 120_000,
      },
    )
    expect(busy).toMatchObject({ status: 'succeeded', counts: { applied: fault.runs } })
    expect(refused).toMatchObject({ status: 'failed', counts: { failed: fault.runs, uncertain: 0 } })
    const entries = await account.client.ledger(String(refused?.id))
    expect(new Set(entries.map(({ reason_code }) => reason_code)).size).toBe(1)
    // tried, tried again, and given up when the attempts were used up
    expect(entries.filter(({ state }) => state === 'failed').length).toBeGreaterThanOrEqual(2 * fault.runs)
    await account.end()
  },
)

const EXPECTED_BY_LOOKUP = [
  ['apply_then_hang', 'up', 'applied'],
  ['never_answer', 'up', 'tried again'],
  ['apply_then_hang', 'down', 'stays'],
  ['never_answer', 'unknown', 'stays'],
] as const

faultTest(
  'F20',
  'a lookup says yes, no, unknown, or is down: applied, tried again, stays, stays',
  { short: 3, long: 50 },
  async (fault) => {
    for (const [mode, lookup, becomes] of EXPECTED_BY_LOOKUP) {
      await stack.effects.setLookup(lookup)
      fault.count(fault.runs)
      const key = `f20-${fault.seed}-${mode}-${lookup}`
      const first = mode === 'never_answer' ? 'never_answer_once' : mode
      const id = await account.client.submit({ type: 'fault-asked', key, items: itemsOf(key, first, fault.runs) })
      const orAt = becomes === 'stays' ? ['reconciliation_required'] : []
      const [operation] = await settle(stack, account.client, [id], { orAt, withinMs: 60_000 + fault.runs * 3_000 })
      const log = await stack.effects.idleLog()
      const requests = itemsOf(key, mode, fault.runs).map((item) => log[item.key]?.requests)
      if (becomes === 'stays') {
        expect(operation, lookup).toMatchObject({ counts: { uncertain: fault.runs } })
        // it is asked again and again, and nothing is sent
        expect(new Set(requests)).toEqual(new Set([1]))
        await stack.effects.setLookup('up')
        const [ended] = await settle(stack, account.client, [id], { person: true, withinMs: 120_000 })
        expect(ended).toMatchObject({ status: 'succeeded', counts: { applied: fault.runs } })
      } else {
        expect(operation, lookup).toMatchObject({ status: 'succeeded', counts: { applied: fault.runs } })
        expect(new Set(requests)).toEqual(new Set([becomes === 'applied' ? 1 : 2]))
      }
    }
    await account.end()
  },
)

faultTest(
  'F20',
  'a person and lookups on two workers close one case at once: one winner, one effect',
  { short: 6, long: 100 },
  async (fault) => {
    await stack.effects.setLookup('unknown')
    fault.count(fault.runs)
    const key = `f20-race-${fault.seed}`
    const id = await account.client.submit({
      type: 'fault-asked',
      key,
      items: itemsOf(key, 'apply_then_reset', fault.runs),
    })
    await settle(stack, account.client, [id], { orAt: ['reconciliation_required'], withinMs: 60_000 })
    const cases = await account.client.openCases(id)
    await stack.effects.setLookup('up')
    const body = { resolution: 'applied', evidence_ref: 'effect log' } as const
    const answers = await Promise.all(
      cases.flatMap((found) => [
        account.client.resolve(found, body),
        account.client.tryCall('POST', `/reconciliation/${found.id}/lookup`, {}),
        account.client.resolve(found, body),
      ]),
    )
    expect(answers.every(({ status }) => status === 200 || status === 202 || status === 409)).toBe(true)
    const [operation] = await settle(stack, account.client, [id])
    expect(operation).toMatchObject({ status: 'succeeded', counts: { applied: fault.runs } })
    const [closings] = await stack.sql<{ n: number }[]>`
    select count(*)::int as n from ledger_entries
    where operation_id = ${id.slice(3)}::uuid and state = 'applied' and source in ('lookup', 'operator')`
    expect(closings?.n).toBe(fault.runs)
    await account.end()
  },
)
