/**
 * The protocol by which shards are worked on. The statements are in this folder, one transition a file.
 *
 * Purpose: any number of workers run the shards of operations against a world that answers late, twice or never, and
 * after a crash on any line the database alone says what was done, what was not, and what nobody knows.
 *
 * State of a shard:     ready ─claim─▶ leased ─finish─▶ ready | done          (a cancel or pause moves ready ─▶ done)
 *                                 ├─ lease runs out ─▶ claimed again, epoch + 1, charged with a crash
 *                                 └─ fault of the database, holder lives: lease ended ─▶ the same, uncharged
 * State of an effect:   (none) ─claim window─▶ intent ─converge─▶ applied | absent | uncertain
 *                       absent ─claim retry─▶ intent (send + 1)     uncertain ─evidence─▶ applied | absent
 *                       applied ─its compensation is applied─▶ compensated ─claim retry─▶ intent (send + 1)
 *
 * Invariants, each kept by one commit:
 *  A. The epoch grows with every claim. Claims of windows, cursor moves and finishes name their epoch and touch no row
 *     under another. Evidence is fenced by (effect key, send, operation) instead: what a lost worker saw is still kept.
 *  B. Every item below the cursor is in exactly one place: an effect in state intent that it owns, a final ledger entry,
 *     or `item_retries`. (An item that waits for a retry has both its last entry and its row there.)
 *  C. Counters of the shard change in the same commit as the ledger entries that they count.
 *  D. A stop (cancel, pause) is a column of the shard row; a window is claimed only under `stop_requested is null` on the
 *     locked row. So the row lock decides which came first, and after a stop no intent is ever claimed.
 *  E. What waits (for an approval, or for other operations: storage/dependencies.ts) has shards that are `done`, so no claim
 *     can find it. Who lets it go makes them ready under the locks of the operation and its shards, and only then.
 *
 * Why a crash at each line of a run is safe:
 *  before the claim commits        nothing happened; the shard is ready.
 *  claimed, no window yet          the lease runs out; `claims` counts the crash; the next worker starts at the cursor.
 *  window committed, nothing sent  intents of an older epoch are found by the next claim and become `uncertain` with a
 *                                  case: whether they were sent is not known, and not guessed.
 *  sent, answer not yet stored     the same. A lookup, a callback or a person closes it with evidence.
 *  sent, and a callback is first   what it says is evidence for this send: applied moves the intent, and the worker's answer
 *                                  then finds it known, or contradicts. Absent moves nothing while the call is in flight
 *                                  (storage/callbacks.ts): a retry beside it could be a second effect.
 *  converge committed              outcome, ledger, counters, retries and cases are all there or all missing.
 *  COMMIT's reply lost             converging again moves 0 rows: the same send is already in that state.
 *  run over by a fault, not ended  the lease runs out, as if its holder had died: one charge too many, nothing else.
 *  its lease ended                 the shard is still leased under this epoch and in nobody's hands: a takeover is due, which
 *                                  explains what is in flight and ends a stop, as after a crash. Who ended it sends nothing
 *                                  any more; what it had observed is written before, or comes late and is kept (A).
 *  the end's reply lost            ending again moves nothing; and after a takeover it names an epoch that is over.
 *  a renewal comes after the end   the takeover is due a lease later, uncharged all the same.
 *  a claim or batch comes after it it is one under an epoch that still stands, and is explained like any other.
 *  finished, not settled           the settle sweep finds operations whose shards are done and settles them.
 *
 * Steps. The items of a shard may have ordered `steps`; each is an effect of its own, whose key is that of the item with the
 * step's name behind it. The item is applied when its last step is; until then it waits, is in flight or has an outcome at
 * exactly one step, and every step before that one is applied in the registry. The order stands in the shard row.
 *
 *   intent (step 1) ─converge: applied─▶ item_retries (next_step, step 2) ─claim retry─▶ intent (step 2) ─▶ … ─▶ applied
 *
 *  F. Whoever applies a step that is not the last (worker, late worker, lookup, callback, operator; or finds it applied by
 *     another: `explainKnownKeys`, `closeExplainedDoubts`) puts the item into `item_retries` at the next step in the same
 *     commit. The ledger gets an observation (STEP_APPLIED, STEP_ALREADY_APPLIED), as the item has no outcome by it. What
 *     called the item uncertain is taken back: `failed`, class transient, NEXT_STEP_DUE, with the retry that follows.
 *     An item that had failed for good is not set going by late evidence: it stays failed, for a replay to go on with.
 *  G. A step is claimed like any other effect: under the fence, once, and never from `applied`. So a replay, which has the
 *     same keys, walks over the steps that are applied and sends the first that is not.
 *  H. A cancel gives the next steps up as it gives retries up. Before the operation is final, `explainStopped` says of each
 *     item between two steps that it is `failed`, class transient, STOPPED_BETWEEN_STEPS, and names what was applied: nobody
 *     may read that nothing happened to it. A pause needs no entry: the item waits on.
 *  I. What is compensated is an item, not a step: all its applied steps become `compensated` in one commit (compensation.ts).
 *
 *  A crash with steps:
 *  step 1 sent, answer not stored  as without steps: uncertain, with a case of this step.
 *  its converge committed          the item waits for step 2 in `item_retries`: nothing is in anybody's memory.
 *  step 2 claimed, not sent        uncertain at step 2, by the next claim. Step 1 is applied and not touched.
 *  cancelled, not explained        the settle sweep settles again, and the facts say that items are unexplained.
 *  explained, not settled          the same; explaining again finds no row.
 *
 * Charges. A takeover cannot see why a lease ran out, so it counts a crash: `claims` + 1, without progress isolation, and in
 * isolation each run of a suspect is counted before it begins. Who lives to tell takes back what it can say was no crash: the
 * run of a suspect that is over, whatever came of it, and a claim whose run ended in a fault of the database (end-lease.ts). It
 * gives back exactly the counts that it found, so that a crash of somebody else before it stays counted.
 *
 * Holders elsewhere. A holder may be a program that asks over HTTP (docs/worker-api.md): the api speaks for it with these same
 * statements, and keeps nothing between two calls. Two things follow. An answer that hands out intents can be lost, and then
 * only the holder can say that it never began them; without that they are uncertain. And where no other such holder comes,
 * services/recover-remote.ts takes its shard over, explains it, and ends its own lease with the count of deaths that it found.
 *
 * Versions. A claim takes shards of the types and versions that it names, in a form of checkpoint that it knows
 * (domain/checkpoint.ts), and from then on the shard says by what it is held. What nobody can take is paused, with the reason,
 * and what was in flight there is explained as after any other takeover (services/recover-stranded.ts).
 *
 * Artifact types depart in one thing: what a lost worker left in flight is tried again, not `uncertain`, and their last item
 * is decided by the fence of its commit. The header of publish.ts says why.
 *
 * Lock order (L1): operation → shards ascending → effects by key → retries, cases, ledger, events → artifacts. A
 * compensation locks the effects that it undoes behind its own ones; compensation.ts says why this is no circle, and marks
 * them in the same commit.
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
  /** Of the submission (W3C Trace Context), to which a run links. */
  traceparent: string | null
  /** Of its items, in order; empty: an item is one effect. */
  steps: readonly string[]
  /** Claims since the last progress, this one included: 2 and more mean that a worker died here. */
  claims: number
  /** Those without this one: what counts again if its holder lives to end it (end-lease.ts). */
  claimsBefore: number
  /** Up to this ord the shard runs alone in its process, one item at a time. */
  isolateUntil: number | null
  stopRequested: 'pause' | 'cancel' | null
  /** The type is switched off: what an earlier holder left behind is explained, and nothing else is run. */
  switchedOff: boolean
  /** Its items take applied effects back: see compensation.ts. */
  compensating: boolean
  /**
   * The database was taken back to an older point, and what was sent in the time that it lost may be an effect of this
   * shard: see storage/restores.ts. `predates`: the operation is older than the restore.
   */
  doubt: { restoredMsAgo: number; predates: boolean } | null
}
