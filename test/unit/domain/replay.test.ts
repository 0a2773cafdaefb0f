import { describe, expect, test } from 'vitest'
import {
  DEFAULT_STOP_IF,
  evaluateStopConditions,
  isForceable,
  isStricter,
  type PreflightFacts,
  parseStopCondition,
  preflightVerdict,
  rateOf,
  type StopCondition,
  type StopFigures,
} from '../../../src/domain/replay.ts'

const parse = (...texts: string[]): StopCondition[] =>
  texts.map((text) => {
    const condition = parseStopCondition(text)
    if (condition === null) throw new Error(`not a stop condition: ${text}`)
    return condition
  })

describe('parseStopCondition', () => {
  test.each([
    ['ambiguous_effect_targets > 0', 'ambiguous_effect_targets', 0, 'ambiguous_effect_targets > 0'],
    ['ambiguous_effect_targets>12', 'ambiguous_effect_targets', 12, 'ambiguous_effect_targets > 12'],
    ['downstream_error_rate_5m > 5%', 'downstream_error_rate_5m', 0.05, 'downstream_error_rate_5m > 5%'],
    ['  downstream_error_rate_5m  >  5.0 % ', 'downstream_error_rate_5m', 0.05, 'downstream_error_rate_5m > 5%'],
    ['replay_reject_rate > 0.25', 'replay_reject_rate', 0.25, 'replay_reject_rate > 0.25'],
    ['replay_reject_rate > 100%', 'replay_reject_rate', 1, 'replay_reject_rate > 100%'],
  ])('%s', (text, figure, threshold, condition) => {
    expect(parseStopCondition(text)).toEqual({ figure, threshold, condition })
  })

  test.each([
    '',
    'ambiguous_effect_targets',
    'ambiguous_effect_targets > ',
    'ambiguous_effect_targets > -1',
    'ambiguous_effect_targets > 5%',
    'ambiguous_effect_targets > 100%',
    'ambiguous_effect_targets > 0.5',
    'ambiguous_effect_targets < 1',
    'ambiguous_effect_targets > 0 or true',
    'unless ambiguous_effect_targets > 0',
    'downstream_error_rate_5m > 5',
    'downstream_error_rate_5m > 101%',
    'downstream_error_rate_5m > NaN%',
    'unknown_rate > 5%',
    'constructor > 1',
  ])('refuses "%s"', (text) => {
    expect(parseStopCondition(text)).toBeNull()
  })
})

describe('evaluateStopConditions', () => {
  const quiet: StopFigures = {
    ambiguousEffectTargets: 0,
    downstreamErrors5m: { count: 0, calls: 0 },
    replayRejects: { count: 0, calls: 0 },
  }
  const conditions = parse(...DEFAULT_STOP_IF)
  const tripped = (figures: Partial<StopFigures>) =>
    evaluateStopConditions(conditions, { ...quiet, ...figures })
      .filter((evaluation) => evaluation.tripped)
      .map(({ condition }) => condition)

  test('without calls every rate is 0, never NaN (case 73)', () => {
    expect(evaluateStopConditions(conditions, quiet)).toEqual([
      { condition: 'ambiguous_effect_targets > 0', actual: 0, tripped: false },
      { condition: 'downstream_error_rate_5m > 5%', actual: 0, tripped: false },
      { condition: 'replay_reject_rate > 10%', actual: 0, tripped: false },
    ])
    expect(rateOf({ count: 1, calls: 4 })).toBe(0.25)
  })

  test('one uncertain target trips', () => {
    expect(tripped({ ambiguousEffectTargets: 1 })).toEqual(['ambiguous_effect_targets > 0'])
  })

  test('a rate counts from 20 calls on, and trips above its threshold', () => {
    expect(tripped({ downstreamErrors5m: { count: 19, calls: 19 } })).toEqual([])
    expect(tripped({ downstreamErrors5m: { count: 1, calls: 20 } })).toEqual([])
    expect(tripped({ downstreamErrors5m: { count: 2, calls: 20 } })).toEqual(['downstream_error_rate_5m > 5%'])
    expect(tripped({ replayRejects: { count: 2, calls: 20 } })).toEqual([])
    expect(tripped({ replayRejects: { count: 3, calls: 20 } })).toEqual(['replay_reject_rate > 10%'])
  })
})

describe('isStricter', () => {
  const base = parse(...DEFAULT_STOP_IF)

  test.each([
    ['nothing', [], true],
    ['the same', [...DEFAULT_STOP_IF], true],
    ['a lower rate', ['downstream_error_rate_5m > 1%'], true],
    ['a higher rate', ['downstream_error_rate_5m > 6%'], false],
    ['one of them looser', ['replay_reject_rate > 1%', 'ambiguous_effect_targets > 1'], false],
  ])('%s', (_name, extra, expected) => {
    expect(isStricter(base, parse(...extra))).toBe(expected)
  })

  test('a figure the type does not watch is stricter', () => {
    expect(isStricter([], parse('replay_reject_rate > 90%'))).toBe(true)
  })
})

describe('preflightVerdict', () => {
  const clear: PreflightFacts = {
    settled: true,
    replayInProgress: false,
    compensationInProgress: false,
    compensationLost: false,
    itemsPurged: false,
    replayTargets: 3,
    ambiguousEffectTargets: 0,
    unfixedBugTargets: 0,
    stopIf: [{ condition: 'downstream_error_rate_5m > 5%', actual: 0.04, tripped: false }],
  }

  test('nothing forbids it', () => {
    expect(preflightVerdict(clear)).toEqual({ allowed: true, blockedBy: [] })
  })

  test.each<[string, Partial<PreflightFacts>]>([
    ['not-settled', { settled: false }],
    ['replay-in-progress', { replayInProgress: true }],
    ['compensation-in-progress', { compensationInProgress: true }],
    ['no-compensation', { compensationLost: true }],
    ['items-purged', { itemsPurged: true }],
    ['nothing-to-replay', { replayTargets: 0 }],
    ['ambiguous_effect_targets > 0', { ambiguousEffectTargets: 1, stopIf: [] }],
    ['bug-suspected', { unfixedBugTargets: 2 }],
    ['replay_reject_rate > 10%', { stopIf: [{ condition: 'replay_reject_rate > 10%', actual: 0.2, tripped: true }] }],
  ])('%s', (code, change) => {
    expect(preflightVerdict({ ...clear, ...change })).toEqual({ allowed: false, blockedBy: [code] })
  })

  test.each([
    ['bug-suspected', true],
    ['downstream_error_rate_5m > 5%', true],
    ['replay_reject_rate > 10%', true],
    ['ambiguous_effect_targets > 0', false],
    ['not-bug-suspected', false],
    ['bug-suspected-and-more', false],
    ['not-settled', false],
    ['compensation-in-progress', false],
  ])('%s may be forced: %s', (code, expected) => {
    expect(isForceable(code)).toBe(expected)
  })

  test('names everything that forbids it, each once', () => {
    const stopIf = [{ condition: 'ambiguous_effect_targets > 0', actual: 1, tripped: true }]
    const { blockedBy } = preflightVerdict({ ...clear, settled: false, ambiguousEffectTargets: 1, stopIf })
    expect(blockedBy).toEqual(['not-settled', 'ambiguous_effect_targets > 0'])
  })
})
