/**
 * The arithmetic of a holder that is somewhere else: how much it may have in hand, and until when it may act by its own clock.
 *
 * A worker elsewhere cannot know when its answer was written, only when it asked. So every deadline is told as a number of
 * milliseconds from the moment before it asked: what it then takes for the deadline is never later than the true one, however
 * long the answer was under way, and even if the process was frozen before it read it.
 *
 *   worker's clock    asked ──────────── within_ms ────────────▶ its deadline
 *   service's clock      └▶ received ──── within_ms ────────────▶ the deadline, not earlier
 */
import { safetyMarginMs } from './lease.ts'

/** Items handed out in one answer, at most: the largest `concurrency` that a type can have. */
export const REMOTE_ITEMS_MAX = 500
/** Of input in one answer; a first item is handed out whatever its size. */
export const REMOTE_INPUT_BYTES_MAX = 8 * 1024 * 1024

export interface RemoteRoom {
  /** What the worker asks for. */
  wanted: number
  concurrency: number
  /** Items that are in its hands already. */
  inFlight: number
  isolated: boolean
  ratePerSecond: number | null
}

/** How many items may be handed out now. Of a rate, half a second at most, so that calls are spread. */
export const remoteRoom = ({ wanted, concurrency, inFlight, isolated, ratePerSecond }: RemoteRoom): number => {
  const inHandMax = isolated ? 1 : concurrency
  const rateMax = ratePerSecond === null ? REMOTE_ITEMS_MAX : Math.max(1, Math.ceil(ratePerSecond / 2))
  return Math.max(0, Math.min(wanted, REMOTE_ITEMS_MAX, rateMax, inHandMax - inFlight))
}

/** The first of them whose inputs fit into one answer; at least one, where there is one. */
export const fitInputs = <Item>(items: readonly Item[], bytesOf: (item: Item) => number): Item[] => {
  let bytes = 0
  const end = items.findIndex((item, index) => {
    bytes += bytesOf(item)
    return index > 0 && bytes > REMOTE_INPUT_BYTES_MAX
  })
  return items.slice(0, end === -1 ? items.length : end)
}

/** Until when a worker may count on its lease, from before it asked. Not negative: 0 means that it is over. */
export const leaseWithinMs = (facts: {
  /** Between the request's arrival and the instant at which what is left of the lease was read. */
  waitedMs: number
  leaseLeftMs: number
  leaseMs: number
}): number => Math.max(0, Math.floor(facts.waitedMs + facts.leaseLeftMs - safetyMarginMs(facts.leaseMs)))

/** Until when it may begin an item: what it begins must be over while the lease stands. */
export const sendWithinMs = (facts: { leaseWithinMs: number; callTimeoutMs: number }): number =>
  Math.max(0, facts.leaseWithinMs - facts.callTimeoutMs)

/** Whether a shard that has lost workers is still among the items that they may have died of. */
export const isIsolated = (lease: { isolated: boolean; cursor: number; isolateUntil: number | null }): boolean =>
  lease.isolated && lease.cursor < (lease.isolateUntil ?? 0)
