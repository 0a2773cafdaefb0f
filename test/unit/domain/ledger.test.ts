import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { conserves, EVIDENCE_SOURCES, type FoldableEntry, fold, ITEM_STATES } from '../../../src/domain/ledger.ts'
import { conservation } from '../../../src/domain/operation.ts'

test('the unions are closed', () => {
  expect(ITEM_STATES).toEqual(['applied', 'skipped', 'failed', 'uncertain'])
  expect(EVIDENCE_SOURCES).toEqual(['worker', 'late_worker', 'lookup', 'callback', 'operator', 'recovery'])
})

describe('fold', () => {
  test.each<[string, FoldableEntry[], FoldableEntry | null]>([
    ['nothing: unprocessed', [], null],
    ['observations only: unprocessed', [{ seq: 1, state: null }], null],
    [
      'the latest state',
      [
        { seq: 1, state: 'failed' },
        { seq: 2, state: 'applied' },
      ],
      { seq: 2, state: 'applied' },
    ],
    [
      'by seq, not by place',
      [
        { seq: 2, state: 'applied' },
        { seq: 1, state: 'failed' },
      ],
      { seq: 2, state: 'applied' },
    ],
    [
      'an observation does not replace the outcome',
      [
        { seq: 1, state: 'uncertain' },
        { seq: 2, state: null },
      ],
      { seq: 1, state: 'uncertain' },
    ],
  ])('%s', (_name, entries, expected) => {
    expect(fold(entries)).toEqual(expected)
  })

  test('the order of reading does not matter', () => {
    const entry = fc.record({ seq: fc.nat(1_000), state: fc.constantFrom(null, ...ITEM_STATES) })
    fc.assert(
      fc.property(fc.uniqueArray(entry, { selector: ({ seq }) => seq }), (entries) => {
        expect(fold(entries.toReversed())).toEqual(fold(entries))
      }),
    )
  })
})

describe('conserves', () => {
  const counts = { total: 10, applied: 4, skipped: 1, failed: 2, uncertain: 1, unprocessed: 2 }

  test('holds for what conservation() completes', () => {
    expect(conserves(counts)).toBe(true)
    expect(conserves({ ...counts, applied: 8, skipped: 0, failed: 0, uncertain: 0 })).toBe(true)
    expect(conserves(conservation({ total: 10, applied: 4, skipped: 1, failed: 2, uncertain: 1 }))).toBe(true)
  })

  test.each([
    ['an item counted twice (case 47)', { applied: 5 }],
    ['an item lost', { failed: 1 }],
    ['a negative count that makes the sum right', { unprocessed: -1, applied: 7 }],
  ])('does not hold with %s', (_name, change) => {
    expect(conserves({ ...counts, ...change })).toBe(false)
  })
})
