/** When to try again, and when not to. Randomness comes in as a number in [0, 1), so that every answer is a function. */
import { type FailureClass, type FailurePlace, permits } from './failure.ts'

/** 2^52 times any base is past every cap; larger exponents only risk `Infinity * 0`. */
const DOUBLINGS_MAX = 52

export interface Backoff {
  baseMs: number
  maxMs: number
  random: number
}

/** Full jitter: anywhere between 0 and the doubled base, so that what failed together does not return together. */
export const backoffMs = ({ attempt, baseMs, maxMs, random }: Backoff & { attempt: number }): number => {
  const doublings = Math.min(DOUBLINGS_MAX, Math.max(0, attempt - 1))
  return Math.floor(random * Math.min(maxMs, baseMs * 2 ** doublings))
}

export type RetryDecision =
  | { kind: 'retry'; delayMs: number }
  /** Attempts used up, or a bug is suspected: listed and grouped, by its cause. */
  | { kind: 'dead-letter' }
  /** A result like any other: the reject list, a person or a permission decides what comes next. */
  | { kind: 'final' }

export interface RetryFacts extends Backoff {
  failureClass: FailureClass
  /** The attempt that just failed, from 1 on. */
  attempt: number
  maxAttempts: number
}

const WITHOUT_RETRY: Readonly<Record<FailurePlace, 'dead-letter' | 'final'>> = {
  dead_letter: 'dead-letter',
  fix_queue: 'dead-letter',
  reject_list: 'final',
  person: 'final',
  policy: 'final',
  reconciliation_case: 'final',
}

export const retryDecision = (facts: RetryFacts): RetryDecision => {
  const { retry, place } = permits[facts.failureClass]
  if (retry && facts.attempt < facts.maxAttempts) return { kind: 'retry', delayMs: backoffMs(facts) }
  return { kind: WITHOUT_RETRY[place] }
}

const POLL_SECONDS_MAX = 30
/** An operation that is ten times as old is polled ten times as seldom. */
const POLL_AGE_SHARE = 0.1

/** `Retry-After` of an operation that is not final: whole seconds from 1 to 30, growing with its age, ± 25 %. */
export const retryAfterSeconds = ({ ageSeconds, random }: { ageSeconds: number; random: number }): number => {
  const grown = Math.min(POLL_SECONDS_MAX, Math.max(1, ageSeconds * POLL_AGE_SHARE))
  return Math.min(POLL_SECONDS_MAX, Math.max(1, Math.round(grown * (0.75 + random / 2))))
}

const LOOKUP_BASE_MS = 2_000
const LOOKUP_MS_MAX = 15 * 60_000
/** About a day at the cap, when an open case is escalated to the type's owner anyway. */
export const LOOKUPS_MAX = 100

/** The pause before the next lookup of a case, after `lookups` of them: at least half the doubled base, up to 15 min. */
export const lookupDelayMs = (lookups: number, random: number): number => {
  const grown = Math.min(LOOKUP_MS_MAX, LOOKUP_BASE_MS * 2 ** Math.min(DOUBLINGS_MAX, lookups))
  return Math.floor(grown / 2 + (grown / 2) * random)
}
