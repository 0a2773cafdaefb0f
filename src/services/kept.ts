/**
 * What retention has taken is answered with 410, and never with a part of it. Rows are read first and the mark after: it is
 * committed before the first row is deleted, so rows that were read before it was seen are whole.
 */
import { AppError } from '../domain/errors.ts'
import type { PurgeStage } from '../domain/retention.ts'
import type { Connection } from '../storage/connection.ts'
import { type KeptParts, readKeptParts } from '../storage/kept-parts.ts'

export const itemsPurged = (): AppError =>
  new AppError('items-purged', 'the items of this operation were deleted, as their time was over; its counts remain')

export const ledgerPurged = (): AppError =>
  new AppError('ledger-purged', 'the ledger of this operation was deleted, as its time was over; its counts remain')

/** Errors: items-purged, ledger-purged. */
export const refusePurged = (kept: KeptParts, part: PurgeStage): void => {
  if (part === 'items' && kept.itemsPurgedAt !== null) throw itemsPurged()
  if (part === 'ledger' && kept.ledgerPurgedAt !== null) throw ledgerPurged()
}

/** Null: the tenant has no such operation. Errors: items-purged, ledger-purged. */
export const readKept = async <T>(
  connection: Connection,
  operation: { tenantId: number; operationId: string },
  part: PurgeStage,
  read: (connection: Connection) => Promise<T>,
): Promise<T | null> => {
  const rows = await read(connection)
  const kept = await readKeptParts(connection, operation.tenantId, operation.operationId)
  if (kept === null) return null
  refusePurged(kept, part)
  return rows
}
