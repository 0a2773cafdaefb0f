import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { probe } from '../probe.ts'
import { closeDraft, readDraft } from '../storage/drafts.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { draftTypeOf, notDraft, uploadInProgress } from './draft-refusals.ts'
import { changedSince } from './if-match.ts'
import type { Principal } from './principal.ts'
import type { CancelRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'
import { shardEnds } from './shard-ends.ts'

/** The draft changed between reading and writing; after so many times somebody is in a loop. */
const TRIES_MAX = 10

/**
 * Closes a draft: what it has is what will run. Errors: operation-not-found, operation-not-draft, version-conflict,
 * upload-in-progress, items-missing, unknown-operation-type, operation-type-changed.
 */
export const startDraft = async (
  { database, types, wakeUps }: Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>,
  principal: Principal,
  operationId: string,
  request: CancelRequest,
): Promise<void> => {
  const { tenantId, name } = principal
  const subject = ['operation', formatId('op', operationId)] as const
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const draft = await database.query((connection) => readDraft(connection, tenantId, operationId))
    if (!draft) throw noOperation()
    if (draft.status !== 'draft') throw notDraft(draft.status)
    if (tries === 0 && request.ifMatchVersion !== null && request.ifMatchVersion !== draft.version) {
      throw changedSince(draft.version)
    }
    if (draft.uploading) throw uploadInProgress()
    if (draft.itemsTotal === 0) {
      throw new AppError('items-missing', 'the draft has no items: upload some, then start it')
    }
    const type = draftTypeOf(types, draft)
    const closed = await closeDraft(database, {
      tenantId,
      operationId,
      itemsTotal: draft.itemsTotal,
      actor: name,
      reason: request.reason,
      shardEnds: shardEnds(type, draft.itemsTotal),
      steps: type.steps,
      audit: auditEntry(authorOf(principal), 'operation.start', subject, request.reason, { items: draft.itemsTotal }),
    })
    if (!closed) continue
    await probe('start-committed', { operationId })
    wakeUps.send('work')
    wakeUps.send('change')
    return
  }
  throw new AppError('version-conflict', 'the draft keeps changing: try again')
}
