/**
 * Whether a worker gets anywhere. That its event loop turns says little: it may turn around a claim, a beat or a run that
 * waits for something that never comes. Such a worker beats, looks alive and does nothing, or holds its place and does not beat;
 * nobody but a new process can help. A database that is away is no reason: everything waits for it within limits, in rounds that
 * fail and begin again, and what is in hand is written when it is back.
 *
 *  - The loop goes round, whether it claims something or not, and the beats come back, whether they succeed or not.
 *  - As long as it can claim nothing, as every place is taken, one of the runs in hand moves. A run that lost its lease and has
 *    been stalled since may still hold outcomes to be written, so it is hung only when the database has answered for as long.
 */
import type { HeldShard } from './held-shard.ts'

/** Three claims in a row whose connection, statement and silence each take as long as they may are over before. */
const STILL_MS = 180_000
/** Beyond the `stallMs` of its type. */
const HUNG_MS = 60_000

export interface Places {
  /** Nothing more can be claimed. */
  full: boolean
  /** Without those that wait for their isolated run. */
  running: readonly HeldShard[]
}

export class Progress {
  private roundAtMs = performance.now()
  private beatAtMs = performance.now()
  private unansweredAtMs = performance.now()

  /** The loop has gone round. */
  round(): void {
    this.roundAtMs = performance.now()
  }

  beat(answered: boolean): void {
    this.beatAtMs = performance.now()
    if (!answered) this.unansweredAtMs = performance.now()
  }

  /** What does not move any more, for the log; null: all does. */
  stuck({ full, running }: Places): string | null {
    const nowMs = performance.now()
    if (nowMs - this.roundAtMs > STILL_MS) return 'nothing was claimed or looked for'
    if (nowMs - this.beatAtMs > STILL_MS) return 'no heartbeat came to an end'
    if (!full || running.length === 0 || nowMs - this.unansweredAtMs <= HUNG_MS) return null
    return running.every((shard) => shard.isOver && shard.stalledMs > HUNG_MS)
      ? 'every run in hand lost its lease and hangs'
      : null
  }
}
