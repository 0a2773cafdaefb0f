import { AppError, type Fault } from '../domain/errors.ts'
import type { OperationType } from '../domain/operation-type.ts'
import type { Database } from '../storage/database.ts'
import { type ChunkTexts, ItemChunk } from '../storage/item-chunk.ts'
import type { SubmittedItem } from '../storage/submissions.ts'
import { readTakenKeys, storeChunk, type Upload } from '../storage/uploads.ts'
import { cellReader } from './cell-values.ts'
import { checkItem } from './check-item.ts'
import { whyUploadEnded } from './draft-refusals.ts'
import type { UploadRequest, UploadRow } from './requests.ts'

/** Of one transaction. */
const CHUNK_ROWS_MAX = 5_000
const CHUNK_BYTES_MAX = 4 * 1024 * 1024
/** Of one operation, over all uploads. */
export const DRAFT_ITEMS_MAX = 10_000_000
/** Faults named in one answer, and rows that are looked through for further ones after the first. */
const FAULTS_MAX = 100
const ROWS_AFTER_FAULT_MAX = CHUNK_ROWS_MAX

/**
 * Checks rows and appends them to the tail of a draft. The next chunk is read and checked while one is being stored; no more
 * is read than that, so a slow database slows the client down. Answers with the number of rows.
 */
export const storeRows = async (
  target: { database: Database; type: OperationType; upload: Upload; rootId: string },
  request: UploadRequest,
): Promise<number> => {
  const read = rowReader(target, request)
  const faults = new FaultList()
  const chunk = new ItemChunk()
  let lines: number[] = []
  let added = 0
  let storing: Promise<void> = Promise.resolve()

  const send = async (): Promise<void> => {
    await storing
    if (target.upload.fromOrd + added + chunk.count > DRAFT_ITEMS_MAX) throw tooManyItems()
    const sent = { added, lines, texts: chunk.take() }
    added += sent.lines.length
    lines = []
    storing = storeChunkOf(target, sent)
    // It is awaited before the next one; until then a failure is nobody's.
    storing.catch(() => {})
  }

  for await (const rows of request.rows) {
    for (const row of rows) {
      const checked = read(row)
      if ('faults' in checked) faults.add(row.line, checked)
      else if (faults.isEmpty) {
        chunk.push(checked)
        lines.push(row.line)
      } else faults.look()
      if (faults.isFull) break
      if (chunk.count >= CHUNK_ROWS_MAX || chunk.bytes >= CHUNK_BYTES_MAX) await send()
    }
    if (faults.isFull) break
  }
  if (!faults.isEmpty) {
    await storing
    throw faults.toError(target.type)
  }
  if (chunk.count > 0) await send()
  await storing
  return added
}

interface RefusedRow {
  faults: Fault[]
  /** Refused by the type; otherwise not even a row. */
  byType: boolean
}

const rowReader = (
  { type, rootId }: { type: OperationType; rootId: string },
  { cells }: UploadRequest,
): ((row: UploadRow) => SubmittedItem | RefusedRow) => {
  const readCells = cellReader(type.inputSchema)
  return (row) => {
    if ('faults' in row) return { faults: row.faults, byType: false }
    const input = cells === 'text' ? readCells(row.input as Record<string, string>) : row.input
    const checked = checkItem(type, { key: row.key, input }, rootId)
    if ('item' in checked) return checked.item
    const faults = checked.issues.map(({ detail, pointer }) => ({ detail, pointer: `/input${pointer}` }))
    return { faults, byType: true }
  }
}

/** The first faults of an upload, each with its line. */
class FaultList {
  readonly #faults: Fault[] = []
  #byType = true
  #rowsAfter = 0

  get isEmpty(): boolean {
    return this.#faults.length === 0
  }

  get isFull(): boolean {
    return this.#faults.length >= FAULTS_MAX || this.#rowsAfter >= ROWS_AFTER_FAULT_MAX
  }

  add(line: number, { faults, byType }: RefusedRow): void {
    this.#byType &&= byType
    this.#rowsAfter++
    for (const fault of faults) {
      if (this.#faults.length < FAULTS_MAX) this.#faults.push(atLine(line, fault))
    }
  }

  look(): void {
    if (!this.isEmpty) this.#rowsAfter++
  }

  toError(type: OperationType): AppError {
    const first = this.#faults[0]?.detail
    return this.#byType
      ? new AppError('invalid-item-input', `${type.name} refuses a row: ${first}; nothing was added`, {
          errors: this.#faults,
        })
      : new AppError('invalid-row', `a row cannot be read: ${first}; nothing was added`, { errors: this.#faults })
  }
}

const atLine = (line: number, fault: Fault): Fault => ({ ...fault, detail: `line ${line}: ${fault.detail}`, line })

interface SentChunk {
  /** Rows of the upload before this chunk. */
  added: number
  lines: readonly number[]
  texts: ChunkTexts
}

const storeChunkOf = async (
  { database, upload }: { database: Database; upload: Upload },
  chunk: SentChunk,
): Promise<void> => {
  const done = await database.query((connection) => storeChunk(connection, upload, chunk.added, chunk.texts))
  if (!done) throw await whyUploadEnded(database, upload)
  if (done.stored < chunk.texts.count) throw await duplicates(database, upload, chunk)
}

/** Which rows of a chunk have a key that was there before them. */
const duplicates = async (database: Database, upload: Upload, chunk: SentChunk): Promise<AppError> => {
  const taken = await database.query((connection) =>
    readTakenKeys(connection, upload, chunk.added, chunk.texts, FAULTS_MAX),
  )
  const errors = taken.map(({ index, key, takenBy }) => {
    const where =
      takenBy < upload.fromOrd ? 'is in the draft already' : `is that of row ${takenBy - upload.fromOrd + 1} too`
    return atLine(chunk.lines[index] ?? 0, { detail: `the key "${key}" ${where}`, pointer: '/key' })
  })
  return new AppError(
    'duplicate-item-key',
    `each item needs a key of its own: ${errors[0]?.detail}; nothing was added`,
    {
      errors,
    },
  )
}

const tooManyItems = (): AppError =>
  new AppError('too-many-items', `an operation has at most ${DRAFT_ITEMS_MAX} items; nothing was added`)
