/**
 * Shows how far an operation got, on stderr, so that stdout has the result alone. On a terminal: one bar, redrawn in place.
 * Elsewhere: a line when the status changes, and now and then in between, so that the log of a run stays readable.
 */

import type { Operation } from './api-types.ts'
import { isFinal, statusInWords } from './status-words.ts'
import { duration, wholeNumber } from './text.ts'

const BAR_CELLS = 24
const PLAIN_EVERY_MS = 5_000
const CLEAR_LINE = '\r\u001b[2K'
const COLUMNS_DEFAULT = 80

/** As much of a `WriteStream` as is needed. */
export interface Output {
  isTTY?: boolean
  columns?: number
  write(text: string): unknown
}

export interface Progress {
  show(operation: Operation): void
  /** Any other state, such as an upload: `done` of `total`. */
  showWork(work: { label: string; done: number; total: number; note: string }): void
  /** Says something that stays. */
  note(text: string): void
  /** Leaves the cursor on a line of its own. */
  end(): void
}

const bar = (done: number, total: number): string => {
  const filled = total === 0 ? 0 : Math.min(BAR_CELLS, Math.floor((BAR_CELLS * done) / total))
  return `[${'#'.repeat(filled)}${'.'.repeat(BAR_CELLS - filled)}]`
}

const percent = (done: number, total: number): string =>
  `${String(total === 0 ? 0 : Math.floor((100 * done) / total)).padStart(3)} %`

/** Counts, rate, time left, and the status in words. */
export const describeProgress = (operation: Operation, now: number): string => {
  const { counts, progress } = operation
  const done = counts.total - counts.unprocessed
  const parts = [percent(done, counts.total), `${wholeNumber(done)}/${wholeNumber(counts.total)}`]
  if (!isFinal(operation) && progress.rate_per_second !== null) parts.push(`${wholeNumber(progress.rate_per_second)}/s`)
  if (progress.eta !== null) parts.push(`${duration((Date.parse(progress.eta) - now) / 1000)} left`)
  parts.push(statusInWords(operation))
  if (counts.failed > 0) parts.push(`${wholeNumber(counts.failed)} failed`)
  if (counts.uncertain > 0 && operation.status !== 'reconciliation_required') {
    parts.push(`${wholeNumber(counts.uncertain)} being checked`)
  }
  if (operation.stuck_signals.length > 0) parts.push(`! ${operation.stuck_signals.join(', ')}`)
  return parts.join('  ')
}

export const openProgress = (output: Output, now: () => number = Date.now): Progress => {
  const onTerminal = output.isTTY === true
  let drawn = false
  let lastStatus: string | null = null
  let plainAt = Number.NEGATIVE_INFINITY

  const draw = (line: string): void => {
    // a line that wraps could not be taken back
    output.write(`${CLEAR_LINE}${line.slice(0, (output.columns || COLUMNS_DEFAULT) - 1)}`)
    drawn = true
  }
  const say = (line: string): void => {
    output.write(`${line}\n`)
    plainAt = now()
  }
  const settle = (): void => {
    if (drawn) output.write('\n')
    drawn = false
  }

  return {
    show(operation) {
      const { counts, status } = operation
      const text = describeProgress(operation, now())
      if (onTerminal) draw(`${bar(counts.total - counts.unprocessed, counts.total)} ${text}`)
      else if (status !== lastStatus || now() - plainAt >= PLAIN_EVERY_MS) say(text)
      lastStatus = status
    },
    showWork({ label, done, total, note }) {
      const text = `${percent(done, total)}  ${label}  ${note}`
      if (onTerminal) draw(`${bar(done, total)} ${text}`)
      // work that is quick needs no line
      else if (plainAt === Number.NEGATIVE_INFINITY) plainAt = now()
      else if (now() - plainAt >= PLAIN_EVERY_MS) say(text)
    },
    note(text) {
      settle()
      say(text)
    },
    end: settle,
  }
}
