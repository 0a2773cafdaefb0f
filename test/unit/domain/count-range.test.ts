import { expect, test } from 'vitest'
import { areCountsSensitive, countRange, inTenths, lowerEnd, mapCounts } from '../../../src/domain/count-range.ts'

test.each([
  [0, 0, 0],
  [1, 1, 9],
  [9, 1, 9],
  [10, 10, 99],
  [99, 10, 99],
  [100, 100, 999],
  [523, 100, 999],
  [50_000, 10_000, 99_999],
  [1_000_000, 1_000_000, 9_999_999],
])('%i is in %i to %i, and the lower end tells so', (count, min, max) => {
  expect(countRange(count)).toEqual({ min, max })
  expect(lowerEnd(count)).toBe(min)
  expect(countRange(lowerEnd(count))).toEqual({ min, max })
})

test('a share is told in tenths, and never as whole before it is', () => {
  expect([0, 0.04, 0.46, 0.999, 1].map(inTenths)).toEqual([0, 0, 0.4, 0.9, 1])
})

test('several counts are changed by name', () => {
  expect(mapCounts({ applied: 12, failed: 0 }, lowerEnd)).toEqual({ applied: 10, failed: 0 })
})

test('counts of a type that nobody knows may be sensitive', () => {
  expect([undefined, { counts: 'ranges' as const }, { counts: 'exact' as const }].map(areCountsSensitive)).toEqual([
    true,
    true,
    false,
  ])
})
