/**
 * Submitting an operation. Everything that can refuse it is checked before anything is stored; then one statement stores
 * the operation, its items, its shards and its first event, shared with whatever else arrives meanwhile.
 *
 * Why a 202 is durable: it is sent after that statement's commit (`synchronous_commit` stays on). Why a key names one
 * operation for ever: a unique index decides, and the loser reads the winner's hash. A client that lost our answer repeats
 * its request and gets the same operation.
 */
import { probe } from '../probe.ts'
import type { Database } from '../storage/database.ts'
import { insertDependent } from '../storage/dependencies.ts'
import type { OperationState } from '../storage/operation-state.ts'
import { readByIdempotencyKey, type Submission } from '../storage/submissions.ts'
import { acceptedState } from './accepted-state.ts'
import { canonicalHash } from './canonical-hash.ts'
import { checkAfter } from './check-after.ts'
import { checkSubmission, type SubmissionContext } from './check-submission.ts'
import type { ServiceContext } from './context.ts'
import { lookAtNew } from './dependents.ts'
import type { Principal } from './principal.ts'
import type { SubmitRequest } from './requests.ts'
import { reusedKey } from './reused-key.ts'
import type { SubmissionWriter } from './submission-writer.ts'

/**
 * What a submission came to: a new operation as it was stored, or one that has to be read (`replayed`: the one that its
 * idempotency key names).
 */
export type Submitted = { replayed: false; state: OperationState } | { replayed: boolean; id: string }

/**
 * Stores the operation that `request` asks for, or finds the one that its idempotency key names.
 * Errors: unknown-operation-type, idempotency-key-required, idempotency-key-reused, items-missing, too-many-items,
 * duplicate-item-key, invalid-item-input, invalid-request, invalid-predecessor, invalid-callback-url,
 * webhooks-not-configured, items-not-accepted, invalid-input, downloads-not-configured.
 */
export const submitOperation = async (
  context: ServiceContext & SubmissionContext & { writeSubmission: SubmissionWriter },
  principal: Principal,
  request: SubmitRequest,
): Promise<Submitted> => {
  const requestHash = canonicalHash(request.body)
  const owner = (): Promise<{ replayed: true; id: string } | null> =>
    request.idempotencyKey === null
      ? Promise.resolve(null)
      : findOwner(context.database, principal, request.idempotencyKey, requestHash)
  let submission: Submission
  let after: string[] = []
  try {
    submission = await checkSubmission(context, principal, request, requestHash)
    if (request.after.length > 0) after = await checkAfter(context, principal, request.after)
  } catch (error) {
    // what was accepted once stays accepted, whatever has become of its type since
    const earlier = await owner()
    if (earlier) return earlier
    throw error
  }
  const subject = { operationId: submission.id, idempotencyKey: request.idempotencyKey }
  await probe('submission-checked', subject)
  const stored =
    after.length === 0
      ? await context.writeSubmission(submission)
      : await insertDependent(context.database, { ...submission, after, afterWhen: request.afterWhen })
  await probe('submission-committed', subject)
  if (!stored) {
    const earlier = await owner()
    if (earlier) return earlier
    throw new Error('a submission was refused by its idempotency key, and nothing owns that key')
  }
  if (after.length > 0) {
    // whoever it waits for may have ended before it was stored: then nobody else looks at it
    await lookAtNew(context, { tenantId: principal.tenantId, operationId: submission.id })
    return { replayed: false, id: submission.id }
  }
  context.wakeUps.send('work')
  return { replayed: false, state: acceptedState(submission, stored) }
}

const findOwner = async (
  database: Database,
  principal: Principal,
  idempotencyKey: string,
  requestHash: string,
): Promise<{ id: string; replayed: true } | null> => {
  const owner = await database.query((connection) =>
    readByIdempotencyKey(connection, principal.tenantId, idempotencyKey),
  )
  if (!owner) return null
  if (owner.requestHash === requestHash) return { id: owner.id, replayed: true }
  throw reusedKey()
}
