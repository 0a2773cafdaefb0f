/** The invariants, by the numbers of the fault suite's README. */
export const INVARIANTS = {
  I1: 'each id of a 2xx exists; the same key is the same id',
  I2: 'one final result an item; the counts are the ledger’s, and none is lost between them',
  I3: 'what is called applied was done, what is called anything else was not, what is not known is called uncertain',
  I4: 'no claim, cursor move or finish below the newest epoch',
  I5: 'final states are never left, and versions only grow',
  I6: 'no effect starts after a cancel was acknowledged',
  I7: 'what was accepted is final or open, and nothing is lost',
  I8: 'everything settles in its time',
} as const
export type Invariant = keyof typeof INVARIANTS

export interface Violation {
  invariant: Invariant
  /** The operation, item, shard, key or call that it is about. */
  subject: string
  says: string
}

export const describeViolation = ({ invariant, subject, says }: Violation): string => `${invariant} ${subject}: ${says}`
