import { assertThat } from '../domain/assert.ts'
import { isLeaseLost, leaseEndsMs } from '../domain/lease.ts'
import { type Executor, executorOf, type OperationType, providerIdempotentMsOf } from '../domain/operation-type.ts'
import type { SuspectCharge } from '../storage/run/end-lease.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'
import { type Attributes, NO_SPAN, type Span } from '../tracing.ts'

export type StartSpan = (name: 'call' | 'batch', attributes: Attributes) => Span

/**
 * A shard in the hands of this worker: what the run and the heartbeat tell each other. The gate (`mayGoOn`) is closed in
 * memory before a stop is acknowledged, so nothing is sent after the acknowledgement.
 */
export class HeldShard {
  readonly lease: ClaimedShard
  readonly type: OperationType
  /** Applies the effects of the items, or takes those of another operation back. */
  readonly executor: Executor
  readonly providerIdempotentMs: number
  readonly heldSinceMs: number
  /** On the worker's monotonic clock, counted from before the lease was asked for. */
  leaseEndsMs: number
  stop: 'pause' | 'cancel' | null
  private stopSetAtMs = Number.NEGATIVE_INFINITY
  /** Somebody else holds it, or might by now. */
  lost = false
  /** The run is over and gives the shard back: it is no longer renewed, and missing it means nothing. */
  finishing = false
  /** Give it back at the next safe boundary: the worker drains, or others wait. */
  giveBack: boolean
  /** Of the suspect that ran last, as long as nobody has taken it back. */
  charge: SuspectCharge | null = null
  /** The operation is `running`: nothing is claimed before. It rejects where that could not be stored. */
  started: Promise<void> = Promise.resolve()
  /** Begins a span of this run; nobody traces until the run has its own. */
  trace: StartSpan = () => NO_SPAN
  private lastStepMs: number
  private isolated: boolean
  private waiting: (() => void)[] = []

  constructor(lease: ClaimedShard, type: OperationType, askedAtMs: number) {
    const executor = executorOf(type, lease.compensating)
    assertThat(executor !== null, 'a shard that compensates is claimed by workers only whose type can')
    this.lease = lease
    this.type = type
    this.executor = executor
    this.providerIdempotentMs = providerIdempotentMsOf(type, lease.compensating)
    this.heldSinceMs = askedAtMs
    this.lastStepMs = askedAtMs
    this.stop = lease.stopRequested
    this.isolated = lease.claims >= 2
    this.giveBack = lease.switchedOff
    this.leaseEndsMs = leaseEndsMs({ askedAtMs, leaseMs: type.leaseMs })
  }

  /** Workers died here: it runs alone in this process, one item at a time, until the suspects are behind it. */
  get isIsolated(): boolean {
    return this.isolated
  }

  endIsolation(): void {
    this.isolated = false
  }

  /** A stop was seen: the gate closes. A cancel is never taken back. */
  stopped(stop: 'pause' | 'cancel'): void {
    this.stopSetAtMs = performance.now()
    if (this.stop === 'cancel') return
    this.stop = stop
    this.wake()
  }

  /** No stop stood in an answer that was asked for at `askedAtMs`: opens the gate again, unless that answer is older than the stop. */
  notStopped(askedAtMs: number): void {
    if (this.stop !== 'pause' || askedAtMs <= this.stopSetAtMs) return
    this.stop = null
    this.wake()
  }

  /** Whether a new unit of work may begin. */
  get mayGoOn(): boolean {
    return this.stop === null && !this.lost && !this.giveBack && !this.isOver
  }

  get isOver(): boolean {
    return this.lost || isLeaseLost({ nowMs: performance.now(), leaseEndsMs: this.leaseEndsMs })
  }

  /** The run passed a step; without one for `stallMs` the lease is not renewed any more. */
  step(): void {
    this.lastStepMs = performance.now()
  }

  get isStalled(): boolean {
    return this.stalledMs > 0
  }

  /** For how long the run has been stalled; 0 or less: it is not. */
  get stalledMs(): number {
    return performance.now() - this.lastStepMs - this.type.stallMs
  }

  renewed(askedAtMs: number): void {
    this.leaseEndsMs = leaseEndsMs({ askedAtMs, leaseMs: this.type.leaseMs })
  }

  /** Tells the run that something changed: a stop, a loss, a finished call. */
  wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve()
  }

  /** Until the next `wake`, or `ms` at most. */
  nextWake(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.waiting.push(() => {
        clearTimeout(timer)
        resolve()
      })
    })
  }
}
