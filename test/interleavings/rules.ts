/**
 * The rules of the protocol, each of which can be switched off to see what it is there for. What a rule says stands in the
 * statement or in the engine that is named behind it.
 */
export const RULES = {
  /** A window is claimed only under the newest epoch (claim-intents.ts). */
  windowNamesEpoch: true,
  /** … and only while no stop stands on the locked shard row (claim-intents.ts). */
  windowNeedsNoStop: true,
  /** … and a key that somebody holds is not taken, but waited for (claim-intents.ts). */
  windowKeepsKnownKeys: true,
  /** … and from where the cursor is (claim-intents.ts). */
  windowNamesCursor: true,
  /** The same of retries (claim-retries.ts). */
  retryNamesEpoch: true,
  retryNeedsNoStop: true,
  retryNeedsFreeKey: true,
  /** Every claim of a shard is a new epoch (claim-shards.ts). */
  takeoverRaisesEpoch: true,
  /** What an earlier holder left in flight is called uncertain; without: absent, and tried again (run.ts). */
  orphansAreUncertain: true,
  /** Evidence speaks of one send (converge.ts). */
  evidenceNamesSend: true,
  /** What is known to be applied stays so (converge.ts). */
  appliedStays: true,
  /** A request whose answer never came is uncertain; without: failed, and tried again (answers of a call). */
  lostIsUncertain: true,
  /** No send that could outlive the lease (domain/lease.ts). */
  sendNeedsLease: true,
  /** No send after its `send_by` (domain/lease.ts). */
  sendNeedsSendBy: true,
  /** No send once a stop is known (external.ts). */
  sendNeedsOpenGate: true,
  /** A stop is acknowledged by who has closed the gate, not by who has not heard of it (heartbeat.ts). */
  gateClosesBeforeAcknowledgement: true,
  /** A stop of a shard in somebody's hands is not acknowledged by the request itself (stops.ts). */
  stopWaitsForHolder: true,
  /** Absence counts when nothing can arrive any more (domain/reconciliation.ts). */
  absenceNeedsStability: true,
  /** A shard is given back only under the newest epoch (finish.ts). */
  finishNamesEpoch: true,
  /** … and only when nothing is in flight (finish.ts). */
  finishNeedsNothingInFlight: true,
  /** A lease that its holder ends, whatever it leaves behind, is taken over like any other (end-lease.ts); without: `ready`. */
  endedLeaseStaysLeased: true,
  /** Evidence that makes a finished shard wait makes it ready again (converge.ts). */
  waitingReopensShard: true,
}
export type Rule = keyof typeof RULES
export type Rules = Readonly<Record<Rule, boolean>>

export const without = (rule: Rule): Rules => ({ ...RULES, [rule]: false })
