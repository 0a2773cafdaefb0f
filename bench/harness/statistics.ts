/** Figures of repeated runs. None of these functions changes its argument. */

const sorted = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b)

/** The value below which a share `q` (0 to 1) of the values lies, between two of them in proportion. Of nothing: NaN. */
export const quantile = (values: readonly number[], q: number): number => {
  const ascending = sorted(values)
  const position = (ascending.length - 1) * q
  const below = ascending[Math.floor(position)] ?? Number.NaN
  const above = ascending[Math.ceil(position)] ?? Number.NaN
  return below + (above - below) * (position - Math.floor(position))
}

export const median = (values: readonly number[]): number => quantile(values, 0.5)

/** Smallest and largest. */
export const spreadOf = (values: readonly number[]): [number, number] => [Math.min(...values), Math.max(...values)]

/**
 * One ratio a round: what both sides did in the same round met the same machine, so that its mood cancels out. Throws where
 * a round lacks a side, as the ratio would then compare two moods.
 */
export const ratiosOf = (ours: readonly number[], theirs: readonly number[]): number[] => {
  if (ours.length !== theirs.length) throw new Error(`${ours.length} rounds here and ${theirs.length} there`)
  return ours.map((value, round) => value / (theirs[round] ?? Number.NaN))
}
