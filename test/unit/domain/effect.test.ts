import { describe, expect, test } from 'vitest'
import {
  type ClaimDecision,
  claimDecision,
  EFFECT_STATES,
  type EffectState,
  type EvidenceDecision,
  type EvidenceState,
  evidenceDecision,
} from '../../../src/domain/effect.ts'

describe('claimDecision: who may send under a key', () => {
  const mine = { operationId: 'op_b', ord: 7, isLastStep: true }
  const byOther: Record<EffectState, ClaimDecision> = {
    intent: 'wait',
    applied: 'skip',
    uncertain: 'in-doubt',
    absent: 'claim',
    compensated: 'claim',
  }
  const byMyself: Record<EffectState, ClaimDecision> = { ...byOther, applied: 'known', uncertain: 'known' }

  test('an unknown key is free', () => {
    expect(claimDecision(null, mine)).toBe('claim')
  })

  test.each(EFFECT_STATES)('%s', (state) => {
    expect(claimDecision({ state, operationId: 'op_a', ord: 7 }, mine)).toBe(byOther[state])
    expect(claimDecision({ state, operationId: 'op_b', ord: 6 }, mine)).toBe(byOther[state])
    expect(claimDecision({ state, ...mine }, mine)).toBe(byMyself[state])
  })

  test('what is applied and is not the last step of the item lets it go on, whoever did it', () => {
    const between = { ...mine, isLastStep: false }
    for (const owner of [mine, { operationId: 'op_a', ord: 1 }]) {
      expect(claimDecision({ state: 'applied', ...owner }, between)).toBe('next-step')
    }
    expect(claimDecision({ state: 'absent', ...mine }, between)).toBe('claim')
  })

  test('a state from outside the union stops', () => {
    expect(() => claimDecision({ state: 'maybe' as never, ...mine }, mine)).toThrow('not a member of the union')
  })
})

describe('evidenceDecision: what evidence does to an effect', () => {
  const TABLE: Record<EffectState, Record<EvidenceState, EvidenceDecision>> = {
    intent: { applied: 'move', absent: 'move', uncertain: 'move' },
    uncertain: { applied: 'move', absent: 'move', uncertain: 'known' },
    applied: { applied: 'known', absent: 'contradiction', uncertain: 'known' },
    absent: { applied: 'move', absent: 'known', uncertain: 'known' },
    compensated: { applied: 'known', absent: 'known', uncertain: 'known' },
  }
  const cells = EFFECT_STATES.flatMap((state) =>
    (['applied', 'absent', 'uncertain'] as const).map((to) => ({ state, to, expected: TABLE[state][to] })),
  )

  test.each(cells)('$state, evidence $to: $expected', ({ state, to, expected }) => {
    const effect = { state, send: 2, operationId: 'op_a' }
    expect(evidenceDecision({ effect, evidence: { to, send: 2, operationId: 'op_a' } })).toBe(expected)
  })

  test.each(cells)('$state, evidence $to of another send or operation: overwrites nothing', ({ state, to }) => {
    const effect = { state, send: 2, operationId: 'op_a' }
    expect(evidenceDecision({ effect, evidence: { to, send: 1, operationId: 'op_a' } })).toBe('older-send')
    expect(evidenceDecision({ effect, evidence: { to, send: 2, operationId: 'op_b' } })).toBe('older-send')
  })

  test('a state from outside the union stops', () => {
    const effect = { state: 'maybe' as never, send: 1, operationId: 'op_a' }
    expect(() => evidenceDecision({ effect, evidence: { to: 'applied', send: 1, operationId: 'op_a' } })).toThrow(
      'not a member of the union',
    )
  })
})
