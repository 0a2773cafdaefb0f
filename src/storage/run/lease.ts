/**
 * The protocol by which shards are worked on. The statements are in this folder, one transition a file.
 *
 * Purpose: any number of workers run the shards of operations against a world that answers late, twice or never, and
 * after a crash on any line the database alone says what was done, what was not, and what nobody knows.
 *
 * State of a shard:     ready ─claim─▶ leased ─finish─▶ ready | done          (a cancel or pause moves ready ─▶ done)
 *                                 └─ lease runs out ─▶ claimed again, epoch + 1
 * State of an effect:   (none) ─claim window─▶ intent ─converge─▶ applied | absent | uncertain
 *                       absent ─claim retry─▶ intent (send + 1)     uncertain ─evidence─▶ applied | absent
 *
 * Invariants, each kept by one commit:
 *  A. The epoch grows with every claim. Claims of windows, cursor moves and finishes name their epoch and touch no row
 *     under another. Evidence is fenced by (effect key, send, operation) instead: what a lost worker saw is still kept.
 *  B. Every item below the cursor is in exactly one place: an effect in state intent that it owns, a final ledger entry,
 *     or `item_retries`. (An item that waits for a retry has both its last entry and its row there.)
 *  C. Counters of the shard change in the same commit as the ledger entries that they count.
 *  D. A stop (cancel, pause) is a column of the shard row; a window is claimed only under `stop_requested is null` on the
 *     locked row. So the row lock decides which came first, and after a stop no intent is ever claimed.
 *
 * Why a crash at each line of a run is safe:
 *  before the claim commits        nothing happened; the shard is ready.
 *  claimed, no window yet          the lease runs out; `claims` counts the crash; the next worker starts at the cursor.
 *  window committed, nothing sent  intents of an older epoch are found by the next claim and become `uncertain` with a
 *                                  case: whether they were sent is not known, and not guessed.
 *  sent, answer not yet stored     the same. A lookup, a callback or a person closes it with evidence.
 *  converge committed              outcome, ledger, counters, retries and cases are all there or all missing.
 *  COMMIT's reply lost             converging again moves 0 rows: the same send is already in that state.
 *  finished, not settled           the settle sweep finds operations whose shards are done and settles them.
 *
 * Artifact types depart in one thing: what a lost worker left in flight is tried again, not `uncertain`, and their last item
 * is decided by the fence of its commit. The header of publish.ts says why.
 *
 * Lock order (L1): operation → shards ascending → effects by key → retries, cases, ledger, events → artifacts.
 */

/** A shard, named by its key. */
export interface ShardKey {
  tenantId: number
  operationId: string
  shard: number
}

/** The right to work on a shard, as long as the epoch in the database is this one. */
export interface Lease extends ShardKey {
  workerId: string
  epoch: number
}

/** A lease as it was claimed, with what a run starts from. */
export interface ClaimedShard extends Lease {
  type: string
  fromOrd: number
  toOrd: number
  cursor: number
  /** Claims since the last progress, this one included: 2 and more mean that a worker died here. */
  claims: number
  /** Up to this ord the shard runs alone in its process, one item at a time. */
  isolateUntil: number | null
  stopRequested: 'pause' | 'cancel' | null
  /** The type is switched off: what an earlier holder left behind is explained, and nothing else is run. */
  switchedOff: boolean
}
