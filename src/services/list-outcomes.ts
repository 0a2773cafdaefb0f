import type { PurgeStage } from '../domain/retention.ts'
import { listCheckpointRows } from '../storage/checkpoints.ts'
import type { Connection } from '../storage/connection.ts'
import type { Database } from '../storage/database.ts'
import { listEventRows } from '../storage/events.ts'
import { type ItemRow, listItemRows } from '../storage/items.ts'
import { listLedgerRows } from '../storage/ledger.ts'
import { operationExists } from '../storage/operations.ts'
import type { ServiceContext } from './context.ts'
import { readKept } from './kept.ts'
import { readPage, streamPages } from './paging.ts'
import type { Principal } from './principal.ts'
import type {
  CheckpointPosition,
  EventPosition,
  ItemFilters,
  ItemPosition,
  LedgerPosition,
  PageRequest,
} from './requests.ts'
import type { CheckpointView, EventView, ItemView, LedgerEntryView, Page } from './views.ts'

/**
 * What hangs below an operation. Each answers null when the tenant has no such operation. Errors: items-purged,
 * ledger-purged, also in the middle of a stream.
 */

type ReadContext = Pick<ServiceContext, 'database'>

const ifExists = <T>(
  database: Database,
  { tenantId }: Principal,
  operationId: string,
  read: (connection: Connection) => Promise<T>,
): Promise<T | null> =>
  database.query(async (connection) =>
    (await operationExists(connection, tenantId, operationId)) ? await read(connection) : null,
  )

/** A part that retention takes one day: a page that was read while it went is not given out. */
const ifKept = <T>(
  database: Database,
  { tenantId }: Principal,
  operationId: string,
  part: PurgeStage,
  read: (connection: Connection) => Promise<T>,
): Promise<T | null> => database.query((connection) => readKept(connection, { tenantId, operationId }, part, read))

/** The rows of a stream; operations are never deleted, so it is there when it was there before. */
const keptRows = async <Row>(rows: Promise<Row[] | null>): Promise<Row[]> => (await rows) ?? []

const itemPosition = ({ ord }: ItemRow): ItemPosition => ({ ord })
const ledgerPosition = ({ ord, seq }: LedgerEntryView): LedgerPosition => ({ ord, seq })

export const listItems = (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
  filters: ItemFilters,
  { limit, position }: PageRequest<ItemPosition>,
): Promise<Page<ItemView, ItemPosition> | null> =>
  ifKept(database, principal, operationId, 'items', (connection) =>
    readPage(
      limit,
      (rows) => listItemRows(connection, principal.tenantId, operationId, filters, position?.ord ?? null, rows),
      itemPosition,
    ),
  )

export const streamItems = async (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
  filters: ItemFilters,
): Promise<AsyncIterable<ItemView[]> | null> => {
  const exists = await ifKept(database, principal, operationId, 'items', async () => true)
  if (exists === null) return null
  return streamPages<ItemRow, ItemPosition>(
    (position, limit) =>
      keptRows(
        ifKept(database, principal, operationId, 'items', (connection) =>
          listItemRows(connection, principal.tenantId, operationId, filters, position?.ord ?? null, limit),
        ),
      ),
    itemPosition,
  )
}

export const listLedger = (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
  { limit, position }: PageRequest<LedgerPosition>,
): Promise<Page<LedgerEntryView, LedgerPosition> | null> =>
  ifKept(database, principal, operationId, 'ledger', (connection) =>
    readPage(
      limit,
      (rows) => listLedgerRows(connection, principal.tenantId, operationId, position, rows),
      ledgerPosition,
    ),
  )

export const streamLedger = async (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
): Promise<AsyncIterable<LedgerEntryView[]> | null> => {
  const exists = await ifKept(database, principal, operationId, 'ledger', async () => true)
  if (exists === null) return null
  return streamPages<LedgerEntryView, LedgerPosition>(
    (position, limit) =>
      keptRows(
        ifKept(database, principal, operationId, 'ledger', (connection) =>
          listLedgerRows(connection, principal.tenantId, operationId, position, limit),
        ),
      ),
    ledgerPosition,
  )
}

export const listCheckpoints = (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
  { limit, position }: PageRequest<CheckpointPosition>,
): Promise<Page<CheckpointView, CheckpointPosition> | null> =>
  ifExists(database, principal, operationId, (connection) =>
    readPage(
      limit,
      (rows) => listCheckpointRows(connection, principal.tenantId, operationId, position?.shard ?? null, rows),
      ({ shard }): CheckpointPosition => ({ shard }),
    ),
  )

export const listEvents = (
  { database }: ReadContext,
  principal: Principal,
  operationId: string,
  { limit, position }: PageRequest<EventPosition>,
): Promise<Page<EventView, EventPosition> | null> =>
  ifExists(database, principal, operationId, (connection) =>
    readPage(
      limit,
      (rows) => listEventRows(connection, principal.tenantId, operationId, position?.version ?? null, rows),
      ({ version }): EventPosition => ({ version }),
    ),
  )
