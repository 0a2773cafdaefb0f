/**
 * A stack whose client keeps its history, so that the invariants can be asked at any time: `holds('during')` in the middle of
 * a fault, `settles()` when there is none any more. Operations that tests submit in this stack are the whole world of its
 * database, and the effect server and the table of `fault-row` are its judges.
 */
import { expect } from 'vitest'
import { type EffectLog, effectLog } from '../../invariants/effect-log.ts'
import { waitUntilSettled } from '../../invariants/end-account.ts'
import { type CallKind, createHistory, type History, operationIds } from '../../invariants/history.ts'
import { checkInvariants, type Expected } from '../../invariants/invariants.ts'
import { describeViolation } from '../../invariants/violation.ts'
import type { CallFacts, Recorder } from './client.ts'
import { openStack, SETTLE_MS, type Stack, type StackOptions } from './stack.ts'

/** What a machine that does other things besides adds to the time in which everything settles. */
const BUSY_MS = 30_000

const kindOf = ({ kind }: CallFacts): CallKind => (kind === 'other' ? 'read' : kind)

const itemsOf = ({ kind, body }: CallFacts): { items: number } | undefined => {
  const items = kind === 'submit' && typeof body === 'object' && body !== null && 'items' in body ? body.items : null
  return Array.isArray(items) ? { items: items.length } : undefined
}

const recordInto =
  (history: History): Recorder =>
  async (facts, call) => {
    const { operationId, idempotencyKey: key, body } = facts
    const told = { operationId, key, body: JSON.stringify(body) ?? '', ...itemsOf(facts) }
    let answer: Awaited<ReturnType<typeof call>> | undefined
    await history.record(kindOf(facts), told, async () => {
      answer = await call()
      return { ...answer, replayed: answer.headers['idempotent-replayed'] === 'true' }
    })
    if (!answer) throw new Error('the call has no answer')
    return answer
  }

export interface CheckedStack extends Stack {
  history: History
  /** Asks the invariants in the middle of it all. */
  holds(expected?: Expected): Promise<void>
  /** No fault any more: everything is over within the bound, and the invariants hold. */
  settles(expected?: Expected): Promise<void>
}

export const openCheckedStack = async (options: Omit<StackOptions, 'record'>): Promise<CheckedStack> => {
  const history = createHistory()
  const stack = await openStack({ ...options, record: recordInto(history) })
  const { sql, effects } = stack
  const rows = async (): Promise<EffectLog> => {
    const found = await sql<{ key: string; n: number }[]>`
      select e.effect_key as key, count(*)::int as n from fault_rows r join effects e on e.item_key = r.item_key
      group by e.effect_key`
    return effectLog(found.map(({ key, n }) => [key, n] as const))
  }
  const judges = [
    { types: ['fault-grant', 'fault-asked'], read: effects.log as () => Promise<EffectLog> },
    { types: ['fault-row'], read: rows },
  ]
  const check = async (phase: 'during' | 'end', expected: Expected): Promise<void> => {
    const violations = await checkInvariants({ history, sql, judges, phase, expected })
    expect(violations.map(describeViolation)).toEqual([])
  }
  return {
    ...stack,
    history,
    holds: (expected = {}) => check('during', expected),
    async settles(expected = {}) {
      const { open } = expected
      await waitUntilSettled(sql, operationIds(history), { withinMs: SETTLE_MS + BUSY_MS, ...(open && { open }) })
      await check('end', expected)
    },
  }
}
