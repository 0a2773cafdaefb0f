import { uuidv7 } from 'uuidv7'
import { areCountsSensitive } from '../domain/count-range.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  abandonUpload,
  type Begun,
  beginUpload,
  finishUpload,
  renewUpload,
  UPLOAD_LEASE_SECONDS,
  type Upload,
} from '../storage/uploads.ts'
import { deleteTail } from './abandoned-uploads.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { shownCount } from './count-ranges.ts'
import { draftTypeOf, notDraft, uploadInProgress, whyUploadEnded } from './draft-refusals.ts'
import { changedSince } from './if-match.ts'
import type { Principal } from './principal.ts'
import type { UploadRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'
import { storeRows } from './store-rows.ts'

export interface Uploaded {
  added: number
  /** Items of the draft, when the upload was finished; the lower end of their range, where that is all the caller may see. */
  total: number
  /** The key was used before, with the same bytes. */
  replayed: boolean
}

type UploadContext = Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>

/**
 * Adds the rows of `request` to a draft, all of them or none; the protocol stands in storage/uploads.ts.
 * Errors: operation-not-found, operation-not-draft, operation-type-changed, unknown-operation-type, version-conflict,
 * upload-in-progress, upload-lost, idempotency-key-reused, items-missing, too-many-items, invalid-row, invalid-item-input,
 * duplicate-item-key.
 */
export const uploadItems = async (
  context: UploadContext,
  principal: Principal,
  operationId: string,
  request: UploadRequest,
): Promise<Uploaded> => {
  const key = { tenantId: principal.tenantId, operationId, id: uuidv7() }
  const begun = await beginUpload(context.database, {
    ...key,
    idempotencyKey: request.idempotencyKey,
    ifMatchVersion: request.ifMatchVersion,
    requestedBy: principal.name,
  })
  switch (begun.kind) {
    case 'begun':
      return run(context, principal, { ...key, fromOrd: begun.fromOrd }, begun, request)
    case 'done':
      return repeated(begun, request, (total) => shownTotal(context, principal, begun.type, total))
    case 'no-operation':
      throw noOperation()
    case 'not-draft':
      throw notDraft(begun.status)
    case 'changed':
      throw changedSince(begun.version)
    case 'in-progress':
      throw uploadInProgress()
  }
}

const run = async (
  { database, types, wakeUps }: UploadContext,
  principal: Principal,
  upload: Upload,
  draft: Extract<Begun, { kind: 'begun' }>,
  request: UploadRequest,
): Promise<Uploaded> => {
  // A slow client is alive between its chunks. A renewal that fails shows at the next chunk.
  const renew = () => database.query((connection) => renewUpload(connection, upload)).catch(() => false)
  const renewal = setInterval(() => void renew(), (UPLOAD_LEASE_SECONDS * 1000) / 3)
  try {
    const type = draftTypeOf(types, draft)
    if (!(await deleteTail(database, upload, 'live'))) throw await whyUploadEnded(database, upload)
    const added = await storeRows({ database, type, upload, rootId: draft.rootId }, request)
    if (added === 0) throw new AppError('items-missing', 'the upload has no rows: send at least one')
    const requestHash = await request.hash()
    const subject = ['operation', formatId('op', upload.operationId)] as const
    const audit = auditEntry(authorOf(principal), 'operation.items_add', subject, null, { added })
    const finished = await finishUpload(database, { ...upload, added, requestHash, actor: principal.name, audit })
    if (!finished) throw await whyUploadEnded(database, upload)
    wakeUps.send('change')
    return { added, total: shownTotal({ types }, principal, draft.type, finished.total), replayed: false }
  } catch (error) {
    // Should this fail too, the upload expires.
    await database.query((connection) => abandonUpload(connection, upload)).catch(() => {})
    throw error
  } finally {
    clearInterval(renewal)
  }
}

/** Others may have uploaded to the draft, too. */
const shownTotal = (
  { types }: Pick<UploadContext, 'types'>,
  principal: Principal,
  typeName: string,
  total: number,
): number => shownCount({ countsSensitive: areCountsSensitive(types.get(typeName)) }, principal)(total)

const repeated = async (
  done: Extract<Begun, { kind: 'done' }>,
  request: UploadRequest,
  shown: (total: number) => number,
): Promise<Uploaded> => {
  if ((await request.hash()) === done.requestHash)
    return { added: done.added, total: shown(done.total), replayed: true }
  throw new AppError('idempotency-key-reused', 'this Idempotency-Key was used with another upload: use a new key', {
    errors: [{ detail: 'used before with other rows', pointer: 'Idempotency-Key' }],
  })
}
