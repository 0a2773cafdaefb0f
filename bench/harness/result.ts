import { median, spreadOf } from './statistics.ts'

/** One line of `results.json` and of the table in the README. */
export interface Result {
  /** `B1` … `B10`. */
  id: string
  what: string
  against: string
  /** Median over the rounds. Null: it was not measured, and `note` says why. */
  ratio: number | null
  goal: string
  /** Never true of what was not measured. */
  met: boolean
  /** Rounds, or samples, that were counted. */
  runs: number
  /** Smallest and largest ratio. */
  spread: [number, number] | null
  /** The figures behind the ratio, with their units: printed, not promised. */
  absolute: string
  /** What a reader has to know about this line; null: nothing. */
  note: string | null
  /** On which it was measured: the lines of a table may be of several days. */
  date: string
}

/** As in 2026-12-01 (UTC). */
export const today = (): string => new Date().toISOString().slice(0, 10)

/** A bound that a ratio has to keep. */
export interface Goal {
  text: string
  holds(ratio: number): boolean
}

export const atLeast = (bound: number): Goal => ({ text: `≥ ${bound}`, holds: (ratio) => ratio >= bound })
export const atMost = (bound: number): Goal => ({ text: `≤ ${bound}`, holds: (ratio) => ratio <= bound })

export interface Measured {
  id: string
  what: string
  against: string
  goal: Goal
  /** One a round. */
  ratios: readonly number[]
  /** Default: as many as there are ratios. */
  runs?: number
  absolute: string
  note?: string
}

/** Holds the median of the ratios against the goal. A ratio that is no number is a fault of the bench, and throws. */
export const judge = ({ id, what, against, goal, ratios, runs, absolute, note }: Measured): Result => {
  const ratio = median(ratios)
  if (!Number.isFinite(ratio)) throw new Error(`${id}: ${what} against ${against} gave no ratio`)
  return {
    id,
    what,
    against,
    ratio,
    goal: goal.text,
    met: goal.holds(ratio),
    runs: runs ?? ratios.length,
    spread: spreadOf(ratios),
    absolute,
    note: note ?? null,
    date: today(),
  }
}

/** What could not be measured here. It is told with its reason, and is not met. */
export const skipped = (line: Pick<Result, 'id' | 'what' | 'against'> & { goal: Goal; reason: string }): Result => ({
  id: line.id,
  what: line.what,
  against: line.against,
  ratio: null,
  goal: line.goal.text,
  met: false,
  runs: 0,
  spread: null,
  absolute: '',
  note: `skipped: ${line.reason}`,
  date: today(),
})
