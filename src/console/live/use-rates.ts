import { useEffect, useState } from 'preact/hooks'

/** How fast a count has grown while the page was open. */
export interface Rates {
  /** Seconds since 1970. */
  times: number[]
  perSecond: number[]
}

interface Seen extends Rates {
  lastMs: number
  lastDone: number
}

/** Half an hour, at one value per three seconds. */
const POINTS_MAX = 600
/** Shorter gaps make a rate of chance. */
const GAP_MIN_MS = 2_500

export const addRate = (seen: Seen, done: number, nowMs: number): Seen => {
  const gapMs = nowMs - seen.lastMs
  if (gapMs < GAP_MIN_MS) return seen
  const perSecond = Math.max(0, ((done - seen.lastDone) * 1_000) / gapMs)
  return {
    times: [...seen.times, nowMs / 1_000].slice(-POINTS_MAX),
    perSecond: [...seen.perSecond, perSecond].slice(-POINTS_MAX),
    lastMs: nowMs,
    lastDone: done,
  }
}

export const useRates = (done: number): Rates => {
  const [seen, setSeen] = useState<Seen>(() => ({ times: [], perSecond: [], lastMs: Date.now(), lastDone: done }))
  useEffect(() => setSeen((before) => addRate(before, done, Date.now())), [done])
  return seen
}
