import { expect, it } from 'vitest'
import { seededRandom } from '../../support/random.ts'
import { growthOf, type Sample } from './growth.ts'

/** Ten minutes. */
const COUNT = 120
const EVERY_MS = 5_000

/** A process whose pool has so many connections; each of them holds eight listeners and a descriptor. */
const samples = (
  connectionsAt: (n: number) => number,
  { leak = 0, noise = 0 }: { leak?: number; noise?: number } = {},
): Sample[] => {
  const random = seededRandom(30)
  return Array.from({ length: COUNT }, (_, n) => {
    const connections = connectionsAt(n)
    const left = Math.floor(n / 6) * leak // one for each fault
    return {
      atMs: n * EVERY_MS,
      heapBytes: 30_000_000,
      handles: 10 + left,
      listeners: 100 + 8 * connections + 2 * left + random.below(noise + 1),
      descriptors: 30 + connections + left,
      connections,
    }
  })
}
/** As after a restart, in the first minutes, of a pool of 13. */
const filling = (n: number): number => Math.min(13, 3 + Math.floor(n / 8))

it('a pool that fills is no growth', () => {
  for (const noise of [0, 6]) {
    const seen = samples(filling, { noise })
    expect(Math.abs(growthOf(seen, 'listeners').growth)).toBeLessThan(1 + noise / 2)
    expect(Math.abs(growthOf(seen, 'descriptors').growth)).toBeLessThan(0.01)
  }
})

it('what a fault leaves behind is growth, whatever the pool does', () => {
  for (const connections of [filling, () => 13, (n: number) => 13 - (n % 40 < 20 ? 6 : 0)]) {
    const seen = samples(connections, { leak: 1, noise: 6 })
    for (const [figure, left] of [
      ['handles', 19],
      ['descriptors', 19],
      ['listeners', 38],
    ] as const) {
      expect(Math.abs(growthOf(seen, figure).growth - left), figure).toBeLessThan(left / 4)
    }
  }
})

it('what does not change has not grown', () => {
  expect(
    growthOf(
      samples(() => 5),
      'heapBytes',
    ),
  ).toEqual({ figure: 'heapBytes', mean: 30_000_000, growth: 0 })
})
