/**
 * How many requests a caller may make: token buckets, kept as one number each (GCRA), the time at which the bucket is full
 * again. A request puts that time off by one interval; when it would lie more than the window ahead, the bucket is empty.
 *
 *   now ──────────── fullAt ───────────────── now + window
 *        used up              still to be had
 *
 * Some requests may go on when it is empty, into a reserve as large again: see `take`. They run up a debt, which the others wait out.
 */

/** `read`, `write`, `work` (of workers elsewhere): per caller. `address`: of whoever has not shown who they are. */
export const RATE_POLICIES = ['read', 'write', 'work', 'address'] as const
export type RatePolicy = (typeof RATE_POLICIES)[number]

/** Requests a second, in the long run. */
export type RateLimits = Readonly<Record<RatePolicy, number>>

/** Far above what clients that poll, wait for `Retry-After` or use `Prefer: wait` need. */
export const RATE_LIMITS_DEFAULT: RateLimits = Object.freeze({ read: 500, write: 200, work: 500, address: 50 })
export const RATE_LIMIT_MAX = 1_000_000
/** A full bucket holds what comes in so many seconds. */
export const RATE_WINDOW_SECONDS = 10
const WINDOW_MS = RATE_WINDOW_SECONDS * 1_000
/** How many windows the reserve reaches to. */
const RESERVE = 2
/** Sums of intervals that no double holds. */
const ROUNDING = 1e-3

/** When the bucket is full again; where nothing was granted, `retryInMs` says when the next request would be. */
export type Taken = { granted: true; fullAtMs: number } | { granted: false; retryInMs: number }

/** `isReserved`: the request may use the reserve. All times on one clock. */
export const take = (fullAtMs: number, perSecond: number, nowMs: number, isReserved: boolean): Taken => {
  const wantedMs = Math.max(fullAtMs, nowMs) + 1_000 / perSecond
  const lateMs = wantedMs - nowMs - WINDOW_MS * (isReserved ? RESERVE : 1)
  return lateMs <= ROUNDING ? { granted: true, fullAtMs: wantedMs } : { granted: false, retryInMs: lateMs }
}

/** What `take` granted is given back. */
export const giveBack = (fullAtMs: number, perSecond: number): number => fullAtMs - 1_000 / perSecond

/** Requests that would be granted now without the reserve, and the seconds until the bucket is full. */
export const standing = (
  fullAtMs: number,
  perSecond: number,
  nowMs: number,
): { remaining: number; fullInSeconds: number } => {
  const usedMs = Math.max(0, fullAtMs - nowMs)
  return {
    remaining: Math.max(0, Math.floor(((WINDOW_MS - usedMs) * perSecond) / 1_000 + ROUNDING)),
    fullInSeconds: Math.ceil(usedMs / 1_000),
  }
}

/** `read=200 write=50` (commas do, too) over `defaults`; null: not in this form. */
export const parseRateLimits = (text: string, defaults: RateLimits = RATE_LIMITS_DEFAULT): RateLimits | null => {
  const limits: Record<RatePolicy, number> = { ...defaults }
  for (const part of text.trim().split(/[\s,]+/)) {
    const match = /^([a-z]+)=(\d{1,9})$/.exec(part)
    const policy = RATE_POLICIES.find((known) => known === match?.[1])
    const perSecond = Number(match?.[2])
    if (policy === undefined || perSecond < 1 || perSecond > RATE_LIMIT_MAX) return null
    limits[policy] = perSecond
  }
  return Object.freeze(limits)
}
