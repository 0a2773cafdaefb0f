/**
 * What may be done with an effect after the database was taken back to an older point (storage/restores.ts). The registry
 * does not know it, or knows only what was true before: it may have been sent in the time that was lost. Such a send is a
 * repeat, and a repeat needs evidence: applied is taken as found, absent may be sent, and what nobody can tell is uncertain.
 */

export interface Doubt {
  /** The operation is older than the restore. */
  predates: boolean
}

/**
 * Whether an effect may have been sent in the lost time. A younger operation's key that names the operation itself (its uuid, as
 * the default key does) is new; one that does not may have been used by an operation that was lost. `explained`: evidence came
 * after the restore.
 */
export const isDoubted = (
  doubt: Doubt | null,
  effect: { effectKey: string; operationId: string; explained: boolean },
): boolean => {
  if (doubt === null || effect.explained) return false
  return doubt.predates || !effect.effectKey.includes(effect.operationId)
}

export type DoubtedSendDecision = 'applied' | 'send' | 'uncertain'

export const decideDoubtedSend = (facts: {
  /** Null: the provider cannot be asked. */
  lookup: 'applied' | 'absent' | 'unknown' | null
  /** The last send of the lost time can no longer arrive. */
  stable: boolean
  onAbsent: 'retry' | 'case'
}): DoubtedSendDecision => {
  if (facts.lookup === 'applied') return 'applied'
  return facts.lookup === 'absent' && facts.stable && facts.onAbsent === 'retry' ? 'send' : 'uncertain'
}
