import { describe, expect, it, test } from 'vitest'
import {
  giveBack,
  parseRateLimits,
  RATE_LIMITS_DEFAULT,
  RATE_POLICIES,
  RATE_WINDOW_SECONDS,
  standing,
  take,
} from '../../../src/domain/rate-limit.ts'

const PER_SECOND = 5
const FULL = PER_SECOND * RATE_WINDOW_SECONDS
const NOW = 1_000_000

/** Takes at one instant until it is refused. */
const drain = (
  fullAtMs: number,
  isReserved: boolean,
  nowMs = NOW,
): { granted: number; fullAtMs: number; retryInMs: number } => {
  let at = fullAtMs
  for (let granted = 0; ; granted++) {
    const taken = take(at, PER_SECOND, nowMs, isReserved)
    if (!taken.granted) return { granted, fullAtMs: at, retryInMs: taken.retryInMs }
    at = taken.fullAtMs
  }
}

describe('a bucket', () => {
  it('holds what comes in in a window, and then one request an interval', () => {
    const empty = drain(0, false)
    expect(empty).toMatchObject({ granted: FULL, retryInMs: 1_000 / PER_SECOND })
    expect(drain(empty.fullAtMs, false, NOW + 999)).toMatchObject({ granted: 4 })
    expect(drain(empty.fullAtMs, false, NOW + 1_000)).toMatchObject({ granted: 5 })
    expect(drain(empty.fullAtMs, false, NOW + 3_600_000)).toMatchObject({ granted: FULL })
  })

  it.each([1, 3, 7, 49, 500])('of %d a second holds ten times as many, to the last one', (perSecond) => {
    let fullAtMs = 0
    for (let left = perSecond * RATE_WINDOW_SECONDS; left > 0; left--) {
      expect(standing(fullAtMs, perSecond, NOW).remaining).toBe(left)
      const taken = take(fullAtMs, perSecond, NOW, false)
      expect(taken.granted).toBe(true)
      fullAtMs = taken.granted ? taken.fullAtMs : Number.NaN
    }
    expect(take(fullAtMs, perSecond, NOW, false).granted).toBe(false)
  })

  it('lets a reserved request go on for as much again, which the others wait out', () => {
    const empty = drain(0, false)
    const spent = drain(empty.fullAtMs, true)
    expect(spent.granted).toBe(FULL)
    const plain = take(spent.fullAtMs, PER_SECOND, NOW, false)
    expect(plain).toEqual({ granted: false, retryInMs: RATE_WINDOW_SECONDS * 1_000 + 1_000 / PER_SECOND })
  })

  it('takes back what it granted, and nothing more', () => {
    const empty = drain(0, false)
    const fullAtMs = giveBack(giveBack(empty.fullAtMs, PER_SECOND), PER_SECOND)
    expect(drain(fullAtMs, false)).toEqual({ ...empty, granted: 2 })
  })

  it('tells how it stands', () => {
    expect(standing(0, PER_SECOND, NOW)).toEqual({ remaining: FULL, fullInSeconds: 0 })
    const one = take(0, PER_SECOND, NOW, false)
    const fullAtMs = one.granted ? one.fullAtMs : 0
    expect(standing(fullAtMs, PER_SECOND, NOW)).toEqual({ remaining: FULL - 1, fullInSeconds: 1 })
    expect(standing(giveBack(fullAtMs, PER_SECOND), PER_SECOND, NOW)).toEqual({ remaining: FULL, fullInSeconds: 0 })
    const empty = drain(0, true)
    expect(standing(empty.fullAtMs, PER_SECOND, NOW)).toEqual({ remaining: 0, fullInSeconds: 2 * RATE_WINDOW_SECONDS })
  })
})

test.each([
  ['read=7', { ...RATE_LIMITS_DEFAULT, read: 7 }],
  [' write=1,work=1000000  address=3 ', { ...RATE_LIMITS_DEFAULT, write: 1, work: 1_000_000, address: 3 }],
  ['read=1 read=2', { ...RATE_LIMITS_DEFAULT, read: 2 }],
  ['', null],
  ['read', null],
  ['read=', null],
  ['read=0', null],
  ['read=1.5', null],
  ['read=1000001', null],
  ['delete=1', null],
  ['read=1;write=2', null],
])('%j means %j', (text, limits) => expect(parseRateLimits(text)).toEqual(limits))

test('a kind of request that is not named keeps a limit', () => {
  const limits = parseRateLimits('read=7')
  for (const policy of RATE_POLICIES) expect(limits?.[policy]).toBeGreaterThanOrEqual(1)
})
