import { isUtf8 } from 'node:buffer'
import { pipeline, Readable } from 'node:stream'
import { CsvError, type InfoRecord, parse } from 'csv-parse'
import type { Fault } from '../domain/errors.ts'
import type { UploadRow } from '../services/requests.ts'
import { FORBIDDEN_KEYS } from './json-body.ts'
import { MAX_CSV_COLUMN_BYTES, MAX_CSV_COLUMNS, MAX_ITEM_KEY_BYTES, MAX_ROW_BYTES, ROWS_AT_A_TIME } from './limits.ts'
import { byteLength, findTextFault } from './text.ts'

interface CsvRecord {
  line: number
  cells: Buffer[]
}

const WORDS: Readonly<Record<string, string>> = {
  CSV_QUOTE_NOT_CLOSED: 'opens a quote that is never closed',
  CSV_INVALID_CLOSING_QUOTE: 'has text behind a closing quote; a quote within a quoted cell is written twice',
  INVALID_OPENING_QUOTE: 'has a quote within a cell that is not quoted; quote the cell, and write the quote twice',
  CSV_MAX_RECORD_SIZE: `is longer than ${MAX_ROW_BYTES} bytes`,
}

/**
 * The records of CSV (RFC 4180, with a header, in UTF-8) as rows: `keyColumn` holds the item's key, the other columns are the
 * members of its input, as texts. Blank lines are skipped, and counted. A row is named by the line that it begins on.
 */
export async function* readCsvRows(bytes: AsyncIterable<Buffer>, keyColumn: string): AsyncGenerator<UploadRow[]> {
  const lines = new LineCount()
  let header: Header | null = null
  let rows: UploadRow[] = []
  try {
    for await (const { line, cells } of records(bytes, lines)) {
      if (header === null) {
        const read = readHeader(cells, keyColumn)
        if ('faults' in read) {
          yield [{ line, faults: read.faults }]
          return
        }
        header = read
        continue
      }
      if (isBlank(cells)) continue
      rows.push({ line, ...toRow(header, cells) })
      if (rows.length < ROWS_AT_A_TIME) continue
      yield rows
      rows = []
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
    const blank = typeof error.empty_lines === 'number' ? error.empty_lines : 0
    rows.push({ line: lines.next(blank), faults: [{ detail: WORDS[error.code] ?? 'is not CSV', pointer: '' }] })
  }
  if (rows.length > 0) yield rows
}

const records = (bytes: AsyncIterable<Buffer>, lines: LineCount): AsyncIterable<CsvRecord> => {
  // Counted while parsing: an error discards the records that nobody has taken yet.
  const number = (cells: Buffer[], { empty_lines }: InfoRecord): CsvRecord => ({
    line: lines.of(cells, empty_lines),
    cells,
  })
  const parser = parse({
    // Cells come as bytes, so that what is not UTF-8 can be told from what is.
    encoding: null,
    // Its type knows cells as texts only.
    on_record: number as never,
    record_delimiter: ['\r\n', '\n'],
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: MAX_ROW_BYTES,
  })
  // Whoever iterates over the parser meets every error.
  pipeline(Readable.from(bytes, { highWaterMark: 1 }), parser, () => {})
  return parser
}

/** The parser's own count goes wrong at line breaks within quotes. */
class LineCount {
  #next = 1
  #blank = 0

  next(blank: number): number {
    return this.#next + blank - this.#blank
  }

  of(record: readonly Buffer[], blank: number): number {
    const line = this.next(blank)
    this.#next = line + 1
    this.#blank = blank
    for (const cell of record) {
      for (let at = cell.indexOf('\n'); at >= 0; at = cell.indexOf('\n', at + 1)) this.#next++
    }
    return line
  }
}

const isBlank = ([only, ...others]: readonly Buffer[]): boolean =>
  others.length === 0 && (only === undefined || only.toString('latin1').trim() === '')

interface Header {
  columns: readonly string[]
  keyIndex: number
}

const readHeader = (record: readonly Buffer[], keyColumn: string): Header | { faults: Fault[] } => {
  const fault = (detail: string) => ({ faults: [{ detail, pointer: '' }] })
  if (record.length > MAX_CSV_COLUMNS) return fault(`the header has more than ${MAX_CSV_COLUMNS} columns`)
  const columns: string[] = []
  for (const cell of record) {
    const { text, fault: wrong } = readCell(cell)
    if (wrong !== null) return fault(`the header ${wrong}`)
    if (text === '') return fault(`column ${columns.length + 1} of the header has no name`)
    if (byteLength(text) > MAX_CSV_COLUMN_BYTES)
      return fault(`a column's name has more than ${MAX_CSV_COLUMN_BYTES} bytes`)
    if (FORBIDDEN_KEYS.has(text)) return fault(`the column name ${text} is not allowed`)
    if (columns.includes(text)) return fault(`the header has two columns "${text}"`)
    columns.push(text)
  }
  const keyIndex = columns.indexOf(keyColumn)
  if (keyIndex < 0) return fault(`the header has no column "${keyColumn}": name the one with the keys in ?key=`)
  return { columns, keyIndex }
}

const toRow = (
  { columns, keyIndex }: Header,
  record: readonly Buffer[],
): { key: string; input: Record<string, string> } | { faults: Fault[] } => {
  if (record.length !== columns.length) {
    return { faults: [{ detail: `has ${record.length} cells, and the header ${columns.length}`, pointer: '' }] }
  }
  const input: Record<string, string> = {}
  let key = ''
  for (const [index, column] of columns.entries()) {
    const { text, fault } = readCell(record[index] as Buffer)
    if (fault !== null) return { faults: [{ detail: `the cell of "${column}" ${fault}`, pointer: '' }] }
    if (index === keyIndex) key = text
    else input[column] = text
  }
  const keyBytes = byteLength(key)
  if (keyBytes < 1 || keyBytes > MAX_ITEM_KEY_BYTES) {
    return { faults: [{ detail: `the key must be of 1 to ${MAX_ITEM_KEY_BYTES} bytes`, pointer: '/key' }] }
  }
  return { key, input }
}

const readCell = (cell: Buffer): { text: string; fault: string | null } => {
  if (!isUtf8(cell)) return { text: '', fault: 'is not valid UTF-8' }
  const text = cell.toString('utf8')
  return { text, fault: findTextFault(text) }
}
