import { AppError, type Fault } from '../domain/errors.ts'
import type { OperationType } from '../domain/operation-type.ts'
import type { Database } from '../storage/database.ts'
import type { SubmittedItem } from '../storage/submissions.ts'
import { readKeyOrds, storeChunk, type Upload } from '../storage/uploads.ts'
import { cellReader } from './cell-values.ts'
import { checkItem } from './check-item.ts'
import { whyUploadEnded } from './draft-refusals.ts'
import type { UploadRequest, UploadRow } from './requests.ts'

/** Rows of one transaction, and the characters of JSON in it. */
const CHUNK_ROWS_MAX = 5_000
const CHUNK_WEIGHT_MAX = 4 * 1024 * 1024
/** What a row weighs besides its input. */
const ROW_WEIGHT = 200
/** Of one operation, over all uploads. */
export const DRAFT_ITEMS_MAX = 10_000_000
/** Faults named in one answer, and rows that are looked through for further ones after the first. */
const FAULTS_MAX = 100
const ROWS_AFTER_FAULT_MAX = CHUNK_ROWS_MAX

type UploadItem = SubmittedItem & { line: number }

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
  let chunk: UploadItem[] = []
  let weight = 0
  let added = 0
  let storing: Promise<void> = Promise.resolve()

  const send = async (): Promise<void> => {
    await storing
    if (target.upload.fromOrd + added + chunk.length > DRAFT_ITEMS_MAX) throw tooManyItems()
    storing = storeItems(target, added, chunk)
    // It is awaited before the next one; until then a failure is nobody's.
    storing.catch(() => {})
    added += chunk.length
    chunk = []
    weight = 0
  }

  for await (const rows of request.rows) {
    for (const row of rows) {
      const checked = read(row)
      if ('faults' in checked) faults.add(row.line, checked)
      else if (faults.isEmpty) {
        chunk.push(checked)
        weight += checked.input.length + ROW_WEIGHT
      } else faults.look()
      if (faults.isFull) break
      if (chunk.length >= CHUNK_ROWS_MAX || weight >= CHUNK_WEIGHT_MAX) await send()
    }
    if (faults.isFull) break
  }
  if (!faults.isEmpty) {
    await storing
    throw faults.toError(target.type)
  }
  if (chunk.length > 0) await send()
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
): ((row: UploadRow) => UploadItem | RefusedRow) => {
  const readCells = cellReader(type.inputSchema)
  return (row) => {
    if ('faults' in row) return { faults: row.faults, byType: false }
    const input = cells === 'text' ? readCells(row.input as Record<string, string>) : row.input
    const checked = checkItem(type, { key: row.key, input }, rootId)
    if ('item' in checked) return { ...checked.item, line: row.line }
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

const storeItems = async (
  { database, upload }: { database: Database; upload: Upload },
  added: number,
  items: readonly UploadItem[],
): Promise<void> => {
  const done = await database.query((connection) => storeChunk(connection, upload, added, items))
  if (!done) throw await whyUploadEnded(database, upload)
  if (done.stored < items.length) throw await duplicates(database, upload, added, items)
}

/** Which rows of a chunk have a key that was there before them. */
const duplicates = async (
  database: Database,
  upload: Upload,
  added: number,
  items: readonly UploadItem[],
): Promise<AppError> => {
  const keys = items.map((item) => item.key)
  const ords = await database.query((connection) => readKeyOrds(connection, upload, keys))
  const errors: Fault[] = []
  for (const [index, item] of items.entries()) {
    const holder = ords.get(item.key)
    if (holder === undefined || holder === upload.fromOrd + added + index) continue
    const where =
      holder < upload.fromOrd ? 'is in the draft already' : `is that of row ${holder - upload.fromOrd + 1} too`
    errors.push(atLine(item.line, { detail: `the key "${item.key}" ${where}`, pointer: '/key' }))
    if (errors.length === FAULTS_MAX) break
  }
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
