/** Phase two: nothing is broken any more, and everything has to come to its end. */
import { setTimeout as sleep } from 'node:timers/promises'
import { isFinal, type Operation } from './client.ts'
import { SETTLE_MS, type Stack } from './stack.ts'

const POLL_MS = 100
/** What a busy machine adds to the bound that FAULTS gives. */
const BUSY_MS = 30_000
const RESOLVES_AT_ONCE = 8

export interface SettleOptions {
  /** Closes what nobody can be asked about with the effect log as evidence, as a person would. Default: false. */
  person?: boolean
  withinMs?: number
  /** Statuses that are an end for this test besides the final ones. */
  orAt?: readonly string[]
}

const isStill = (operation: Operation): boolean =>
  isFinal(operation) || operation.status === 'reconciliation_required' || operation.status === 'paused'

/**
 * Polls until each of the operations is final; they are answered in the order given. Throws when they are not in time.
 *
 * The log is read as evidence only when nothing is being sent, nobody is frozen and it has stopped growing: "not applied" from
 * a log that is read too early is wrong evidence, and the second effect would be the reader's fault.
 */
export const settle = async (
  stack: Stack,
  ids: readonly string[],
  options: SettleOptions = {},
): Promise<Operation[]> => {
  const { person = false, withinMs = SETTLE_MS + BUSY_MS, orAt = [] } = options
  const until = performance.now() + withinMs
  for (;;) {
    const operations = await Promise.all(ids.map((id) => stack.client.get(id)))
    if (operations.every((operation) => isFinal(operation) || orAt.includes(operation.status))) return operations
    if (performance.now() > until) {
      const open = operations.filter((operation) => !isFinal(operation))
      throw new Error(
        `I8: after ${withinMs} ms: ${JSON.stringify(open.map(({ id, status, counts }) => ({ id, status, counts })))}`,
      )
    }
    if (
      person &&
      operations.every(isStill) &&
      ![...stack.workers, ...stack.apis].some((slot) => slot.member.isFrozen)
    ) {
      await closeByLog(stack, ids)
    }
    await sleep(POLL_MS)
  }
}

/** The person with the log: applied where it says so, otherwise not applied (and once more). Answers with the cases closed. */
export const closeByLog = async (
  stack: Stack,
  ids: readonly string[],
  { retry } = { retry: true },
): Promise<number> => {
  const log = await stack.effects.idleLog()
  const cases = (await stack.client.openCases()).filter((found) => ids.includes(found.operation_id))
  let closed = 0
  for (let from = 0; from < cases.length; from += RESOLVES_AT_ONCE) {
    const answers = await Promise.all(
      cases.slice(from, from + RESOLVES_AT_ONCE).map((found) =>
        stack.client.resolve(found, {
          evidence_ref: `effect log: ${found.effect_key}`,
          ...((log[found.effect_key]?.applied ?? 0) > 0
            ? { resolution: 'applied' }
            : { resolution: 'not_applied', retry }),
        }),
      ),
    )
    // 409: late evidence or another reconciler closed it first
    const refused = answers.find(({ status }) => status !== 200 && status !== 409)
    if (refused) throw new Error(`resolving answered ${refused.status}: ${JSON.stringify(refused.body)}`)
    closed += answers.filter(({ status }) => status === 200).length
  }
  return closed
}
