/**
 * Call times as a histogram with fixed bounds: it can be added up over workers and minutes, which percentiles cannot.
 * A quantile read back from it is off by less than the width of its bucket.
 */

/** Upper bounds in ms, inclusive; what is slower falls into one more bucket. Stored by position: only ever append. */
export const LATENCY_BOUNDS_MS: readonly number[] = [
  1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000,
  15_000, 20_000, 30_000, 60_000, 120_000, 300_000,
]

const BUCKETS = LATENCY_BOUNDS_MS.length + 1
const SLOWEST_MS = LATENCY_BOUNDS_MS.at(-1) as number

/** Calls per bucket. */
export type Latency = readonly number[]

export const emptyLatency = (): number[] => new Array<number>(BUCKETS).fill(0)

/** The bucket of a call time; a time that is no number counts as the slowest, so that it is seen. */
export const bucketOf = (durationMs: number): number => {
  const bucket = LATENCY_BOUNDS_MS.findIndex((bound) => durationMs <= bound)
  return bucket === -1 ? BUCKETS - 1 : bucket
}

export const addDuration = (latency: Latency, durationMs: number): Latency => {
  const slot = bucketOf(durationMs)
  return latency.map((calls, bucket) => (bucket === slot ? calls + 1 : calls))
}

/** Both together. A shorter one (written before bounds were appended) counts as zero in the buckets it lacks. */
export const mergeLatency = (left: Latency, right: Latency): Latency =>
  Array.from({ length: Math.max(left.length, right.length) }, (_, bucket) => (left[bucket] ?? 0) + (right[bucket] ?? 0))

/**
 * The time in ms that the share `quantile` (over 0, at most 1) of the calls did not exceed, interpolated within its
 * bucket, to a tenth; the largest bound for what is slower. Null without calls.
 */
export const latencyQuantile = (latency: Latency, quantile: number): number | null => {
  const calls = latency.reduce((sum, count) => sum + count, 0)
  if (calls === 0) return null
  const rank = quantile * calls
  let reached = 0
  const bucket = latency.findIndex((count) => {
    reached += count
    return count > 0 && reached >= rank
  })
  const upperMs = LATENCY_BOUNDS_MS[bucket]
  if (upperMs === undefined) return SLOWEST_MS
  const lowerMs = LATENCY_BOUNDS_MS[bucket - 1] ?? 0
  const timeMs = lowerMs + (upperMs - lowerMs) * (1 - (reached - rank) / (latency[bucket] as number))
  return Math.round(timeMs * 10) / 10
}
