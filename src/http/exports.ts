import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { csvLine } from '../domain/csv.ts'
import { JSON_TYPE } from './app.ts'

/**
 * Whole lists as NDJSON or CSV. The source yields pages; one page is turned into one chunk, and the next page is read
 * only when the client has taken it. An error in the middle cuts the connection, so a client never takes half for whole.
 */

export const NDJSON = 'application/x-ndjson'
export const CSV = 'text/csv'

/** The three forms in which rows are given out. */
export const exported = <Page extends z.ZodType>(page: Page, description: string) => ({
  description,
  content: {
    [JSON_TYPE]: { schema: page },
    [NDJSON]: { schema: z.string().describe('One JSON object a line.') },
    [CSV]: {
      schema: z.string().describe('With a header row. Cells that a spreadsheet would run begin with an apostrophe.'),
    },
  },
})

export const sendStream = (
  request: FastifyRequest,
  reply: FastifyReply,
  mediaType: string,
  stream: Readable,
): FastifyReply => {
  reply.header('content-type', `${mediaType}; charset=utf-8`)
  // Fastify would read it to its end for a HEAD, with nobody there to stop it.
  if (request.method !== 'HEAD') return reply.send(stream)
  stream.destroy()
  return reply.send()
}

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
