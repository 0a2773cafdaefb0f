/**
 * What a provider's signed event does to the effect that it names. An event speaks of the send that was current when it was
 * received, and of no later one. The registry's table (`evidenceDecision`) decides first; what it would move is moved, with
 * two exceptions for `absent`, because a retry follows from it:
 *
 * - While the call is in flight nothing follows. The event is kept until the effect is uncertain, or known otherwise.
 * - An effect that was sent before may be told off for that earlier send: an event does not say for which. Retried, it could
 *   happen twice, so it is noted on the case, and a lookup or a person decides.
 */
import { type EffectState, evidenceDecision } from './effect.ts'
import { type AbsenceFacts, decideAbsence } from './reconciliation.ts'

export const CALLBACK_OUTCOMES = [
  /** The event made the effect applied, or absent. */
  'applied',
  'absent',
  /** It says what is known, or less. */
  'known',
  /** Kept until it can be judged: the call is in flight, or the send could still arrive. */
  'deferred',
  /** It says the opposite of what is established; a case is open. */
  'contradiction',
  /** An earlier send was applied, too; a case is open. */
  'duplicate_suspected',
  /** Noted on the open case, which it does not close. */
  'noted',
  /** No effect of the type has this key. */
  'unknown_effect',
  /** No rule of the type reads anything from the event. */
  'ignored',
] as const
export type CallbackOutcome = (typeof CALLBACK_OUTCOMES)[number]

export interface CallbackFacts extends AbsenceFacts {
  said: 'applied' | 'absent'
  /** The send that was current when the event was received, and whose it was. */
  about: { send: number; operationId: string }
  effect: { state: EffectState; send: number; operationId: string }
}

export type CallbackDecision =
  | { kind: 'known' }
  | { kind: 'defer'; reason: 'in-flight' | 'absent-not-stable' }
  | { kind: 'applied' }
  /** Converge moves nothing by it, but ledgers it and opens a case. */
  | { kind: 'explain' }
  | { kind: 'absent-retry' }
  | { kind: 'absent-failed'; deadLetter: boolean }
  | { kind: 'note' }

export const decideCallback = (facts: CallbackFacts): CallbackDecision => {
  const { said, about, effect } = facts
  const decision = evidenceDecision({ effect, evidence: { to: said, ...about } })
  switch (decision) {
    case 'known':
      return { kind: 'known' }
    case 'contradiction':
      return { kind: 'explain' }
    case 'older-send':
      // an earlier send that did not happen is why there is a later one
      return said === 'applied' ? { kind: 'explain' } : { kind: 'known' }
    case 'move':
      return said === 'applied' ? { kind: 'applied' } : decideAbsent(facts)
  }
}

const decideAbsent = (facts: CallbackFacts): CallbackDecision => {
  if (facts.effect.state === 'intent') return { kind: 'defer', reason: 'in-flight' }
  if (facts.about.send > 1) return { kind: 'note' }
  const decision = decideAbsence(facts)
  switch (decision.kind) {
    case 'wait':
      return { kind: 'defer', reason: decision.reason }
    case 'by-hand':
      return { kind: 'note' }
    case 'absent-retry':
    case 'absent-failed':
      return decision
  }
}
