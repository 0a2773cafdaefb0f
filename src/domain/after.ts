/**
 * `after`: an operation that waits for others to end.
 *
 * No cycle can be written. The service makes an operation's id when it accepts it, tells it to nobody before it is stored,
 * and refuses any id in `after` that is not that of a stored operation; and `after` never changes. So everything that an
 * operation waits for was stored before it: the arrows all point back in time, and a path along them never returns. The only
 * operation that could name itself would have to name an id that does not exist yet, which is refused like any unknown one.
 */
import { type FinalStatus, isFinal, type OperationStatus } from './operation.ts'

/** What those before must come to: `succeeded`, or any final status. */
export const AFTER_WHEN = ['succeeded', 'settled'] as const
export type AfterWhen = (typeof AFTER_WHEN)[number]

/** An operation that another one waits for. */
export interface Before {
  id: string
  status: OperationStatus
}

export interface EndedBefore extends Before {
  status: FinalStatus
}

const hasEnded = (before: Before): before is EndedBefore => isFinal(before.status)

export type AfterDecision =
  /** `ended`: those that need not be waited for any more. */
  | { kind: 'wait'; ended: EndedBefore[] }
  | { kind: 'release'; ended: EndedBefore[] }
  | { kind: 'cancel'; because: EndedBefore }

/**
 * What becomes of an operation that waits. One that is not final (`reconciliation_required` too) is waited for. Final
 * statuses are never left, so `release` and `cancel` stay right however late they are acted on.
 */
export const afterDecision = (befores: readonly Before[], when: AfterWhen): AfterDecision => {
  const ended = befores.filter(hasEnded)
  const because = when === 'succeeded' ? ended.find(({ status }) => status !== 'succeeded') : undefined
  if (because) return { kind: 'cancel', because }
  return { kind: ended.length === befores.length ? 'release' : 'wait', ended }
}
