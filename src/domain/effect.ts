/**
 * The registry of effects: what is true now of each effect key, across operations. Two tables decide everything:
 * may this item claim the key (`claimDecision`), and what does a piece of evidence do (`evidenceDecision`).
 *
 * States: `intent` a send was claimed and may have happened · `uncertain` it may have happened and nobody is sending ·
 * `applied` it happened · `absent` it did not · `compensated` it happened and was undone.
 * Nothing is ever sent from `intent`, `uncertain` or `applied`: a repeat needs evidence first.
 */
import { assertNever } from './assert.ts'

/** Of an effect's key, that of a step included. Compensations have longer ones (domain/compensation.ts). */
export const EFFECT_KEY_BYTES_MAX = 1_000

export const EFFECT_STATES = ['intent', 'applied', 'uncertain', 'absent', 'compensated'] as const
export type EffectState = (typeof EFFECT_STATES)[number]

export type ClaimDecision =
  /** Nobody has done it: take it, with send + 1. */
  | 'claim'
  /** Somebody else did it: `skipped`, with its reference. */
  | 'skip'
  /** It is done, and is not the item's last step: the item goes on with its next one, whoever did it. */
  | 'next-step'
  /** Somebody is doing it: wait, uncharged. */
  | 'wait'
  /** Nobody knows about somebody else's: `uncertain`, own case `in_doubt_elsewhere`. */
  | 'in-doubt'
  /** The item's own outcome already stands (late evidence came while it waited): drop the wait, write nothing. */
  | 'known'

export interface EffectOwner {
  operationId: string
  ord: number
}

export const claimDecision = (
  effect: (EffectOwner & { state: EffectState }) | null,
  mine: EffectOwner & { isLastStep: boolean },
): ClaimDecision => {
  if (effect === null) return 'claim'
  const isOwn = effect.operationId === mine.operationId && effect.ord === mine.ord
  switch (effect.state) {
    case 'absent':
    case 'compensated':
      return 'claim'
    case 'intent':
      return 'wait'
    case 'applied':
      if (!mine.isLastStep) return 'next-step'
      return isOwn ? 'known' : 'skip'
    case 'uncertain':
      return isOwn ? 'known' : 'in-doubt'
    default:
      return assertNever(effect.state)
  }
}

/** What evidence can say of an effect. */
export type EvidenceState = 'applied' | 'absent' | 'uncertain'

export type EvidenceDecision =
  /** The effect takes the evidence's state; ledger, retries, cases and counters follow from that move. */
  | 'move'
  /** Nothing new, or less than is known. */
  | 'known'
  /** It says the opposite of what is established: ledgered, opens a case, overwrites nothing. */
  | 'contradiction'
  /** It speaks of another send or operation: ledgered; `applied` then means a suspected duplicate. */
  | 'older-send'

export interface EvidenceFacts {
  effect: { state: EffectState; send: number; operationId: string }
  evidence: { to: EvidenceState; send: number; operationId: string }
}

/**
 * Fenced by send and operation, not by the epoch of a lease: a late observation is kept and overwrites nothing.
 * `compensated` is the end of its send: it implies that the send was applied, and after the undoing a lookup rightly
 * finds nothing, so any evidence about that send is `known`.
 */
export const evidenceDecision = ({ effect, evidence }: EvidenceFacts): EvidenceDecision => {
  if (effect.send !== evidence.send || effect.operationId !== evidence.operationId) return 'older-send'
  switch (effect.state) {
    case 'intent':
      return 'move'
    case 'uncertain':
      return evidence.to === 'uncertain' ? 'known' : 'move'
    case 'applied':
      return evidence.to === 'absent' ? 'contradiction' : 'known'
    case 'absent':
      return evidence.to === 'applied' ? 'move' : 'known'
    case 'compensated':
      return 'known'
    default:
      return assertNever(effect.state)
  }
}
