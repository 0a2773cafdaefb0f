/** A seeded generator (mulberry32): what failed can be asked for again, as far as the timing of the machine allows. */
export interface Random {
  /** A whole number in [0, below). */
  below(below: number): number
  /** True once in `times`. */
  once(times: number): boolean
  pick<T>(values: readonly T[]): T
}

export const seededRandom = (seed: number): Random => {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (limit: number): number => Math.floor(next() * limit)
  return {
    below,
    once: (times) => below(times) === 0,
    pick: <T>(values: readonly T[]): T => values[below(values.length)] as T,
  }
}
