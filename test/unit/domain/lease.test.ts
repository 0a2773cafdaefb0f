import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  heartbeatMs,
  isHeartbeatLate,
  isHeartbeatMissed,
  isLeaseLost,
  leaseAdvice,
  leaseEndsMs,
  leaseHoldsCall,
  maySend,
  safetyMarginMs,
  sendByMs,
} from '../../../src/domain/lease.ts'

test.each([
  [30_000, 10_000, 2_000],
  [60_000, 10_000, 2_000],
  [6_000, 2_000, 600],
  [2_000, 666, 200],
  [500, 166, 100],
  [1, 1, 100],
])('a lease of %i ms: heartbeat %i, margin %i', (leaseMs, beat, margin) => {
  expect(heartbeatMs(leaseMs)).toBe(beat)
  expect(safetyMarginMs(leaseMs)).toBe(margin)
})

test('two lost beats do not cost a lease (case 9), and the worker stops before anybody may take over', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1_000, max: 3_600_000 }), fc.nat(), (leaseMs, askedAtMs) => {
      const ends = leaseEndsMs({ askedAtMs, leaseMs })
      expect(isLeaseLost({ nowMs: askedAtMs + 2 * heartbeatMs(leaseMs), leaseEndsMs: ends })).toBe(false)
      expect(isLeaseLost({ nowMs: ends, leaseEndsMs: ends })).toBe(true)
      expect(ends).toBeLessThan(askedAtMs + leaseMs)
    }),
  )
})

describe('maySend', () => {
  const window = { nowMs: 1_000, leaseEndsMs: 6_000, sendByMs: 1_000, callTimeoutMs: 5_000 }

  test.each([
    ['at the last instant', {}, true],
    ['the call could outlive the lease', { nowMs: 1_001, sendByMs: 9_000 }, false],
    ['the call takes too long', { callTimeoutMs: 5_001 }, false],
    ['after send_by', { nowMs: 1_000, sendByMs: 999 }, false],
    ['the lease is over', { nowMs: 6_000, sendByMs: 9_000, callTimeoutMs: 1 }, false],
  ])('%s', (_name, change, expected) => {
    expect(maySend({ ...window, ...change })).toBe(expected)
  })

  test('send_by is exactly the last instant the lease allows', () => {
    const by = sendByMs(window)
    expect(maySend({ ...window, nowMs: by, sendByMs: by })).toBe(true)
    expect(maySend({ ...window, nowMs: by + 1, sendByMs: by + 1 })).toBe(false)
  })
})

test('a call must fit into a lease', () => {
  expect(leaseHoldsCall({ leaseMs: 6_000, callTimeoutMs: 5_400 })).toBe(true)
  expect(leaseHoldsCall({ leaseMs: 6_000, callTimeoutMs: 5_401 })).toBe(false)
})

test('advice: two to three times the p95, never below the call timeout, none without a p95', () => {
  expect(leaseAdvice({ p95Ms: 4_000.2, callTimeoutMs: 5_000 })).toEqual({ minMs: 8_001, maxMs: 12_001 })
  expect(leaseAdvice({ p95Ms: 2_000, callTimeoutMs: 5_000 })).toEqual({ minMs: 5_000, maxMs: 6_000 })
  expect(leaseAdvice({ p95Ms: 10, callTimeoutMs: 5_000 })).toEqual({ minMs: 5_000, maxMs: 5_000 })
  expect(leaseAdvice({ p95Ms: null, callTimeoutMs: 5_000 })).toBeNull()
})

test.each([
  [14_999, false, false],
  [15_000, true, false],
  [20_000, true, false],
  [20_001, true, true],
])('%i ms without a beat under a lease of 30 s: late %s, missed %s', (sinceBeatMs, late, missed) => {
  expect(isHeartbeatLate({ sinceBeatMs, leaseMs: 30_000 })).toBe(late)
  expect(isHeartbeatMissed({ sinceBeatMs, leaseMs: 30_000 })).toBe(missed)
})
