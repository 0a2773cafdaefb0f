import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  type DeadLetterRow,
  discardDeadLetter,
  findDeadLetterRow,
  listDeadLetterRows,
} from '../storage/dead-letters.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import type { DeadLetterView } from './dead-letter-views.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { DeadLetterFilters, DeadLetterPosition, PageRequest } from './requests.ts'
import type { Page } from './views.ts'

type DatabaseContext = Pick<ServiceContext, 'database'>

export const listDeadLetters = async (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  filters: DeadLetterFilters,
  { limit, position }: PageRequest<DeadLetterPosition>,
): Promise<Page<DeadLetterView, DeadLetterPosition>> => {
  const { incidentId, ...others } = filters
  const page = await database.query((connection) =>
    readPage(
      limit,
      (rows) => listDeadLetterRows(connection, tenantId, { ...others, fingerprint: incidentId }, position, rows),
      ({ createdAt, id }): DeadLetterPosition => ({ createdAt, id }),
    ),
  )
  return { items: page.items.map(deadLetterView), next: page.next }
}

export const getDeadLetter = async (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  id: string,
): Promise<DeadLetterView | null> => {
  const row = await database.query((connection) => findDeadLetterRow(connection, tenantId, id))
  return row && deadLetterView(row)
}

/**
 * Takes a dead letter off the queue for good: nobody will bring its item home, and who said so and why stands there.
 * Errors: dead-letter-not-found, dead-letter-already-closed (somebody was first, or its effect is applied by now).
 */
export const discard = async (
  { database }: DatabaseContext,
  principal: Principal,
  id: string,
  { reason }: { reason: string },
): Promise<DeadLetterView> => {
  const { tenantId, name: by } = principal
  const audit = auditEntry(authorOf(principal), 'dead_letter.discard', ['dead_letter', formatId('dl', id)], reason)
  const won = await database.query((connection) => discardDeadLetter(connection, { tenantId, id, by, reason, audit }))
  const row = await database.query((connection) => findDeadLetterRow(connection, tenantId, id))
  if (!row) throw new AppError('dead-letter-not-found', 'there is no such dead letter')
  if (won) return deadLetterView(row)
  throw new AppError('dead-letter-already-closed', `the dead letter is ${row.status} already`, {
    extra: { outcome: row.status, closed_by: row.closedBy, close_reason: row.closeReason },
  })
}

const deadLetterView = (row: DeadLetterRow): DeadLetterView => {
  const { fingerprint, closedAt, closedBy, closeReason, ...shown } = row
  return {
    ...shown,
    incidentId: fingerprint,
    closing: closedAt === null ? null : { at: closedAt, by: closedBy ?? '', reason: closeReason ?? '' },
  }
}
