/** Bulk actions as a client sees them. What becomes of a target is decided in work-bulk-target.ts, by a worker. */

import { uuidv7 } from 'uuidv7'
import {
  abortDecision,
  BULK_TARGETS_MAX,
  type BulkStatus,
  candidateStatuses,
  isRestrictive,
  startDecision,
} from '../domain/bulk-action.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  abortBulkAction,
  type BulkActionRow,
  type BulkDecision,
  type BulkTargetRow,
  findBulkAction,
  findBulkActionByKey,
  insertBulkAction,
  listBulkActionRows,
  listBulkTargetRows,
  startBulkAction,
} from '../storage/bulk-actions.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { BulkActionView, BulkTargetView } from './bulk-action-views.ts'
import { canonicalHash } from './canonical-hash.ts'
import type { ServiceContext } from './context.ts'
import { readPage } from './paging.ts'
import { replayScopeOf } from './preflight-replay.ts'
import { type Principal, requireScope } from './principal.ts'
import type {
  BulkActionFilters,
  BulkActionPosition,
  BulkActionRequest,
  BulkTargetPosition,
  PageRequest,
} from './requests.ts'
import { KEY_TRIES_MAX, keyKeepsChanging, reusedKey } from './reused-key.ts'
import type { Page } from './views.ts'

type BulkContext = Pick<ServiceContext, 'database'>

/** The action changed between reading and writing; after so many times somebody is in a loop. */
const TRIES_MAX = 10

const read = async ({ database }: BulkContext, { tenantId }: Principal, id: string): Promise<BulkActionRow> => {
  const row = await database.query((connection) => findBulkAction(connection, tenantId, id))
  if (!row) throw new AppError('bulk-action-not-found', 'there is no such bulk action')
  return row
}

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
    if (id) return { action: bulkActionView(await read(context, principal, id)), replayed: false }
  }
  throw keyKeepsChanging()
}

/** Each target is worked on as by its own route, so whoever may not use that may not start this. */
const requireActionScope = (principal: Principal, action: BulkActionRequest['action']): void => {
  switch (action) {
    case 'cancel':
      requireScope(principal, 'operations:write')
      return
    case 'replay':
      requireScope(principal, 'replay')
      return
  }
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

export const getBulkAction = async (
  { database }: BulkContext,
  { tenantId }: Principal,
  id: string,
): Promise<BulkActionView | null> => {
  const row = await database.query((connection) => findBulkAction(connection, tenantId, id))
  return row && bulkActionView(row)
}

export const listBulkActions = async (
  { database }: BulkContext,
  { tenantId }: Principal,
  filters: BulkActionFilters,
  { limit, position }: PageRequest<BulkActionPosition>,
): Promise<Page<BulkActionView, BulkActionPosition>> => {
  const page = await database.query((connection) =>
    readPage(
      limit,
      (rows) => listBulkActionRows(connection, tenantId, filters, position, rows),
      ({ createdAt, id }): BulkActionPosition => ({ createdAt, id }),
    ),
  )
  return { items: page.items.map(bulkActionView), next: page.next }
}

/** Null: no such bulk action. */
export const listBulkTargets = (
  { database }: BulkContext,
  { tenantId }: Principal,
  id: string,
  states: readonly string[],
  { limit, position }: PageRequest<BulkTargetPosition>,
): Promise<Page<BulkTargetView, BulkTargetPosition> | null> =>
  database.query(async (connection) => {
    if (!(await findBulkAction(connection, tenantId, id))) return null
    return readPage<BulkTargetRow, BulkTargetPosition>(
      limit,
      (rows) => listBulkTargetRows(connection, tenantId, id, states, position?.ord ?? null, rows),
      ({ ord }) => ({ ord }),
    )
  })

const refused = (
  code: 'bulk-action-not-startable' | 'bulk-action-expired' | 'bulk-action-not-abortable',
  status: BulkStatus,
  detail: string,
): AppError => new AppError(code, detail, { extra: { bulk_action_status: status } })

const decisionOf = (
  principal: Principal,
  action: 'bulk_action.start' | 'bulk_action.abort',
  id: string,
  reason: string | null,
): BulkDecision => ({
  tenantId: principal.tenantId,
  id,
  actor: principal.name,
  reason,
  audit: auditEntry(authorOf(principal), action, ['bulk_action', formatId('bulk', id)], reason),
})

/** Runs exactly what a dry run has frozen. Errors: bulk-action-not-found, bulk-action-not-startable, bulk-action-expired. */
export const startBulk = async (
  context: BulkContext,
  principal: Principal,
  id: string,
  { reason }: { reason: string | null },
): Promise<BulkActionView> => {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const { action, status, expired } = await read(context, principal, id)
    requireActionScope(principal, action)
    switch (startDecision(status, expired)) {
      case 'not-startable':
        throw refused(
          'bulk-action-not-startable',
          status,
          `the bulk action is ${status}: only a dry run can be started`,
        )
      case 'expired':
        throw refused('bulk-action-expired', status, 'the dry run has expired: make a new one')
      case 'start': {
        const decision = decisionOf(principal, 'bulk_action.start', id, reason)
        if (!(await context.database.query((connection) => startBulkAction(connection, decision)))) continue
        return bulkActionView(await read(context, principal, id))
      }
    }
  }
  throw new AppError('version-conflict', 'the bulk action keeps changing: try again')
}

/**
 * Ends it: no target is begun any more. A repeat is told the same. Errors: bulk-action-not-found, bulk-action-not-abortable.
 */
export const abortBulk = async (
  context: BulkContext,
  principal: Principal,
  id: string,
  { reason }: { reason: string },
): Promise<BulkActionView> => {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const row = await read(context, principal, id)
    switch (abortDecision(row.status)) {
      case 'receipt':
        return bulkActionView(row)
      case 'not-abortable':
        throw refused('bulk-action-not-abortable', row.status, 'every target has its outcome: nothing is left to abort')
      case 'abort': {
        const decision = decisionOf(principal, 'bulk_action.abort', id, reason)
        if (!(await abortBulkAction(context.database, decision))) continue
        return bulkActionView(await read(context, principal, id))
      }
    }
  }
  throw new AppError('version-conflict', 'the bulk action keeps changing: try again')
}

const decision = (at: string | null, by: string | null, reason: string | null) =>
  at === null ? null : { at, by: by ?? '', reason }

const bulkActionView = (row: BulkActionRow): BulkActionView => {
  const { targets, done, refused, failed, skipped } = row
  return {
    id: row.id,
    action: row.action,
    status: row.status,
    filter: { ...row.filter, status: [...row.filter.status] },
    scope: row.scope,
    reason: row.reason,
    ratePerSecond: row.ratePerSecond,
    requestedBy: row.requestedBy,
    counts: { total: targets, pending: targets - done - refused - failed - skipped, done, refused, failed, skipped },
    createdAt: row.createdAt,
    expiresAt: row.expiresAt,
    started: decision(row.startedAt, row.startedBy, row.startReason),
    aborted: decision(row.abortedAt, row.abortedBy, row.abortReason),
    completedAt: row.completedAt,
  }
}
