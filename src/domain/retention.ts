/**
 * What may be forgotten of an operation, and when. The unit is a *chain*: an operation with all its replays and compensations
 * (they share its root). Its parts explain each other: a dead letter of the first run has recovered because of the third, a
 * replay reads the items of the one before it, the history of an item goes through all of them. So a chain ages from its
 * youngest change, and goes as one.
 *
 *   items    inputs, waits that a cancel gave up; from then on nothing of the chain can be replayed or compensated
 *   ledger   entries, closed cases and dead letters, effects that are bound to the chain; the items are gone before
 *
 * What stays for ever: the operation with its status, counts, times, idempotency key and events, and its shards. A key
 * therefore names the same operation always (P1): retention cannot make two of one.
 *
 * Nothing that is open goes, however old: see `KeptBecause`. And an effect that is applied is never forgotten while anybody
 * could make it again (P3): `isBoundToChain` says which ones nobody can.
 */
import { parseCompensationKey } from './compensation.ts'
import { formatId } from './ids.ts'

export const PURGE_STAGES = ['items', 'ledger'] as const
export type PurgeStage = (typeof PURGE_STAGES)[number]

/** Whole days since the youngest change of the chain. */
export interface RetentionPolicy {
  itemsDays: number
  ledgerDays: number
}

const MS_PER_DAY = 86_400_000

export const keptDays = (stage: PurgeStage, policy: RetentionPolicy): number =>
  stage === 'items' ? policy.itemsDays : policy.ledgerDays

/** Of all operations of the chain together, by the database's clock. */
export interface ChainFacts {
  /** Operations that are not final: a draft, a replay that waits for approval, one in doubt. */
  open: number
  /** Since the last outcome or end of any of them, or the last time that a case or dead letter was closed. */
  sinceChangeMs: number
  /** Items that are uncertain or in flight. */
  unexplained: number
  openCases: boolean
  /** Dead letters that are neither closed nor recovered. */
  activeDeadLetters: boolean
  /** Events of a provider that are received and not judged yet. */
  callbacksPending: boolean
  /** A bulk action that can still act on one of them. */
  bulkPending: boolean
  /** Rows of an earlier stage are still being deleted. */
  purging: boolean
}

export type KeptBecause =
  | 'open'
  | 'too-young'
  | 'unexplained'
  | 'case-open'
  | 'dead-letter-open'
  | 'callback-pending'
  | 'bulk-action-pending'
  | 'purging'

/** Why a chain is kept; nothing: it goes. */
export const keptBecause = (stage: PurgeStage, facts: ChainFacts, policy: RetentionPolicy): KeptBecause[] => {
  const reasons: [KeptBecause, boolean][] = [
    ['open', facts.open > 0],
    ['too-young', facts.sinceChangeMs < keptDays(stage, policy) * MS_PER_DAY],
    ['unexplained', facts.unexplained > 0],
    ['case-open', facts.openCases],
    ['dead-letter-open', facts.activeDeadLetters],
    ['callback-pending', facts.callbacksPending],
    ['bulk-action-pending', facts.bulkPending],
    ['purging', facts.purging],
  ]
  return reasons.filter(([, holds]) => holds).map(([reason]) => reason)
}

export interface Chain {
  type: string
  /** Uuids, the root's among them. */
  operationIds: readonly string[]
}

/**
 * Whether only this chain can have made the effect key, so that nobody can claim it once its items are gone: it begins with
 * the type and the id of an operation of the chain, as keys do by default, or undoes such an effect. A key that another
 * operation may have too (`grant-role:admin:v3:ada`) is kept for ever: it is what keeps the effect from being made again, and
 * its `send` tells old evidence, and the undoing of one send, from those of the next.
 */
export const isBoundToChain = (effectKey: string, { type, operationIds }: Chain): boolean => {
  const key = parseCompensationKey(effectKey)?.effectKey ?? effectKey
  // the replay of an artifact names its operation as the database does
  return operationIds.some((id) => key.startsWith(`${type}:${formatId('op', id)}:`) || key.startsWith(`${type}:${id}:`))
}
