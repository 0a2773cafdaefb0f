const WIDTHS_SECONDS = [60, 300, 900, 3_600, 21_600, 86_400, 604_800]
const BARS_MAX = 48

export interface Histogram {
  /** The beginnings of the bars, in seconds since 1970. */
  times: number[]
  counts: number[]
}

/** How many times fall into each of at most some 48 spans of one round width; empty spans count, too. */
export const histogram = (timesSeconds: readonly number[]): Histogram => {
  if (timesSeconds.length === 0) return { times: [], counts: [] }
  const [first, last] = [Math.min(...timesSeconds), Math.max(...timesSeconds)]
  const known = WIDTHS_SECONDS.find((width) => (last - first) / width < BARS_MAX)
  const width = known ?? Math.ceil((last - first) / BARS_MAX)
  const start = Math.floor(first / width) * width
  const bars = Math.floor((last - start) / width) + 1
  const counts = new Array<number>(bars).fill(0)
  for (const time of timesSeconds) {
    const bar = Math.floor((time - start) / width)
    counts[bar] = (counts[bar] ?? 0) + 1
  }
  return { times: counts.map((_count, bar) => start + bar * width), counts }
}
