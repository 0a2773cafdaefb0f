/**
 * The preflight of a replay: what forbids it, judged from recorded facts. Refusing costs a question; a wrong yes costs
 * a double effect. So an uncertain target always forbids, whatever conditions a type declares.
 */
/** `applied` and `skipped` are done, and what is `uncertain` is explained first: a scope that names them is a mistake. */
export const REPLAYABLE_STATES = ['failed', 'unprocessed'] as const
/** Of one scope. */
export const SCOPE_ITEM_KEYS_MAX = 10_000

export const STOP_FIGURES = ['ambiguous_effect_targets', 'downstream_error_rate_5m', 'replay_reject_rate'] as const
export type StopFigure = (typeof STOP_FIGURES)[number]

export interface StopCondition {
  figure: StopFigure
  /** Tripped above it; a rate is a share of 1. */
  threshold: number
  /** As written, in one spelling: `downstream_error_rate_5m > 5%`. */
  condition: string
}

const AMBIGUOUS_CONDITION = 'ambiguous_effect_targets > 0'

export const DEFAULT_STOP_IF: readonly string[] = [
  AMBIGUOUS_CONDITION,
  'downstream_error_rate_5m > 5%',
  'replay_reject_rate > 10%',
]

/** A few calls say nothing about a rate. */
export const RATE_CALLS_MIN = 20

const CONDITION_PATTERN = /^\s*([a-z0-9_]{1,64})\s*>\s*(\d{1,9}(?:\.\d{1,6})?)\s*(%?)\s*$/

/** Reads `figure > number`, where a rate takes a percentage or a share of 1; null when it is not one. */
export const parseStopCondition = (text: string): StopCondition | null => {
  const [, name, digits, percent] = CONDITION_PATTERN.exec(text) ?? []
  const figure = STOP_FIGURES.find((known) => known === name)
  if (figure === undefined || digits === undefined) return null
  const isRate = figure !== 'ambiguous_effect_targets'
  const threshold = percent === '%' ? Number(digits) / 100 : Number(digits)
  const fits = isRate ? threshold <= 1 : percent === '' && Number.isInteger(threshold)
  return fits ? { figure, threshold, condition: `${figure} > ${Number(digits)}${percent}` } : null
}

/** A subset of calls that went a certain way, and how many there were. */
export interface Share {
  count: number
  calls: number
}

export interface StopFigures {
  ambiguousEffectTargets: number
  /** Calls of the type in the last 5 minutes that ended in a 5xx, 429, timeout or broken connection. */
  downstreamErrors5m: Share
  /** Items of the replay that were rejected. */
  replayRejects: Share
}

export interface StopEvaluation {
  condition: string
  actual: number
  tripped: boolean
}

const FORCEABLE = /^(bug-suspected|downstream_error_rate_5m > .*|replay_reject_rate > .*)$/

/** What a person may override with a reason: signs of trouble, never the facts that keep effects from being duplicated. */
export const isForceable = (code: string): boolean => FORCEABLE.test(code)

/** 0 without calls: never NaN. */
export const rateOf = ({ count, calls }: Share): number => (calls > 0 ? count / calls : 0)

export const evaluateStopConditions = (conditions: readonly StopCondition[], figures: StopFigures): StopEvaluation[] =>
  conditions.map(({ figure, threshold, condition }) => {
    if (figure === 'ambiguous_effect_targets') {
      const actual = figures.ambiguousEffectTargets
      return { condition, actual, tripped: actual > threshold }
    }
    const share = figure === 'downstream_error_rate_5m' ? figures.downstreamErrors5m : figures.replayRejects
    const actual = rateOf(share)
    return { condition, actual, tripped: share.calls >= RATE_CALLS_MIN && actual > threshold }
  })

/** Whether `extra` only tightens: what it names trips no later than in `base`. A figure new to `base` is stricter. */
export const isStricter = (base: readonly StopCondition[], extra: readonly StopCondition[]): boolean =>
  extra.every((added) => base.every(({ figure, threshold }) => figure !== added.figure || added.threshold <= threshold))

export interface PreflightFacts {
  settled: boolean
  replayInProgress: boolean
  /** What the operation applied is being undone. */
  compensationInProgress: boolean
  /** It is a replay of a compensation, and the type says no more how that is done. */
  compensationLost: boolean
  itemsPurged: boolean
  replayTargets: number
  ambiguousEffectTargets: number
  /** Targets of class `bug_suspected` in the scope while the code version is still the one that failed. */
  unfixedBugTargets: number
  stopIf: readonly StopEvaluation[]
}

export interface PreflightVerdict {
  allowed: boolean
  /** Codes, and tripped conditions as they are spelled in `stopIf`; each once. */
  blockedBy: string[]
}

export const preflightVerdict = (facts: PreflightFacts): PreflightVerdict => {
  const blocks: [string, boolean][] = [
    ['not-settled', !facts.settled],
    ['replay-in-progress', facts.replayInProgress],
    ['compensation-in-progress', facts.compensationInProgress],
    ['no-compensation', facts.compensationLost],
    ['items-purged', facts.itemsPurged],
    ['nothing-to-replay', facts.replayTargets === 0],
    [AMBIGUOUS_CONDITION, facts.ambiguousEffectTargets > 0],
    ['bug-suspected', facts.unfixedBugTargets > 0],
    ...facts.stopIf.map(({ condition, tripped }): [string, boolean] => [condition, tripped]),
  ]
  const blockedBy = [...new Set(blocks.filter(([, blocked]) => blocked).map(([code]) => code))]
  return { allowed: blockedBy.length === 0, blockedBy }
}
