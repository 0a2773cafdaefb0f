/** The result ledger: append-only facts about an item. The latest entry with a state is the item's outcome. */
import type { FailureClass } from './failure.ts'
import type { CompleteCounts } from './operation.ts'

export const ITEM_STATES = ['applied', 'skipped', 'failed', 'uncertain'] as const
export type ItemState = (typeof ITEM_STATES)[number]

/** Who observed it. `late_worker` is a worker that had lost its lease: what it saw counts, what it owned does not. */
export const EVIDENCE_SOURCES = ['worker', 'late_worker', 'lookup', 'callback', 'operator', 'recovery'] as const
export type EvidenceSource = (typeof EVIDENCE_SOURCES)[number]

interface EntryFacts {
  /** Grows within an item; a database bigint, parsed at the storage edge. */
  seq: number
  ord: number
  itemKey: string
  /** The operation's budget for the item, not the number of the send. */
  attempt: number
  reasonCode: string | null
  effectKey: string | null
  effectRef: string | null
  evidenceRef: string | null
  source: EvidenceSource
  /** Database text: a Date would lose the microseconds. */
  observedAt: string
  workerId: string | null
}

export type LedgerEntry = EntryFacts &
  (
    | { state: 'applied' | 'skipped'; failureClass: null }
    | { state: 'failed'; failureClass: Exclude<FailureClass, 'ambiguous_effect'> }
    | { state: 'uncertain'; failureClass: 'ambiguous_effect' }
    /** An observation that changes no outcome: evidence for an older send, a contradiction. */
    | { state: null; failureClass: FailureClass | null }
  )

/** What `fold` needs of an entry. */
export type FoldableEntry = { seq: number; state: ItemState | null }

/** The entry that stands for the item now, whatever the order given; null: unprocessed. */
export const fold = <Entry extends FoldableEntry>(entries: readonly Entry[]): (Entry & { state: ItemState }) | null => {
  let latest: (Entry & { state: ItemState }) | null = null
  for (const entry of entries) {
    if (hasState(entry) && (latest === null || entry.seq > latest.seq)) latest = entry
  }
  return latest
}

const hasState = <Entry extends FoldableEntry>(entry: Entry): entry is Entry & { state: ItemState } =>
  entry.state !== null

/** Audits counts that were read from somewhere: every item in exactly one of them, none below zero. */
export const conserves = (counts: CompleteCounts): boolean => {
  const { total, applied, skipped, failed, uncertain, unprocessed } = counts
  const parts = [applied, skipped, failed, uncertain, unprocessed]
  return parts.every((part) => part >= 0) && parts.reduce((sum, part) => sum + part, 0) === total
}
