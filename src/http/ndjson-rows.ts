import { AppError } from '../domain/errors.ts'
import type { UploadRow } from '../services/requests.ts'
import { parseJsonBody } from './json-body.ts'
import { MAX_ROW_BYTES, ROWS_AT_A_TIME } from './limits.ts'
import { ItemBody } from './routes/submit-body.ts'
import { toFaults } from './validation.ts'

const LINE_FEED = 0x0a

/** The lines of NDJSON as rows, under the rules of any JSON body. Blank lines are skipped, and counted. */
export async function* readNdjsonRows(bytes: AsyncIterable<Buffer>): AsyncGenerator<UploadRow[]> {
  let line = 1
  let begun: Buffer[] = []
  let begunBytes = 0
  for await (const chunk of bytes) {
    let rows: UploadRow[] = []
    let from = 0
    for (let to = chunk.indexOf(LINE_FEED); to >= 0; to = chunk.indexOf(LINE_FEED, from)) {
      const end = chunk.subarray(from, to)
      const row = readLine(begunBytes === 0 ? end : Buffer.concat([...begun, end]), line++)
      if (row) rows.push(row)
      begun = []
      begunBytes = 0
      from = to + 1
      if (rows.length < ROWS_AT_A_TIME) continue
      yield rows
      rows = []
    }
    if (from < chunk.length) begun.push(chunk.subarray(from))
    begunBytes += chunk.length - from
    // A line is refused before it has arrived in full: it may never end.
    if (begunBytes > MAX_ROW_BYTES) rows.push(tooLong(line))
    if (rows.length > 0) yield rows
    if (begunBytes > MAX_ROW_BYTES) return
  }
  const last = readLine(Buffer.concat(begun), line)
  if (last) yield [last]
}

const tooLong = (line: number): UploadRow => ({
  line,
  faults: [{ detail: `is longer than ${MAX_ROW_BYTES} bytes`, pointer: '' }],
})

const readLine = (text: Buffer, line: number): UploadRow | null => {
  if (text.length > MAX_ROW_BYTES) return tooLong(line)
  try {
    const value = parseJsonBody(text)
    if (value === undefined) return null
    const item = ItemBody.safeParse(value)
    if (item.success) return { line, ...item.data }
    return { line, faults: item.error.issues.flatMap((issue) => toFaults(issue, 'body')) }
  } catch (error) {
    if (error instanceof AppError && error.errors) return { line, faults: error.errors }
    throw error
  }
}
