/**
 * How an uncertain effect is closed: by a lookup, a callback or a person, each with evidence. Applied is applied.
 * Absent may be tried again, but only where the type says so, where the absence cannot change any more, and where
 * nobody cancelled. What nobody can tell waits, and after `LOOKUPS_MAX` it is for a person.
 */
import { assertNever } from './assert.ts'
import { LOOKUPS_MAX } from './retry.ts'

/** Why a case was opened. */
export const CASE_CAUSES = [
  /** A timeout, a broken connection or an answer nobody classified, after the first byte was written. */
  'send_outcome_unknown',
  /** The worker disappeared between the intent and its outcome. */
  'worker_lost',
  /** The key is uncertain through another item: closed from that effect. */
  'in_doubt_elsewhere',
  /** An older send turned out to be applied, too. */
  'duplicate_suspected',
  /** Evidence says the opposite of what is established. */
  'contradiction',
] as const
export type CaseCause = (typeof CASE_CAUSES)[number]

/** What decides when somebody says that an uncertain effect did not happen. */
export interface AbsenceFacts {
  /** The time has passed in which the send could still arrive (`send_by` + timeout + `after_ms`). */
  stable: boolean
  onAbsent: 'retry' | 'case'
  attempt: number
  maxAttempts: number
  cancelled: boolean
}

export interface LookupFacts extends AbsenceFacts {
  outcome: 'applied' | 'absent' | 'unknown'
  /** Lookups made so far, this one included. */
  lookups: number
}

export type AbsenceDecision =
  /** Confirmed absent, and tried again: charges an attempt. */
  | { kind: 'absent-retry' }
  /** Confirmed absent, and not tried again: `failed`, class transient. */
  | { kind: 'absent-failed'; deadLetter: boolean }
  | { kind: 'wait'; reason: 'absent-not-stable' }
  | { kind: 'by-hand' }

export type LookupDecision = AbsenceDecision | { kind: 'applied' } | { kind: 'wait'; reason: 'unknown' }

export const decideLookup = (facts: LookupFacts): LookupDecision => {
  switch (facts.outcome) {
    case 'applied':
      return { kind: 'applied' }
    case 'unknown':
      return facts.lookups >= LOOKUPS_MAX ? { kind: 'by-hand' } : { kind: 'wait', reason: 'unknown' }
    case 'absent':
      return decideAbsence(facts)
    default:
      return assertNever(facts.outcome)
  }
}

export const decideAbsence = (facts: AbsenceFacts): AbsenceDecision => {
  // Waiting here ends by itself: the instant of stability is fixed when the send is claimed.
  if (!facts.stable) return { kind: 'wait', reason: 'absent-not-stable' }
  if (facts.onAbsent === 'case') return { kind: 'by-hand' }
  if (facts.cancelled) return { kind: 'absent-failed', deadLetter: false }
  return facts.attempt < facts.maxAttempts ? { kind: 'absent-retry' } : { kind: 'absent-failed', deadLetter: true }
}

export interface ResolutionFacts {
  resolution: 'applied' | 'not_applied'
  /** The person asked for another attempt. Granted beyond the attempt budget, never after a cancel. */
  retry: boolean
  cancelled: boolean
}

export type ResolutionDecision =
  | { kind: 'applied' }
  | { kind: 'absent-retry' }
  | { kind: 'absent-failed'; deadLetter: false }

export const decideResolution = ({ resolution, retry, cancelled }: ResolutionFacts): ResolutionDecision => {
  if (resolution === 'applied') return { kind: 'applied' }
  return retry && !cancelled ? { kind: 'absent-retry' } : { kind: 'absent-failed', deadLetter: false }
}

export interface ResendFacts {
  /** How long the provider promises to deduplicate by effect key; 0: not at all. */
  providerIdempotentMs: number
  /** Since the first send with this key. */
  ageMs: number
  attempt: number
  maxAttempts: number
  cancelled: boolean
}

/** The one repeat without evidence, where the provider itself promises that it cannot become a second effect. */
export const mayResend = (facts: ResendFacts): boolean =>
  !facts.cancelled && facts.ageMs < facts.providerIdempotentMs && facts.attempt < facts.maxAttempts
