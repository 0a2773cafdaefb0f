/** Bulk actions as a client sees them. What becomes of a target is decided in work-bulk-target.ts, by a worker. */
import { abortDecision, type BulkStatus, startDecision } from '../domain/bulk-action.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  abortBulkAction,
  type BulkActionRow,
  type BulkDecision,
  type BulkTargetRow,
  findBulkAction,
  listBulkActionRows,
  listBulkTargetRows,
  startBulkAction,
} from '../storage/bulk-actions.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { BulkActionView, BulkTargetView } from './bulk-action-views.ts'
import type { ServiceContext } from './context.ts'
import { readPage } from './paging.ts'
import { type Principal, requireScope } from './principal.ts'
import type {
  BulkActionFilters,
  BulkActionPosition,
  BulkActionRequest,
  BulkTargetPosition,
  PageRequest,
} from './requests.ts'
import type { Page } from './views.ts'

export type BulkContext = Pick<ServiceContext, 'database'>

/** The action changed between reading and writing; after so many times somebody is in a loop. */
const TRIES_MAX = 10

/** @throws AppError `bulk-action-not-found` */
export const readBulkAction = async (
  { database }: BulkContext,
  { tenantId }: Principal,
  id: string,
): Promise<BulkActionRow> => {
  const row = await database.query((connection) => findBulkAction(connection, tenantId, id))
  if (!row) throw new AppError('bulk-action-not-found', 'there is no such bulk action')
  return row
}

/** Each target is worked on as by its own route, so whoever may not use that may not start this. */
export const requireActionScope = (principal: Principal, action: BulkActionRequest['action']): void => {
  switch (action) {
    case 'cancel':
      requireScope(principal, 'operations:write')
      return
    case 'replay':
      requireScope(principal, 'replay')
      return
  }
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
    const { action, status, expired } = await readBulkAction(context, principal, id)
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
        return bulkActionView(await readBulkAction(context, principal, id))
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
    const row = await readBulkAction(context, principal, id)
    switch (abortDecision(row.status)) {
      case 'receipt':
        return bulkActionView(row)
      case 'not-abortable':
        throw refused('bulk-action-not-abortable', row.status, 'every target has its outcome: nothing is left to abort')
      case 'abort': {
        const decision = decisionOf(principal, 'bulk_action.abort', id, reason)
        if (!(await abortBulkAction(context.database, decision))) continue
        return bulkActionView(await readBulkAction(context, principal, id))
      }
    }
  }
  throw new AppError('version-conflict', 'the bulk action keeps changing: try again')
}

const decision = (at: string | null, by: string | null, reason: string | null) =>
  at === null ? null : { at, by: by ?? '', reason }

export const bulkActionView = (row: BulkActionRow): BulkActionView => {
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
