/** The result ledger: append-only facts about an item. The latest entry with a state is the item's outcome. */
import type { CompleteCounts } from './operation.ts'

export const ITEM_STATES = ['applied', 'skipped', 'failed', 'uncertain'] as const
export type ItemState = (typeof ITEM_STATES)[number]

/** Who observed it. `late_worker` is a worker that had lost its lease: what it saw counts, what it owned does not. */
export const EVIDENCE_SOURCES = ['worker', 'late_worker', 'lookup', 'callback', 'operator', 'recovery'] as const
export type EvidenceSource = (typeof EVIDENCE_SOURCES)[number]

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
