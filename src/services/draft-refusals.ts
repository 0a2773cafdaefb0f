import { AppError } from '../domain/errors.ts'
import type { OperationType } from '../domain/operation-type.ts'
import type { Database } from '../storage/database.ts'
import { readDraft } from '../storage/drafts.ts'
import type { ServiceContext } from './context.ts'
import { noOperation } from './require-operation.ts'

/** Why a draft takes no items, or cannot be started. */

export const notDraft = (status: string): AppError =>
  new AppError('operation-not-draft', `the operation is ${status}: its items are fixed, and it needs no start`, {
    extra: { operation_status: status },
  })

export const uploadInProgress = (): AppError =>
  new AppError('upload-in-progress', 'another upload to this draft is under way: wait until it has ended')

/** Why an upload could not go on: somebody started or cancelled the draft, or took the upload's place. */
export const whyUploadEnded = async (
  database: Database,
  upload: { tenantId: number; operationId: string },
): Promise<AppError> => {
  const draft = await database.query((connection) => readDraft(connection, upload.tenantId, upload.operationId))
  if (!draft) return noOperation()
  return draft.status === 'draft'
    ? new AppError(
        'upload-lost',
        'the upload stood still for too long and was given up; nothing was added: send it again',
      )
    : notDraft(draft.status)
}

/** The type of a draft, in the version that its items are checked against: all of them against the same one. */
export const draftTypeOf = (
  types: ServiceContext['types'],
  draft: { type: string; typeVersion: number },
): OperationType => {
  const type = types.get(draft.type)
  if (!type) {
    throw new AppError('unknown-operation-type', `there is no operation type "${draft.type}" any more`)
  }
  if (type.version !== draft.typeVersion) {
    throw new AppError(
      'operation-type-changed',
      `the draft is of ${type.name} version ${draft.typeVersion}, which is version ${type.version} now: cancel it and make a new draft`,
    )
  }
  return type
}
