import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type ProgressFacts, progress } from '../../../src/domain/progress.ts'

const facts = (processed: number, total: number, change: Partial<ProgressFacts> = {}): ProgressFacts => ({
  counts: { total, applied: processed, skipped: 0, failed: 0, uncertain: 0 },
  inFlight: 0,
  waiting: 0,
  runSeconds: 10,
  ...change,
})

test.each([
  ['under way', facts(25, 100), { ratio: 0.25, ratePerSecond: 2.5, etaSeconds: 30 }],
  ['not started', facts(0, 100, { runSeconds: null }), { ratio: 0, ratePerSecond: null, etaSeconds: null }],
  ['just started', facts(0, 100, { runSeconds: 0 }), { ratio: 0, ratePerSecond: null, etaSeconds: null }],
  ['nothing moved yet', facts(0, 100), { ratio: 0, ratePerSecond: 0, etaSeconds: null }],
  ['no items (case 73)', facts(0, 0), { ratio: null, ratePerSecond: 0, etaSeconds: null }],
  ['done', facts(100, 100), { ratio: 1, ratePerSecond: 10, etaSeconds: null }],
  ['almost done is not done', facts(99_999, 100_000), { ratio: 0.999, ratePerSecond: 9_999.9, etaSeconds: 1 }],
  [
    'retries are work left',
    facts(100, 100, { inFlight: 2, waiting: 8 }),
    { ratio: 1, ratePerSecond: 10, etaSeconds: 1 },
  ],
  [
    'just a year',
    facts(1, 1 + 365 * 86_400, { runSeconds: 1 }),
    { ratio: 0, ratePerSecond: 1, etaSeconds: 365 * 86_400 },
  ],
  ['a second more', facts(1, 2 + 365 * 86_400, { runSeconds: 1 }), { ratio: 0, ratePerSecond: 1, etaSeconds: null }],
  ['over a year', facts(1, 1e9), { ratio: 0, ratePerSecond: 0.1, etaSeconds: null }],
])('%s', (_name, given, expected) => {
  expect(progress(given)).toEqual(expected)
})

test('finite numbers or null, whatever the clock says (case 73)', () => {
  const runSeconds = fc.oneof(fc.double(), fc.constant(null), fc.constantFrom(Number.MIN_VALUE, Number.MAX_VALUE))
  fc.assert(
    fc.property(fc.nat(1e9), fc.nat(1e9), runSeconds, fc.nat(9), (processed, rest, seconds, inFlight) => {
      const figures = progress(facts(processed, processed + rest, { runSeconds: seconds, inFlight }))
      for (const figure of Object.values(figures)) expect(figure === null || Number.isFinite(figure)).toBe(true)
      expect(JSON.parse(JSON.stringify(figures))).toEqual(figures)
      if (figures.ratio === 1) expect(rest).toBe(0)
    }),
  )
})
