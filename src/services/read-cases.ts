import { type CaseRow, findCaseRow, listCaseRows } from '../storage/reconciliation.ts'
import type { ServiceContext, Types } from './context.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { CaseFilters, CasePosition, PageRequest } from './requests.ts'
import type { CaseView, Page } from './views.ts'

type ReadContext = Pick<ServiceContext, 'database' | 'types'>

export const listCases = async (
  { database, types }: ReadContext,
  { tenantId }: Principal,
  filters: CaseFilters,
  { limit, position }: PageRequest<CasePosition>,
): Promise<Page<CaseView, CasePosition>> => {
  const page = await database.query((connection) =>
    readPage(
      limit,
      (rows) => listCaseRows(connection, tenantId, filters, position, rows),
      ({ openedAt, id }): CasePosition => ({ openedAt, id }),
    ),
  )
  return { items: page.items.map((row) => caseView(row, types)), next: page.next }
}

export const getCase = async (
  { database, types }: ReadContext,
  { tenantId }: Principal,
  id: string,
): Promise<CaseView | null> => {
  const row = await database.query((connection) => findCaseRow(connection, tenantId, id))
  return row && caseView(row, types)
}

export const caseView = (row: CaseRow, types: Types): CaseView => ({
  id: row.id,
  operationId: row.operationId,
  type: row.type,
  itemKey: row.itemKey,
  step: row.step === '' ? null : row.step,
  effectKey: row.effectKey,
  send: row.send,
  status: row.closedAt === null ? 'open' : 'resolved',
  cause: row.cause,
  openedAt: row.openedAt,
  dueAt: row.dueAt,
  owner: types.get(row.type)?.owner ?? null,
  lookups: { count: row.lookups, lastAnswer: row.lastLookup, nextAt: row.nextLookupAt },
  resolution:
    row.closedAt === null || row.resolution === null
      ? null
      : {
          resolution: row.resolution,
          evidenceRef: row.evidenceRef,
          effectRef: row.effectRef,
          note: row.note,
          resolvedBy: row.resolvedBy,
          resolvedAt: row.closedAt,
          source: row.resolutionSource ?? 'operator',
        },
})
