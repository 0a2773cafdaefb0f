import { expect, test } from 'vitest'
import { openClosers } from '../../../bench/harness/closers.ts'
import { interleave, short } from '../../../bench/harness/interleave.ts'
import { growth } from '../../../bench/harness/memory.ts'
import { median, quantile, ratiosOf, spreadOf } from '../../../bench/harness/statistics.ts'

test('a median lies in the middle of what was measured, in whatever order that came', () => {
  expect(median([3, 1, 2])).toBe(2)
  expect(median([4, 1, 2, 3])).toBe(2.5)
  expect(median([])).toBeNaN()
})

test('a quantile lies between two values in proportion, and changes no order', () => {
  const values = [40, 10, 20, 30, 50]
  expect(quantile(values, 0)).toBe(10)
  expect(quantile(values, 1)).toBe(50)
  expect(quantile(values, 0.95)).toBeCloseTo(48)
  expect(spreadOf(values)).toEqual([10, 50])
  expect(values).toEqual([40, 10, 20, 30, 50])
})

test('a ratio compares what was measured in the same round', () => {
  expect(ratiosOf([10, 20], [5, 40])).toEqual([2, 0.5])
  expect(() => ratiosOf([1, 2], [1])).toThrow('2 rounds here and 1 there')
})

test('every side has its turn in each round, in a changing order, and the warm-up is not counted', async () => {
  const turns: string[] = []
  let settled = 0
  const side = (name: string) => async () => turns.push(name)
  const figures = await interleave(
    { a: side('a'), b: side('b'), c: side('c') },
    { rounds: 2, settle: async () => settled++, say: () => {} },
  )
  expect(turns.map((_, index) => turns.slice(index, index + 3)).filter((_, index) => index % 3 === 0)).toEqual([
    ['a', 'b', 'c'],
    ['a', 'c', 'b'],
    ['c', 'a', 'b'],
  ])
  expect(settled).toBe(9)
  expect(figures).toEqual({ a: [4, 8], b: [6, 9], c: [5, 7] })
})

test('figures are told with the digits that matter', () => {
  expect([0.123456, 12.345, 999.9, 6_400.4, 58_123].map(short)).toEqual(['0.123', '12.3', '1000', '6,400', '58,123'])
})

test('memory is flat where its second half stands no higher than its first', () => {
  expect(growth([50, 100, 90, 100])).toBe(1)
  expect(growth([50, 100, 150, 120])).toBe(1.5)
  expect(growth([100])).toBe(1)
})

test('what was opened last is closed first, and one that fails keeps none of the others open', async () => {
  const closed: string[] = []
  const closers = openClosers()
  closers.add(() => closed.push('database'))
  closers.add(() => Promise.reject(new Error('it hangs')))
  closers.add(() => closed.push('api'))
  await expect(closers.closeAll()).rejects.toThrow('it hangs')
  expect(closed).toEqual(['api', 'database'])
  await expect(closers.closeAll()).resolves.toBeUndefined()
})
