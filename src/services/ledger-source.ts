/**
 * The ledger as `ledger-export` reads it: planned in parts of equal size, read page by page. A ledger that is purged while it is
 * read fails the part; the next try of a period leaves that operation out.
 */
import { CHUNKS_MAX } from '../domain/artifact.ts'
import type { ExportedEntry, LedgerRange, LedgerSource } from '../domain/ledger-export.ts'
import type { Connection } from '../storage/connection.ts'
import type { Database } from '../storage/database.ts'
import { type Period, readEntries, readExtent, readPartStarts, readPeriodOperations } from '../storage/ledger-export.ts'
import { readKept } from './kept.ts'

/** Some megabytes of rows, however large the whole is. */
const ITEMS_PER_PART = 5_000
const ENTRIES_PER_PAGE = 1_000
const OPERATIONS_PER_PAGE = 500
/** One more than there may be: the plan is then refused for its length. */
const PARTS_MAX = CHUNKS_MAX + 1

type PeriodRange = Extract<LedgerRange, { kind: 'period' }>

export const ledgerSource = (database: Database, itemsPerPart = ITEMS_PER_PART): LedgerSource => {
  async function* readOperation(
    tenantId: number,
    operationId: string,
    bounds: { fromOrd: number; toOrd: number | null; period: Period | null },
  ): AsyncGenerator<ExportedEntry[]> {
    let after: { ord: number; seq: number } | null = null
    for (;;) {
      const read = (connection: Connection) =>
        readEntries(connection, { tenantId, operationId }, { ...bounds, after }, ENTRIES_PER_PAGE)
      const page: ExportedEntry[] | null = await database.query((connection) =>
        readKept(connection, { tenantId, operationId }, 'ledger', read),
      )
      if (page === null) return
      if (page.length > 0) yield page
      const last = page.at(-1)
      if (!last || page.length < ENTRIES_PER_PAGE) return
      after = { ord: last.ord, seq: last.seq }
    }
  }

  async function* readPeriod(
    tenantId: number,
    { start, end, ...period }: PeriodRange,
  ): AsyncGenerator<ExportedEntry[]> {
    let after: string | null = null
    for (;;) {
      const ids: string[] = await database.query((connection) =>
        readPeriodOperations(connection, tenantId, period, {
          from: start?.operationId ?? null,
          to: end?.operationId ?? null,
          after,
          limit: OPERATIONS_PER_PAGE,
        }),
      )
      for (const operationId of ids) {
        yield* readOperation(tenantId, operationId, {
          fromOrd: operationId === start?.operationId ? start.ord : 0,
          toOrd: operationId === end?.operationId ? end.ord : null,
          period,
        })
      }
      after = ids.at(-1) ?? null
      if (ids.length < OPERATIONS_PER_PAGE) return
    }
  }

  return {
    async planOperation(tenantId, operationId) {
      const extent = await database.query((connection) => readExtent(connection, tenantId, operationId))
      if (extent === null) return 'unknown'
      if (extent.ledgerPurged) return 'purged'
      const parts = Math.min(PARTS_MAX, Math.max(1, Math.ceil(extent.items / itemsPerPart)))
      return Array.from({ length: parts }, (_, part) => ({
        kind: 'operation' as const,
        operationId,
        fromOrd: part * itemsPerPart,
        toOrd: part === parts - 1 ? null : (part + 1) * itemsPerPart,
      }))
    },
    async planPeriod(tenantId, period) {
      const starts = await database.query((connection) =>
        readPartStarts(connection, tenantId, period, { itemsPerPart, limit: PARTS_MAX }),
      )
      // open at both ends: what starts between the plan and the write (`after`) may stand before or behind all that runs now
      const bounds = [null, ...starts.slice(1)]
      return bounds.map((start, part) => ({ kind: 'period' as const, ...period, start, end: bounds[part + 1] ?? null }))
    },
    read: (tenantId, range) =>
      range.kind === 'operation'
        ? readOperation(tenantId, range.operationId, { ...range, period: null })
        : readPeriod(tenantId, range),
  }
}
