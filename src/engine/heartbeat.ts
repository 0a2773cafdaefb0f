/**
 * Heartbeats of one worker, on a connection pool of their own: they never wait behind work.
 *
 * Each beat renews the leases of runs that still move, learns which shards were told to stop, closes their gates in memory
 * and only then acknowledges. A beat that fails changes nothing: the run counts its lease on its own clock and stops before
 * anybody may take over. A wake-up `stop` brings the next look forward; losing it costs one beat.
 *
 * A shard that was just claimed has its first beat a third of its lease later, whatever was planned before: a worker with
 * nothing in hand beats less often than a short lease lasts. And a row that was locked is tried again soon: its own run locks
 * it for milliseconds, but often, so that two beats in a row may find it locked.
 *
 * They go on while the worker drains, until the last batch is written.
 */
import { heartbeatMs } from '../domain/lease.ts'
import type { Log } from '../log.ts'
import type { Database } from '../storage/database.ts'
import { acknowledgeStops, type RenewedLease, readLeases, renewLeases } from '../storage/run/heartbeat.ts'
import { beatWorker, type WorkerPresence } from '../storage/worker-presence.ts'
import type { HeldShard } from './held-shard.ts'

/** One claim of one shard: a worker may lose a shard and have it again. */
const keyOf = ({ operationId, shard, epoch }: { operationId: string; shard: number; epoch: number }): string =>
  `${operationId}/${shard}/${epoch}`

/** How often the worker says that it is alive; `gone` after two of them were missed. */
export const WORKER_BEAT_MS = 2_000
/** Also how soon a renewal is tried again that was passed over. */
const BEAT_MS_MIN = 100

export interface Heartbeat {
  /** Looks for stops now, without renewing. */
  look(): void
  /** More is held than when the next beat was planned: it may have to come earlier. */
  claimed(): void
  state: 'active' | 'draining'
  stop(): Promise<void>
}

export const startHeartbeat = (options: {
  control: Database
  presence: WorkerPresence
  held: ReadonlySet<HeldShard>
  /** Told after each beat whether the database answered. */
  onBeat: (answered: boolean) => void
  log: Log
}): Heartbeat => {
  const { control, presence, held, onBeat, log } = options
  let stopped = false
  let lookAgain = false
  let looking: Promise<void> | null = null
  let timer: NodeJS.Timeout | null = null

  /** Two looks may be under way at once, and the older answer may come last: it opens no gate. Answers with what is missing. */
  const apply = (shards: readonly HeldShard[], answers: readonly RenewedLease[], askedAtMs: number): HeldShard[] => {
    const stopRequested = new Map(answers.map((answer) => [keyOf(answer), answer.stopRequested]))
    const missing: HeldShard[] = []
    for (const shard of shards) {
      const stop = stopRequested.get(keyOf(shard.lease))
      if (stop === undefined) missing.push(shard)
      else if (stop === null) shard.notStopped(askedAtMs)
      else if (stop !== shard.stop) shard.stopped(stop)
    }
    return missing
  }

  /** Reads what the renewal did not tell: a row that was locked is still ours, one that is gone is lost. */
  const reread = async (shards: readonly HeldShard[]): Promise<void> => {
    if (shards.length === 0) return
    const askedAtMs = performance.now()
    const leases = await control.query((connection) =>
      readLeases(
        connection,
        shards.map((shard) => shard.lease),
      ),
    )
    for (const shard of apply(shards, leases, askedAtMs)) {
      if (shard.finishing) continue
      shard.lost = true
      shard.wake()
      log.warn(
        { operation_id: shard.lease.operationId, shard: shard.lease.shard, epoch: shard.lease.epoch },
        'lease lost',
      )
    }
    await acknowledge(shards)
  }

  const acknowledge = async (shards: readonly HeldShard[]): Promise<void> => {
    const stopping = shards.filter((shard) => shard.stop !== null && !shard.lost && !shard.finishing)
    if (stopping.length === 0) return
    await control.query((connection) =>
      acknowledgeStops(
        connection,
        stopping.flatMap(({ lease, stop }) => (stop === null ? [] : [{ ...lease, stop }])),
      ),
    )
  }

  /** The last beat left somebody out who still holds its lease. */
  let passedOver = false
  const beat = async (): Promise<void> => {
    passedOver = false
    const moving = [...held].filter((shard) => !shard.lost && !shard.finishing && !shard.isStalled)
    const askedAtMs = performance.now()
    if (moving.length > 0) {
      const renewed = await control.query((connection) =>
        renewLeases(
          connection,
          presence.id,
          moving.map((shard) => shard.lease),
        ),
      )
      const missing = apply(moving, renewed, askedAtMs)
      for (const shard of moving) if (!missing.includes(shard)) shard.renewed(askedAtMs)
      await acknowledge(moving)
      await reread(missing)
      passedOver = missing.some((shard) => !shard.lost && !shard.finishing)
    }
  }

  let presenceAt = Number.NEGATIVE_INFINITY
  const sayAlive = async (): Promise<void> => {
    if (performance.now() - presenceAt < WORKER_BEAT_MS) return
    presenceAt = performance.now()
    await control.query((connection) => beatWorker(connection, presence, heartbeat.state))
  }

  const look = (): void => {
    if (stopped) return
    if (looking) {
      lookAgain = true
      return
    }
    lookAgain = false
    looking = reread([...held].filter((shard) => !shard.lost && !shard.finishing))
      .catch((error: unknown) => log.warn({ err: error }, 'looking for stops failed'))
      .finally(() => {
        looking = null
        if (lookAgain) look()
      })
  }

  let dueAtMs = Number.POSITIVE_INFINITY
  const untilNextMs = (): number =>
    passedOver
      ? BEAT_MS_MIN
      : Math.max(BEAT_MS_MIN, Math.min(WORKER_BEAT_MS, ...[...held].map((shard) => heartbeatMs(shard.type.leaseMs))))
  const schedule = (): void => {
    if (stopped) return
    const afterMs = untilNextMs()
    dueAtMs = performance.now() + afterMs
    timer = setTimeout(() => {
      timer = null // this beat plans the next one itself
      Promise.allSettled([beat(), sayAlive()])
        .then((results) => {
          for (const result of results) {
            if (result.status === 'rejected') log.warn({ err: result.reason }, 'heartbeat failed')
          }
          onBeat(results.every((result) => result.status === 'fulfilled'))
        })
        .finally(schedule)
    }, afterMs)
  }
  const claimed = (): void => {
    if (timer === null || performance.now() + untilNextMs() >= dueAtMs) return
    clearTimeout(timer)
    schedule()
  }
  const heartbeat: Heartbeat = {
    look,
    claimed,
    state: 'active',
    async stop() {
      stopped = true
      if (timer) clearTimeout(timer)
      await looking
      await control.query((connection) => beatWorker(connection, presence, 'gone')).catch(() => {})
    },
  }
  schedule()
  return heartbeat
}
