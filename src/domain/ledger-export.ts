/** What the type `ledger-export` needs of the service: which parts of the ledger there are, and their entries. */
import type { LedgerEntry } from './ledger-entry.ts'

/** What its operations publish is the ledger, so it takes the right to read the ledger to ask for it and to get it. */
export const LEDGER_EXPORT = 'ledger-export'

/** Where a part begins or ends: at an item of an operation. */
export interface LedgerPlace {
  operationId: string
  ord: number
}

/** A part of the ledger that one chunk holds. Ids are uuids, upper bounds are exclusive, and null is no bound. */
export type LedgerRange =
  | { kind: 'operation'; operationId: string; fromOrd: number; toOrd: number | null }
  /** Entries observed in [from, to) of operations from `start` on. */
  | { kind: 'period'; from: string; to: string; start: LedgerPlace | null; end: LedgerPlace | null }

export interface ExportedEntry extends LedgerEntry {
  operationId: string
}

/** Of one tenant at a time. */
export interface LedgerSource {
  /**
   * In order, each of about as many items; the last one has all that come later. `unknown`: the tenant has no such
   * operation; `purged`: its ledger was deleted, as its time was over.
   * Entries are read when a part is written, so that the export of an operation that has ended by then is whole.
   */
  planOperation(tenantId: number, operationId: string): Promise<LedgerRange[] | 'unknown' | 'purged'>
  /** Times are RFC 3339. In order of operation and item. */
  planPeriod(tenantId: number, period: { from: string; to: string }): Promise<LedgerRange[]>
  /** Page by page; the next page is read when it is asked for. */
  read(tenantId: number, range: LedgerRange): AsyncIterable<ExportedEntry[]>
}
