import { uuidv7 } from 'uuidv7'
import { BULK_TARGETS_MAX, candidateStatuses, isRestrictive } from '../domain/bulk-action.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { type BulkActionRow, findBulkActionByKey, insertBulkAction } from '../storage/bulk-actions.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { BulkActionView } from './bulk-action-views.ts'
import { type BulkContext, bulkActionView, readBulkAction, requireActionScope } from './bulk-actions.ts'
import { canonicalHash } from './canonical-hash.ts'
import { replayScopeOf } from './preflight-replay.ts'
import type { Principal } from './principal.ts'
import type { BulkActionRequest } from './requests.ts'
import { KEY_TRIES_MAX, keyKeepsChanging, reusedKey } from './reused-key.ts'

/**
 * Stores a bulk action with its targets, frozen; a dry run does nothing else. `replayed` tells that the idempotency key was
 * used before, and names that action. Errors: idempotency-key-reused, invalid-request, bulk-filter-empty, bulk-too-large.
 */
export const createBulkAction = async (
  context: BulkContext,
  principal: Principal,
  request: BulkActionRequest,
): Promise<{ action: BulkActionView; replayed: boolean }> => {
  requireActionScope(principal, request.action)
  const requestHash = canonicalHash(request.body)
  for (let tries = 0; tries < KEY_TRIES_MAX; tries++) {
    const earlier = await findOwner(context, principal, request.idempotencyKey, requestHash)
    if (earlier) return { action: bulkActionView(earlier), replayed: true }
    refuseEmpty(request)
    refuseScope(request)
    // null: another request was first with the key, and may be forgotten by now
    const id = await store(context, principal, request, requestHash)
    if (id) return { action: bulkActionView(await readBulkAction(context, principal, id)), replayed: false }
  }
  throw keyKeepsChanging()
}

/** The id of the new bulk action. Null: its idempotency key is taken. */
const store = async (
  context: BulkContext,
  principal: Principal,
  request: BulkActionRequest,
  requestHash: string,
): Promise<string | null> => {
  const id = uuidv7()
  const { targets, stored } = await context.database.query((connection) =>
    insertBulkAction(connection, {
      tenantId: principal.tenantId,
      id,
      action: request.action,
      filter: request.filter,
      scope: request.scope,
      reason: request.reason,
      dryRun: request.dryRun,
      ratePerSecond: request.ratePerSecond,
      requestedBy: principal.name,
      requesterScopes: principal.scopes,
      idempotencyKey: request.idempotencyKey,
      requestHash,
      audit: auditEntry(
        authorOf(principal),
        'bulk_action.create',
        ['bulk_action', formatId('bulk', id)],
        request.reason,
        {
          action: request.action,
          dry_run: request.dryRun,
        },
      ),
    }),
  )
  if (stored) return id
  if (targets > BULK_TARGETS_MAX) {
    throw new AppError('bulk-too-large', `the filter matches more than ${BULK_TARGETS_MAX} operations: narrow it`, {
      errors: [{ detail: `more than ${BULK_TARGETS_MAX} operations`, pointer: '/filter' }],
    })
  }
  return null
}

/** What every preflight of a target would refuse is refused before anything is stored. */
const refuseScope = ({ action, scope }: BulkActionRequest): void => {
  switch (action) {
    case 'replay':
      replayScopeOf({ scope })
      return
    case 'cancel':
      if (scope === null) return
      throw new AppError('invalid-request', 'only a replay has a scope', {
        errors: [{ detail: 'only a replay has one', pointer: '/scope' }],
      })
  }
}

const refuseEmpty = ({ action, filter }: BulkActionRequest): void => {
  if (isRestrictive(action, filter)) return
  const all = candidateStatuses(action).join(', ')
  throw new AppError(
    'bulk-filter-empty',
    `the filter leaves nothing out: name a type, labels, a time, a requester, a replayed operation, or only some of ${all}`,
    { errors: [{ detail: 'leaves nothing out', pointer: '/filter' }] },
  )
}

const findOwner = async (
  { database }: BulkContext,
  { tenantId }: Principal,
  idempotencyKey: string | null,
  requestHash: string,
): Promise<BulkActionRow | null> => {
  if (idempotencyKey === null) return null
  const owner = await database.query((connection) => findBulkActionByKey(connection, tenantId, idempotencyKey))
  if (!owner) return null
  if (owner.requestHash === requestHash) return owner
  throw reusedKey()
}
