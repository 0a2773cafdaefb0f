/**
 * Shows how far operations got. On a terminal: one bar an operation, redrawn in place. Elsewhere: a plain line now and
 * then, so that a log of the run stays readable.
 */
const BAR_CELLS = 28
const PLAIN_EVERY_MS = 2_000
const CLEAR_LINE = '\u001b[2K'
const up = (lines: number): string => (lines > 0 ? `\u001b[${lines}A` : '')

export interface Progress {
  label: string
  /** Items with an outcome. */
  done: number
  total: number
  ratePerSecond: number | null
  /** RFC 3339, as the API tells it. */
  eta: string | null
  /** What else to say, for example the status and what is uncertain. */
  note: string
}

export interface ProgressDisplay {
  show(rows: readonly Progress[]): void
  /** Leaves the last state standing. */
  end(rows: readonly Progress[]): void
}

const number = (value: number): string => Math.round(value).toLocaleString('en')

const secondsUntil = (eta: string): string => `${Math.max(0, Math.ceil((Date.parse(eta) - Date.now()) / 1000))} s left`

const describe = ({ done, total, ratePerSecond, eta, note }: Progress): string => {
  const percent = total === 0 ? 100 : Math.floor((100 * done) / total)
  const parts = [`${String(percent).padStart(3)} %`, `${number(done)}/${number(total)}`]
  if (ratePerSecond !== null) parts.push(`${number(ratePerSecond)}/s`)
  if (eta !== null && done < total) parts.push(secondsUntil(eta))
  if (note !== '') parts.push(note)
  return parts.join('  ')
}

const bar = ({ done, total }: Progress): string => {
  const filled = total === 0 ? BAR_CELLS : Math.floor((BAR_CELLS * done) / total)
  return `[${'#'.repeat(filled)}${'.'.repeat(BAR_CELLS - filled)}]`
}

export const openDisplay = (output: NodeJS.WriteStream): ProgressDisplay => {
  let drawn = 0
  let plainAt = performance.now()
  const draw = (rows: readonly Progress[]): void => {
    // a line that wraps would break the count of lines to go up
    const lines = rows.map((row) =>
      `  ${row.label.padEnd(9)} ${bar(row)} ${describe(row)}`.slice(0, (output.columns || 100) - 1),
    )
    output.write(`${up(drawn)}${lines.map((line) => `${CLEAR_LINE}${line}\n`).join('')}`)
    drawn = lines.length
  }
  const print = (rows: readonly Progress[]): void => {
    for (const row of rows) output.write(`  ${row.label.padEnd(9)} ${describe(row)}\n`)
  }
  return {
    show(rows) {
      if (output.isTTY) return draw(rows)
      if (performance.now() - plainAt < PLAIN_EVERY_MS) return
      plainAt = performance.now()
      print(rows)
    },
    end(rows) {
      if (output.isTTY) draw(rows)
      else print(rows)
      drawn = 0
    },
  }
}
