/** How far an operation got. Every figure is a finite number, or null where there is none to give. */
import { type Counts, conservation } from './operation.ts'

/** A longer estimate says nothing, and its date could leave the range of one. */
const ETA_SECONDS_MAX = 365 * 86_400
/** Below a millisecond a rate would only measure the clock. */
const RUN_SECONDS_MIN = 0.001

export interface ProgressFacts {
  counts: Counts
  inFlight: number
  waiting: number
  /** From the start to now, or to the end; null: not started. */
  runSeconds: number | null
}

export interface Progress {
  /** Items with an outcome, as a share of all, cut (not rounded) to three digits: 1 means all. Null without items. */
  ratio: number | null
  ratePerSecond: number | null
  /** Null where nothing is left, nothing moved yet, or it would be more than a year. */
  etaSeconds: number | null
}

export const progress = ({ counts, inFlight, waiting, runSeconds }: ProgressFacts): Progress => {
  const { total, unprocessed } = conservation(counts)
  const processed = total - unprocessed
  // An item in flight or waiting may have an outcome from an earlier attempt, or none: neither sum alone is right.
  const left = Math.max(unprocessed, inFlight + waiting)
  const rate = runSeconds !== null && runSeconds > 0 ? processed / Math.max(runSeconds, RUN_SECONDS_MIN) : null
  const eta = rate !== null && rate > 0 && left > 0 ? Math.ceil(left / rate) : null
  return {
    ratio: total > 0 ? Math.floor((processed * 1_000) / total) / 1_000 : null,
    ratePerSecond: rate === null ? null : Math.round(rate * 10) / 10,
    etaSeconds: eta !== null && eta <= ETA_SECONDS_MAX ? eta : null,
  }
}
