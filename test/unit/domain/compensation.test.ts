import { describe, expect, test } from 'vitest'
import {
  type CompensationFacts,
  compensationKey,
  compensationVerdict,
  isReservedKey,
  parseCompensationKey,
  REGISTRY_KEY_BYTES_MAX,
  SEND_MAX,
} from '../../../src/domain/compensation.ts'
import { EFFECT_KEY_BYTES_MAX } from '../../../src/domain/effect.ts'
import { stepKeyBytes } from '../../../src/domain/steps.ts'

describe('the effect key of a compensation', () => {
  test.each([
    { effectKey: 'grant:7', step: '', send: 1 },
    { effectKey: 'grant:7', step: '', send: 12 },
    { effectKey: 'grant:7', step: 'ship', send: 12 },
    { effectKey: 'a:b:c', step: '', send: SEND_MAX },
    { effectKey: '/a:b/c', step: 'a_b-9', send: SEND_MAX },
    { effectKey: 'compensate:1:inner', step: '', send: 2 },
    { effectKey: 'compensate:1/a:inner', step: 'b', send: 2 },
    { effectKey: 'two\nlines', step: '', send: 3 },
  ])('$send $step of $effectKey names all, and is read again', (undone) => {
    expect(parseCompensationKey(compensationKey(undone))).toEqual(undone)
  })

  test('is another one for another send, and for another last step', () => {
    const undone = { effectKey: 'k', step: '', send: 1 }
    const keys = [undone, { ...undone, send: 2 }, { ...undone, step: 'ship' }].map(compensationKey)
    expect(keys).toEqual(['compensate:1:k', 'compensate:2:k', 'compensate:1/ship:k'])
  })

  test.each([
    'k',
    'compensate:k',
    'compensate:0:k',
    'compensate:01:k',
    'compensate:1:',
    'compensate:1/:k',
    'compensate:1/Ship:k',
    'compensate:1/ship:',
    'compensate:/ship:k',
    'xcompensate:1:k',
    '',
  ])('"%s" is none', (key) => {
    expect(parseCompensationKey(key)).toBeNull()
    expect(isReservedKey(key)).toBe(false)
  })

  test.each(['compensate:1:k', 'compensate:1/ship:k'])('"%s" is reserved', (key) => {
    expect(isReservedKey(key)).toBe(true)
  })

  test('is never longer than the registry takes, whatever it undoes', () => {
    const step = 's'.repeat(32)
    const longest = [
      { effectKey: 'k'.repeat(EFFECT_KEY_BYTES_MAX), step: '', send: SEND_MAX },
      { effectKey: 'k'.repeat(EFFECT_KEY_BYTES_MAX - stepKeyBytes([step])), step, send: SEND_MAX },
    ]
    expect(longest.map((undone) => compensationKey(undone).length)).toEqual([
      REGISTRY_KEY_BYTES_MAX,
      REGISTRY_KEY_BYTES_MAX,
    ])
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
