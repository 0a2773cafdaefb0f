import { Readable } from 'node:stream'
import { csvLine } from '../domain/csv.ts'

/**
 * Whole lists as NDJSON or CSV. The source yields pages; one page is turned into one chunk, and the next page is read
 * only when the client has taken it. An error in the middle cuts the connection, so a client never takes half for whole.
 */

export const NDJSON = 'application/x-ndjson'
export const CSV = 'text/csv'

export type ExportRow = Readonly<Record<string, string | number | null>>

export const toNdjsonStream = <View>(pages: AsyncIterable<View[]>, toRow: (view: View) => unknown): Readable =>
  streamOf(chunks(pages, (view) => `${JSON.stringify(toRow(view))}\n`))

export const toCsvStream = <View>(
  pages: AsyncIterable<View[]>,
  columns: readonly string[],
  toRow: (view: View) => ExportRow,
): Readable =>
  streamOf(
    chunks(
      pages,
      (view) => {
        const row = toRow(view)
        return csvLine(columns.map((column) => row[column] ?? null))
      },
      csvLine(columns),
    ),
  )

async function* chunks<View>(pages: AsyncIterable<View[]>, toLine: (view: View) => string, head = '') {
  if (head !== '') yield head
  for await (const page of pages) if (page.length > 0) yield page.map(toLine).join('')
}

const streamOf = (source: AsyncIterable<string>): Readable => Readable.from(source, { objectMode: false })
