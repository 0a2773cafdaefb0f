/**
 * Counts of a type that says `counts: ranges`, as callers without `ledger:read` see them: 0, 1 to 9, 10 to 99, and so on. The
 * lower end tells the range, so a figure that has room for one number only shows that.
 */
export interface CountRange {
  min: number
  max: number
}

/** `count` is a whole number from 0 on. */
export const countRange = (count: number): CountRange => {
  if (count < 1) return { min: 0, max: 0 }
  const min = 10 ** (String(Math.floor(count)).length - 1)
  return { min, max: min * 10 - 1 }
}

export const lowerEnd = (count: number): number => countRange(count).min

/** A share of 0 to 1 in tenths: what is exact would tell the counts that it is made of. */
export const inTenths = (ratio: number): number => Math.floor(ratio * 10) / 10

/** Of a type that this process does not know, nobody can say that they are not. */
export const areCountsSensitive = (type: { counts: 'exact' | 'ranges' } | undefined): boolean =>
  type?.counts !== 'exact'

/** Each of several counts by name. */
export const mapCounts = <Names extends string, T>(
  counts: Readonly<Record<Names, number>>,
  change: (count: number) => T,
): Record<Names, T> =>
  Object.fromEntries(Object.entries<number>(counts).map(([name, count]) => [name, change(count)])) as Record<Names, T>
