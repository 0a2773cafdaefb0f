import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { FAILURE_CLASSES, type FailureClass } from '../../../src/domain/failure.ts'
import { backoffMs, LOOKUPS_MAX, lookupDelayMs, retryAfterSeconds, retryDecision } from '../../../src/domain/retry.ts'

const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const ALMOST_ONE = 1 - Number.EPSILON

describe('backoffMs', () => {
  test.each([1, 16, 64, 1_100, 1_000_000])('attempt %i stays finite and within its cap (case 55)', (attempt) => {
    const delay = backoffMs({ attempt, baseMs: 500, maxMs: 30_000, random: ALMOST_ONE })
    expect(delay).toBeGreaterThan(0)
    expect(delay).toBeLessThanOrEqual(30_000)
  })

  test('always a whole number between 0 and the cap', () => {
    const attempts = fc.integer({ min: 0, max: 1_000_000 })
    fc.assert(
      fc.property(attempts, fc.nat(60_000), fc.nat(3_600_000), chance, (attempt, baseMs, maxMs, random) => {
        const delay = backoffMs({ attempt, baseMs, maxMs, random })
        expect(Number.isSafeInteger(delay)).toBe(true)
        expect(delay).toBeGreaterThanOrEqual(0)
        expect(delay).toBeLessThanOrEqual(maxMs)
      }),
    )
  })

  test('doubles, over the full width', () => {
    const at = (attempt: number, random: number) => backoffMs({ attempt, baseMs: 1_000, maxMs: 60_000, random })
    expect([1, 2, 3, 4].map((attempt) => at(attempt, 0.5))).toEqual([500, 1_000, 2_000, 4_000])
    expect(at(3, 0)).toBe(0)
  })
})

describe('retryDecision', () => {
  const decide = (failureClass: FailureClass, attempt: number) =>
    retryDecision({ failureClass, attempt, maxAttempts: 3, baseMs: 1_000, maxMs: 60_000, random: 0.5 })

  test('transient: retried until the attempts are used up, then a dead letter', () => {
    expect(decide('transient', 1)).toEqual({ kind: 'retry', delayMs: 500 })
    expect(decide('transient', 2)).toEqual({ kind: 'retry', delayMs: 1_000 })
    expect(decide('transient', 3)).toEqual({ kind: 'dead-letter' })
    expect(decide('transient', 4)).toEqual({ kind: 'dead-letter' })
  })

  test.each(FAILURE_CLASSES.filter((name) => name !== 'transient'))('%s: never retried', (failureClass) => {
    expect(decide(failureClass, 1)).toEqual({ kind: failureClass === 'bug_suspected' ? 'dead-letter' : 'final' })
  })
})

describe('retryAfterSeconds', () => {
  test('from 1 to 30 whole seconds, at any age', () => {
    const ages = fc.double({ min: 0, max: 1e12, noNaN: true })
    fc.assert(
      fc.property(ages, chance, (ageSeconds, random) => {
        const seconds = retryAfterSeconds({ ageSeconds, random })
        expect(Number.isInteger(seconds)).toBe(true)
        expect(seconds).toBeGreaterThanOrEqual(1)
        expect(seconds).toBeLessThanOrEqual(30)
      }),
    )
  })

  test('grows with the age, jittered', () => {
    expect([0, 60, 120, 3_600].map((ageSeconds) => retryAfterSeconds({ ageSeconds, random: 0.5 }))).toEqual([
      1, 6, 12, 30,
    ])
    expect([0, 0.5, ALMOST_ONE].map((random) => retryAfterSeconds({ ageSeconds: 120, random }))).toEqual([9, 12, 15])
  })
})

describe('lookupDelayMs', () => {
  test('doubles from 2 s to 15 min, at least half of it', () => {
    expect([0, 1, 2, 20, LOOKUPS_MAX, 1_000_000].map((lookups) => lookupDelayMs(lookups, 0))).toEqual([
      1_000, 2_000, 4_000, 450_000, 450_000, 450_000,
    ])
    expect(lookupDelayMs(0, 0.5)).toBe(1_500)
    expect(lookupDelayMs(1_000_000, ALMOST_ONE)).toBeLessThanOrEqual(900_000)
  })
})
