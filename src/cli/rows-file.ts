/**
 * A file of rows as an upload: streamed, never in memory as a whole, and named by what is in it, so that the same command
 * after a crash is the same upload.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { CommandFailure, EXIT } from './exit-codes.ts'

export type Format = 'csv' | 'ndjson'

export interface RowsFile {
  path: string
  format: Format
  bytes: number
  /** Of the content, base64url. */
  sha256: string
}

export const CONTENT_TYPES: Readonly<Record<Format, string>> = { csv: 'text/csv', ndjson: 'application/x-ndjson' }

/** By its name, unless it is said. */
export const formatOf = (path: string, given: string | undefined): Format => {
  if (given === 'csv' || given === 'ndjson') return given
  if (given !== undefined) throw new CommandFailure(`--format: "${given}" is not one of csv, ndjson`, EXIT.usage)
  return /\.(ndjson|jsonl)$/i.test(path) ? 'ndjson' : 'csv'
}

/** Reads the file once, for its hash. */
export const openRowsFile = async (path: string, format: Format): Promise<RowsFile> => {
  try {
    const found = await stat(path)
    // a pipe could be read only once, and a crash would leave nothing to repeat
    if (!found.isFile()) throw new CommandFailure(`${path} is not a file: save the rows in one first`, EXIT.usage)
    const hash = createHash('sha256')
    let bytes = 0
    for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
      hash.update(chunk)
      bytes += chunk.length
    }
    return { path, format, bytes, sha256: hash.digest('base64url') }
  } catch (error) {
    if (error instanceof CommandFailure) throw error
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error)
    throw new CommandFailure(`${path} cannot be read (${code})`, EXIT.usage, { cause: error })
  }
}

/**
 * The content for one request. If it is not what was hashed, the stream fails before its end: the service then adds nothing,
 * since an upload is taken whole or not at all.
 */
export const readRows = (file: RowsFile, onBytes: (sent: number) => void): Readable =>
  Readable.from(checkedChunks(file, onBytes), { objectMode: false })

async function* checkedChunks(file: RowsFile, onBytes: (sent: number) => void): AsyncGenerator<Buffer> {
  const hash = createHash('sha256')
  let sent = 0
  // one chunk is held back, so that the check comes before the last byte
  let held: Buffer | null = null
  for await (const chunk of createReadStream(file.path) as AsyncIterable<Buffer>) {
    hash.update(chunk)
    if (held !== null) yield held
    sent += held?.length ?? 0
    onBytes(sent)
    held = chunk
  }
  if (hash.digest('base64url') !== file.sha256) {
    throw new CommandFailure(`${file.path} was changed while it was being read: nothing was added`, EXIT.refused, {
      hints: ['Run the same command again when nobody writes to the file any more.'],
    })
  }
  if (held !== null) yield held
  onBytes(file.bytes)
}
