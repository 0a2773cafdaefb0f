/** Texts for people. What comes from elsewhere is made harmless first: an item key must not move the cursor. */

const CONTROL = /[\p{Cc}\p{Cf}\p{Surrogate}\u2028\u2029]/gu

/** Control characters, and those that turn the direction of a line, as `\u{…}`. */
export const printable = (text: string): string =>
  text.replace(CONTROL, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)

export const wholeNumber = (value: number): string => Math.round(value).toLocaleString('en')

/** `2,300 items`, `1 item`. */
export const countOf = (count: number, noun: string): string => `${wholeNumber(count)} ${noun}${count === 1 ? '' : 's'}`

/** In its two largest units: `1 h 5 min`, `42 s`. */
export const duration = (seconds: number): string => {
  const whole = Math.max(0, Math.ceil(seconds))
  if (whole < 60) return `${whole} s`
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`
  if (whole < 86_400) return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3_600)} h`
}

/** Left-aligned columns, two spaces between; numbers to the right. The last column is not padded. */
export const table = (rows: readonly (readonly (string | number)[])[], indent = ''): string => {
  const cells = rows.map((row) => row.map((cell) => (typeof cell === 'number' ? wholeNumber(cell) : printable(cell))))
  const widths: number[] = []
  for (const row of cells) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length)
  }
  return cells
    .map((row, line) =>
      row
        .map((cell, at) => {
          const width = widths[at] ?? 0
          if (typeof rows[line]?.[at] === 'number') return cell.padStart(width)
          return at === row.length - 1 ? cell : cell.padEnd(width)
        })
        .join('  '),
    )
    .map((line) => `${indent}${line.trimEnd()}\n`)
    .join('')
}
