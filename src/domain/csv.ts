/** CSV as every stream and file of the service has it: RFC 4180, CRLF. */

export type CsvValue = string | number | null

export const csvLine = (cells: readonly CsvValue[]): string => `${cells.map(csvCell).join(',')}\r\n`

/**
 * What spreadsheets would run as a formula is prefixed with an apostrophe, the full-width signs too, which some read as the
 * plain ones; null is an empty cell.
 */
export const csvCell = (value: CsvValue): string => {
  if (value === null) return ''
  if (typeof value === 'number') return String(value)
  const text = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
