import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  addDuration,
  bucketOf,
  emptyLatency,
  LATENCY_BOUNDS_MS,
  type Latency,
  latencyQuantile,
  mergeLatency,
} from '../../../src/domain/latency.ts'

const ofTimes = (times: readonly number[]): Latency => times.reduce<Latency>(addDuration, emptyLatency())

test('bounds grow, and there is one bucket for what is slower than all of them', () => {
  expect(LATENCY_BOUNDS_MS.every((bound, index) => bound > (LATENCY_BOUNDS_MS[index - 1] ?? 0))).toBe(true)
  expect(emptyLatency()).toHaveLength(LATENCY_BOUNDS_MS.length + 1)
})

test.each([
  [0, 0],
  [-1, 0],
  [1, 0],
  [1.01, 1],
  [300_000, LATENCY_BOUNDS_MS.length - 1],
  [300_001, LATENCY_BOUNDS_MS.length],
  [Number.NaN, LATENCY_BOUNDS_MS.length],
])('%d ms falls into bucket %i', (durationMs, bucket) => {
  expect(bucketOf(durationMs)).toBe(bucket)
})

test('a time that is added leaves the given histogram as it was', () => {
  const before = emptyLatency()
  expect(addDuration(before, 4)[3]).toBe(1)
  expect(before).toEqual(emptyLatency())
})

test('a shorter histogram, or an empty one, is added too', () => {
  expect(mergeLatency([1, 2], [1, 1, 5])).toEqual([2, 3, 5])
  expect(mergeLatency([1, 1, 5], [1, 2])).toEqual([2, 3, 5])
})

describe('latencyQuantile', () => {
  test.each([
    ['no calls', [], 0.95, null],
    ['one call', [100], 0.95, 98.5],
    ['one fast call', [0.2], 0.5, 0.5],
    ['half of two', [5, 100], 0.5, 5],
    ['all of one bucket', [18, 18], 1, 20],
    ['slower than any bound', [999_999], 0.95, 300_000],
  ])('%s', (_name, times, quantile, expected) => {
    expect(latencyQuantile(ofTimes(times), quantile)).toBe(expected)
  })

  test('a histogram from before bounds were appended', () => {
    expect(latencyQuantile([0, 10], 0.5)).toBe(1.5)
  })

  test('is within the bucket of the exact quantile, merged or not', () => {
    const times = fc.array(fc.double({ min: 0, max: 300_000, noNaN: true }), { minLength: 1, maxLength: 200 })
    fc.assert(
      fc.property(times, times, fc.constantFrom(0.5, 0.9, 0.95, 1), (left, right, quantile) => {
        const merged = mergeLatency(ofTimes(left), ofTimes(right))
        expect(merged).toEqual(ofTimes([...left, ...right]))
        const sorted = [...left, ...right].sort((a, b) => a - b)
        const exact = sorted[Math.ceil(quantile * sorted.length) - 1] as number
        const bucket = bucketOf(exact)
        const actual = latencyQuantile(merged, quantile)
        expect(actual).toBeGreaterThanOrEqual(LATENCY_BOUNDS_MS[bucket - 1] ?? 0)
        expect(actual).toBeLessThanOrEqual(LATENCY_BOUNDS_MS[bucket] as number)
      }),
    )
  })
})
