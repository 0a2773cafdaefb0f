import { describe, expect, test } from 'vitest'
import {
  CASE_CAUSES,
  decideLookup,
  decideResolution,
  type LookupDecision,
  type LookupFacts,
  mayResend,
  type ResolutionDecision,
} from '../../../src/domain/reconciliation.ts'
import { LOOKUPS_MAX } from '../../../src/domain/retry.ts'

test('causes are spelled as they are stored', () => {
  expect(new Set(CASE_CAUSES).size).toBe(5)
  for (const cause of CASE_CAUSES) expect(cause).toMatch(/^[a-z_]+$/)
})

describe('decideLookup (F20)', () => {
  const facts: LookupFacts = {
    outcome: 'absent',
    stable: true,
    onAbsent: 'retry',
    attempt: 1,
    maxAttempts: 3,
    cancelled: false,
    lookups: 1,
  }
  test.each<[string, Partial<LookupFacts>, LookupDecision]>([
    ['applied', { outcome: 'applied' }, { kind: 'applied' }],
    ['applied, long after everything', { outcome: 'applied', cancelled: true, attempt: 9 }, { kind: 'applied' }],
    ['applied needs no stability', { outcome: 'applied', stable: false }, { kind: 'applied' }],
    ['unknown', { outcome: 'unknown' }, { kind: 'wait', reason: 'unknown' }],
    ['unknown too often', { outcome: 'unknown', lookups: LOOKUPS_MAX }, { kind: 'by-hand' }],
    ['absent too early', { stable: false }, { kind: 'wait', reason: 'absent-not-stable' }],
    ['absent too early, cancelled', { stable: false, cancelled: true }, { kind: 'wait', reason: 'absent-not-stable' }],
    ['absent', {}, { kind: 'absent-retry' }],
    ['absent, attempts used up', { attempt: 3 }, { kind: 'absent-failed', deadLetter: true }],
    ['absent after a cancel: no retry', { cancelled: true }, { kind: 'absent-failed', deadLetter: false }],
    ['absent, the type leaves it to a person', { onAbsent: 'case' }, { kind: 'by-hand' }],
    ['the same after a cancel', { onAbsent: 'case', cancelled: true }, { kind: 'by-hand' }],
  ])('%s', (_name, change, expected) => {
    expect(decideLookup({ ...facts, ...change })).toEqual(expected)
  })

  test('an outcome from outside the union stops', () => {
    expect(() => decideLookup({ ...facts, outcome: 'maybe' as never })).toThrow('not a member of the union')
  })
})

test.each<['applied' | 'not_applied', boolean, boolean, ResolutionDecision]>([
  ['applied', false, false, { kind: 'applied' }],
  ['applied', true, true, { kind: 'applied' }],
  ['not_applied', false, false, { kind: 'absent-failed', deadLetter: false }],
  ['not_applied', true, false, { kind: 'absent-retry' }],
  ['not_applied', true, true, { kind: 'absent-failed', deadLetter: false }],
])('a person says %s, retry %s, cancelled %s', (resolution, retry, cancelled, expected) => {
  expect(decideResolution({ resolution, retry, cancelled })).toEqual(expected)
})

describe('mayResend: the one repeat without evidence', () => {
  const facts = { providerIdempotentMs: 3_600_000, ageMs: 0, attempt: 1, maxAttempts: 3, cancelled: false }

  test.each([
    ['declared, young, attempts left', {}, true],
    ['not declared', { providerIdempotentMs: 0 }, false],
    ['the promise has run out', { ageMs: 3_600_000 }, false],
    ['attempts used up', { attempt: 3 }, false],
    ['after a cancel', { cancelled: true }, false],
  ])('%s', (_name, change, expected) => {
    expect(mayResend({ ...facts, ...change })).toBe(expected)
  })
})
