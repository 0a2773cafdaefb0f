import { describe, expect, test } from 'vitest'
import {
  type CompensationFacts,
  compensationKey,
  compensationVerdict,
  isReservedKey,
  parseCompensationKey,
  SEND_MAX,
} from '../../../src/domain/compensation.ts'

describe('the effect key of a compensation', () => {
  test.each([
    { effectKey: 'grant:7', send: 1 },
    { effectKey: 'grant:7', send: 12 },
    { effectKey: 'a:b:c', send: SEND_MAX },
    { effectKey: 'compensate:1:inner', send: 2 },
    { effectKey: 'two\nlines', send: 3 },
  ])('$send of $effectKey names both, and is read again', (undone) => {
    expect(parseCompensationKey(compensationKey(undone))).toEqual(undone)
  })

  test('is another one for another send', () => {
    const [first, second] = [1, 2].map((send) => compensationKey({ effectKey: 'k', send }))
    expect([first, second]).toEqual(['compensate:1:k', 'compensate:2:k'])
  })

  test.each(['k', 'compensate:k', 'compensate:0:k', 'compensate:01:k', 'compensate:1:', 'xcompensate:1:k', ''])(
    '"%s" is none',
    (key) => {
      expect(parseCompensationKey(key)).toBeNull()
      expect(isReservedKey(key)).toBe(false)
    },
  )

  test('is reserved', () => {
    expect(isReservedKey('compensate:1:k')).toBe(true)
  })
})

describe('compensationVerdict', () => {
  const clear: CompensationFacts = {
    isCompensation: false,
    compensable: true,
    settled: true,
    replayInProgress: false,
    compensationInProgress: false,
    itemsPurged: false,
    targets: 3,
    ambiguousEffectTargets: 0,
    stopIf: [{ condition: 'downstream_error_rate_5m > 5%', actual: 0.04, tripped: false }],
  }

  test('nothing forbids it', () => {
    expect(compensationVerdict(clear)).toEqual({ allowed: true, blockedBy: [] })
  })

  test.each<[string, Partial<CompensationFacts>]>([
    ['not-compensable', { isCompensation: true }],
    ['no-compensation', { compensable: false }],
    ['not-settled', { settled: false }],
    ['replay-in-progress', { replayInProgress: true }],
    ['compensation-in-progress', { compensationInProgress: true }],
    ['items-purged', { itemsPurged: true }],
    ['nothing-to-compensate', { targets: 0 }],
    ['ambiguous_effect_targets > 0', { ambiguousEffectTargets: 1, stopIf: [] }],
    [
      'downstream_error_rate_5m > 5%',
      { stopIf: [{ condition: 'downstream_error_rate_5m > 5%', actual: 0.2, tripped: true }] },
    ],
  ])('%s', (code, change) => {
    expect(compensationVerdict({ ...clear, ...change })).toEqual({ allowed: false, blockedBy: [code] })
  })

  test('names everything that forbids it, each once', () => {
    const stopIf = [{ condition: 'ambiguous_effect_targets > 0', actual: 1, tripped: true }]
    const { blockedBy } = compensationVerdict({ ...clear, settled: false, ambiguousEffectTargets: 1, stopIf })
    expect(blockedBy).toEqual(['not-settled', 'ambiguous_effect_targets > 0'])
  })
})
