/**
 * What a figure was, as this browser has seen it: the service keeps no history of its figures. One value per five
 * minutes and figure, for a day.
 */
export type Sample = readonly [atMs: number, value: number]
export type Trends = Readonly<Record<string, readonly Sample[]>>

const SPACING_MS = 5 * 60_000
const KEPT_MS = 24 * 3_600_000

/** The latest value stands last and is replaced until its five minutes are over. */
export const addSample = (samples: readonly Sample[], atMs: number, value: number): Sample[] => {
  const kept = samples.filter(([at]) => at > atMs - KEPT_MS && at <= atMs)
  const before = kept.at(-2)
  const mayReplace = kept.length >= 2 && before !== undefined && atMs - before[0] < SPACING_MS
  return [...(mayReplace ? kept.slice(0, -1) : kept), [atMs, value]]
}

export const parseTrends = (text: string | null): Trends => {
  try {
    const value: unknown = JSON.parse(text ?? '{}')
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return {}
    return Object.fromEntries(
      Object.entries(value).map(([name, samples]) => [name, Array.isArray(samples) ? samples.filter(isSample) : []]),
    )
  } catch {
    return {}
  }
}

const isSample = (value: unknown): value is Sample =>
  Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === 'number')
