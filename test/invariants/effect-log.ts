/** The judge's log: what the outside world was asked and what it did, per effect key, in the order in which it came. */

export interface EffectEntry {
  requests: number
  applied: number
  /** When each request arrived: epoch ms of the judge, in order. */
  arrivals: readonly number[]
  /** When each effect was done: epoch ms of the judge, in order. */
  appliedAt: readonly number[]
}

export type EffectLog = Readonly<Record<string, EffectEntry>>

/**
 * Who can say of the effects of these operation types what was really done. It must know of an effect no later than the
 * service can: logged before it is answered, or in the same transaction.
 */
export interface Judge {
  types: readonly string[]
  read(): EffectLog | Promise<EffectLog>
  /** The provider promises to make one effect of requests with one key: then repeats are no fault of the service's. */
  idempotent?: boolean
  /** An effect of this key was there before anybody asked for it. */
  hadBefore?(key: string): boolean
}

/** An account of effects that tells how often, and not when: rows of a table, for example. */
export const effectLog = (counts: Iterable<readonly [key: string, applied: number]>): EffectLog =>
  Object.fromEntries(
    [...counts].map(([key, applied]) => [key, { requests: applied, applied, arrivals: [], appliedAt: [] }]),
  )
