import { AppError } from '../domain/errors.ts'
import { findItemPlace, type HistoryRow, listHistoryRows } from '../storage/item-history.ts'
import type { ServiceContext } from './context.ts'
import { itemsPurged, ledgerPurged } from './kept.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { HistoryPosition, PageRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'
import type { HistoryView, LedgerEntryView, Page } from './views.ts'

/**
 * What happened to an item from its first attempt to its last replay, asked from any operation of the chain that has it.
 * Errors: operation-not-found, item-not-found, items-purged, ledger-purged.
 */
export const listItemHistory = async (
  { database }: Pick<ServiceContext, 'database'>,
  { tenantId }: Principal,
  operationId: string,
  itemKey: string,
  { limit, position }: PageRequest<HistoryPosition>,
): Promise<Page<HistoryView, HistoryPosition>> => {
  const key = { tenantId, operationId, itemKey }
  const page = await database.query(async (connection) => {
    const found = await readPage(
      limit,
      (rows) => listHistoryRows(connection, key, position, rows),
      (row): HistoryPosition => ({
        at: row.at,
        rank: row.rank,
        operationId: row.operationId,
        position: row.position,
      }),
    )
    // after the rows: they are whole if it is there now (kept.ts)
    refuseUnlessFound(await findItemPlace(connection, key))
    return found
  })
  return { items: page.items.map(historyView), next: page.next }
}

const refuseUnlessFound = (place: Awaited<ReturnType<typeof findItemPlace>>): void => {
  switch (place) {
    case 'found':
      return
    case 'no-operation':
      throw noOperation()
    case 'no-item':
      throw new AppError('item-not-found', 'the operation has no item with this key')
    case 'items-purged':
      throw itemsPurged()
    case 'ledger-purged':
      throw ledgerPurged()
  }
}

/** The columns of the ledger are filled where the row is an entry, and nowhere else. */
const isEntry = (row: HistoryRow): row is HistoryRow & LedgerEntryView => row.kind === 'ledger_entry'

const historyView = (row: HistoryRow): HistoryView => ({
  kind: row.kind,
  at: row.at,
  operationId: row.operationId,
  replayOf: row.replayOf,
  compensates: row.compensates,
  actor: row.by,
  reason: row.reason,
  deadLetterId: row.deadLetterId,
  incidentId: row.fingerprint,
  entry: isEntry(row) ? row : null,
})
