/** Phase two: nothing is broken any more, and everything has to come to its end. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, isFinal, type Operation } from './client.ts'
import { closeCases, resumeStopped } from './person.ts'
import { type Stack, settleMs } from './stack.ts'

const POLL_MS = 100

export interface SettleOptions {
  /**
   * Closes what nobody can be asked about with the effect log as evidence, and resumes what a stop condition paused, as a
   * person would. Default: false.
   */
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
 * With `person`, what nobody can be asked about is closed when nothing is being sent and nobody is frozen.
 */
export const settle = async (
  stack: Stack,
  client: Client,
  ids: readonly string[],
  options: SettleOptions = {},
): Promise<Operation[]> => {
  const { person = false, withinMs = settleMs(), orAt = [] } = options
  const until = performance.now() + withinMs
  for (;;) {
    const operations = await Promise.all(ids.map((id) => client.get(id)))
    if (operations.every((operation) => isFinal(operation) || orAt.includes(operation.status))) return operations
    if (performance.now() > until) {
      const open = operations.filter((operation) => !isFinal(operation))
      throw new Error(
        `I8: after ${withinMs} ms: ${JSON.stringify(open.map(({ id, status, error, counts }) => ({ id, status, error, counts })))}`,
      )
    }
    if (
      person &&
      operations.every(isStill) &&
      ![...stack.workers, ...stack.apis].some((slot) => slot.member.isFrozen)
    ) {
      await closeCases(stack, client, ids, { absentToo: true })
      await resumeStopped(client, operations)
    }
    await sleep(POLL_MS)
  }
}
