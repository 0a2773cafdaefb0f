/** What the world outside really did, and whether that is what everybody was told. */
import type { FailureClass } from '../../src/domain/failure.ts'
import type { LookupOutcome, SendOutcome } from '../../src/domain/operation-type.ts'

/** What happens to a call, and what its caller gets to know of it. */
export const BEHAVIOURS = [
  'does it',
  'does it, and the answer is lost',
  'does nothing, and the answer is lost',
  'is busy',
  'is there already',
  'rejects',
  'conflicts',
  'denies',
  'breaks',
] as const
export type Behaviour = (typeof BEHAVIOURS)[number]

export const LOOKUPS = ['truth', 'unknown', 'down'] as const
export type LookupAnswer = (typeof LOOKUPS)[number]

interface Known {
  /** How often the effect happened. */
  happened: number
  /** How often a person said that it did not although it had, or that it did although it had not. */
  falseAbsences: number
  falseClaims: number
  /** The provider said that the target was already so. */
  alreadySo: boolean
}

export interface Provider {
  call(effectKey: string, behaviour: Behaviour, deduplicates: boolean): SendOutcome
  /** A handler's work on its own tables, committed with the outcome. */
  commit(effectKey: string, outcome: SendOutcome): void
  lookUp(effectKey: string, answer: LookupAnswer): LookupOutcome
  /** What a person says who may be wrong. */
  claim(effectKey: string, resolution: 'applied' | 'not_applied'): void
  /** Keys that happened more often than evidence ever allowed. */
  doubles(): string[]
  /** Whether anything at all speaks for `applied`. */
  supports(effectKey: string): boolean
}

const failures: Partial<Record<Behaviour, Exclude<FailureClass, 'ambiguous_effect'>>> = {
  'is busy': 'transient',
  rejects: 'validation_rejected',
  conflicts: 'conflict',
  denies: 'policy_denied',
  breaks: 'bug_suspected',
}

export const outcomeOfBehaviour = (behaviour: Behaviour): SendOutcome => {
  const failureClass = failures[behaviour]
  if (failureClass) return { state: 'failed', failureClass, reasonCode: 'SAID_SO' }
  if (behaviour === 'does it') return { state: 'applied', effectRef: 'ref' }
  if (behaviour === 'is there already') return { state: 'skipped', reasonCode: 'ALREADY_SO' }
  return { state: 'uncertain', reasonCode: 'TIMEOUT' }
}

export const openProvider = (): Provider => {
  const known = new Map<string, Known>()
  const of = (effectKey: string): Known => {
    const found = known.get(effectKey) ?? { happened: 0, falseAbsences: 0, falseClaims: 0, alreadySo: false }
    known.set(effectKey, found)
    return found
  }
  return {
    call(effectKey, behaviour, deduplicates) {
      const facts = of(effectKey)
      const does = behaviour === 'does it' || behaviour === 'does it, and the answer is lost'
      if (does && !(deduplicates && facts.happened > 0)) facts.happened++
      if (behaviour === 'is there already') facts.alreadySo = true
      return outcomeOfBehaviour(behaviour)
    },
    commit(effectKey, outcome) {
      if (outcome.state === 'applied') of(effectKey).happened++
      if (outcome.state === 'skipped') of(effectKey).alreadySo = true
    },
    lookUp(effectKey, answer) {
      switch (answer) {
        case 'unknown':
          return { state: 'unknown', reasonCode: 'PROCESSING' }
        case 'down':
          return { state: 'unknown', reasonCode: 'LOOKUP_DOWN' }
        case 'truth':
          return of(effectKey).happened > 0
            ? { state: 'applied', evidenceRef: 'lookup' }
            : { state: 'absent', evidenceRef: 'lookup' }
      }
    },
    claim(effectKey, resolution) {
      const facts = of(effectKey)
      if (resolution === 'not_applied' && facts.happened > 0) facts.falseAbsences++
      if (resolution === 'applied' && facts.happened === 0) facts.falseClaims++
    },
    doubles: () =>
      [...known].filter(([, facts]) => facts.happened > 1 + facts.falseAbsences).map(([effectKey]) => effectKey),
    supports(effectKey) {
      const facts = of(effectKey)
      return facts.happened > 0 || facts.falseClaims > 0 || facts.alreadySo
    },
  }
}
