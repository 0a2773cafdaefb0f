/**
 * The arithmetic of a lease. Two clocks that never meet: the database judges who holds a shard (`now()` there), the
 * worker judges on its own monotonic clock how long it may still act. The worker counts its lease from *before* it
 * asked for the renewal, and ends it a safety margin early, so it stops before anybody may take over:
 *
 *   worker's clock   asked ─────────────── leaseEndsMs │ margin │
 *   database         ······ granted ───────────────────────────── lease_expires_at → takeover
 *
 * What remains is stated, not solved: a request paused between the check and the socket can still go out late. It
 * carries its effect key, and its effect is `uncertain` by then.
 */
const HEARTBEAT_MS_MAX = 10_000
const MARGIN_MS_MIN = 100
const MARGIN_MS_MAX = 2_000
export const MISSED_HEARTBEATS_MAX = 2

/** A third of the lease, at most 10 s: two beats may be lost before the lease is. */
export const heartbeatMs = (leaseMs: number): number => Math.max(1, Math.min(HEARTBEAT_MS_MAX, Math.floor(leaseMs / 3)))

/** How much earlier than the database the worker regards its lease as over: a tenth of it, within 0.1 to 2 s. */
export const safetyMarginMs = (leaseMs: number): number =>
  Math.min(MARGIN_MS_MAX, Math.max(MARGIN_MS_MIN, Math.floor(leaseMs / 10)))

/** The end of a lease on the worker's monotonic clock; `askedAtMs` is the instant before the renewal was sent. */
export const leaseEndsMs = ({ askedAtMs, leaseMs }: { askedAtMs: number; leaseMs: number }): number =>
  askedAtMs + leaseMs - safetyMarginMs(leaseMs)

export const isLeaseLost = ({ nowMs, leaseEndsMs }: { nowMs: number; leaseEndsMs: number }): boolean =>
  nowMs >= leaseEndsMs

export interface SendWindow {
  nowMs: number
  leaseEndsMs: number
  /** The effect's `send_by`: after it, others may take the send for never made. */
  sendByMs: number
  callTimeoutMs: number
}

/** Whether what is left of the lease holds a call. */
export const fitsLease = ({ nowMs, leaseEndsMs, callTimeoutMs }: Omit<SendWindow, 'sendByMs'>): boolean =>
  nowMs + callTimeoutMs <= leaseEndsMs

/** Never send what could outlive the lease, nor after `send_by`: `absent` is derived from that promise. */
export const maySend = ({ sendByMs, ...call }: SendWindow): boolean => call.nowMs <= sendByMs && fitsLease(call)

/** The last instant at which a call may start under a lease that ends then. */
export const sendByMs = ({ leaseEndsMs, callTimeoutMs }: { leaseEndsMs: number; callTimeoutMs: number }): number =>
  leaseEndsMs - callTimeoutMs

/** A type whose call does not fit into a whole lease could never send: refuse it at the start. */
export const leaseHoldsCall = ({ leaseMs, callTimeoutMs }: { leaseMs: number; callTimeoutMs: number }): boolean =>
  callTimeoutMs <= leaseMs - safetyMarginMs(leaseMs)

export interface LeaseAdvice {
  minMs: number
  maxMs: number
}

/** 2–3 × the type's p95, never below its call timeout; null as long as there is no p95. */
export const leaseAdvice = (facts: { p95Ms: number | null; callTimeoutMs: number }): LeaseAdvice | null => {
  const { p95Ms, callTimeoutMs } = facts
  if (p95Ms === null) return null
  return {
    minMs: Math.max(callTimeoutMs, Math.ceil(2 * p95Ms)),
    maxMs: Math.max(callTimeoutMs, Math.ceil(3 * p95Ms)),
  }
}

/** From half a lease without a beat on. One lost beat is nothing; this is worth showing. */
export const isHeartbeatLate = ({ sinceBeatMs, leaseMs }: { sinceBeatMs: number; leaseMs: number }): boolean =>
  sinceBeatMs >= leaseMs / 2

/** Two beats in a row did not come: a worker is `gone`, a shard likely to be taken over. */
export const isHeartbeatMissed = ({ sinceBeatMs, leaseMs }: { sinceBeatMs: number; leaseMs: number }): boolean =>
  sinceBeatMs > MISSED_HEARTBEATS_MAX * heartbeatMs(leaseMs)
