/**
 * The loop of a worker: claims shards while it has room, runs each, and gives up its turn where others wait.
 *
 *  - It is woken by NOTIFY, by its own timers (a shard that it finished is due again at a known time) and, whatever
 *    happens to these, by a poll.
 *  - Tenants take turns (tenant-turns.ts).
 *  - A shard that lost a worker without progress runs isolated: alone in this process, so that if it dies again it is
 *    known of what.
 *  - A shard whose run ends in a fault of the database is in hand until its lease is ended (give-back.ts).
 *  - Draining: no claim any more, each run stops at its next safe boundary, heartbeats go on until the last one is done.
 */

import { isRemote, type OperationType } from '../domain/operation-type.ts'
import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { Database } from '../storage/database.ts'
import { claimExpiredShards, claimReadyShards, othersWait, type RunnableType } from '../storage/run/claim-shards.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'
import type { WakeUps } from '../storage/wake-ups.ts'
import { readPausedTypes, registerWorker, type WorkerPresence } from '../storage/worker-presence.ts'
import type { Tracing } from '../tracing.ts'
import type { RunContext } from './context.ts'
import { openGiveBacks } from './give-back.ts'
import { startHeartbeat } from './heartbeat.ts'
import { HeldShard } from './held-shard.ts'
import { Progress } from './progress.ts'
import { runShard } from './run.ts'
import { openTenantTurns } from './tenant-turns.ts'
import type { TypeMeter } from './type-meter.ts'

const POLL_MS = 1_000
/** Expired leases are looked for this often, and whenever nothing else is due. */
const TAKEOVER_MS = 500
/** A shard gives itself back after so long if others wait. */
const TURN_MS = 10_000
const TURN_LOOK_MS = 1_000
const REGISTER_RETRY_MS = 500

export interface EngineOptions {
  database: Database
  /** For heartbeats, stops and the ends of leases only. */
  control: Database
  types: readonly OperationType[]
  wakeUps: WakeUps
  meter: TypeMeter
  objects: ObjectStore
  presence: WorkerPresence
  /** Shards at once. */
  concurrency: number
  log: Log
  ended?: RunContext['ended']
  tracing?: Tracing
}

export interface Engine {
  /** Resolves when every run has stopped at a safe boundary and every outcome is written. */
  drain(): Promise<void>
  /** Why this worker gets nowhere, for the log; null: it does, or it drains, which has a limit of its own. */
  stuck(): string | null
}

export const startEngine = async (options: EngineOptions): Promise<Engine> => {
  const { database, control, wakeUps, presence, concurrency, log } = options
  const { meter, objects, ended, tracing } = options
  const context: RunContext = {
    database,
    wakeUps,
    meter,
    objects,
    log,
    ...(ended && { ended }),
    ...(tracing && { tracing }),
  }
  // items of the others are run by workers elsewhere, and nobody here could send them
  const own = options.types.filter((type) => !isRemote(type))
  const types = new Map(own.map((type) => [type.name, type]))
  const runnable: RunnableType[] = own.map((type) => ({
    name: type.name,
    version: type.version,
    leaseMs: type.leaseMs,
    windowMax: type.executor.kind === 'transactional' ? type.batch.maxItems : type.concurrency,
    compensates: type.compensator !== null,
    codeVersion: type.codeVersion,
  }))
  const held = new Set<HeldShard>()
  const running = new Set<Promise<void>>()
  const isolated: HeldShard[] = []
  let draining = false
  let takeoverAt = Number.NEGATIVE_INFINITY
  let wanted = true
  let wake: () => void = () => {}

  const nudge = (): void => {
    wanted = true
    wake()
  }
  const timers = new Set<NodeJS.Timeout>()
  const nudgeIn = (ms: number): void => {
    if (draining) return
    const timer = setTimeout(
      () => {
        timers.delete(timer)
        nudge()
      },
      Math.min(ms, 2 ** 31 - 1),
    )
    timers.add(timer)
  }

  await register(control, presence, log)
  const giveBacks = openGiveBacks({ control, log })
  const progress = new Progress()
  const heartbeat = startHeartbeat({ control, presence, held, log, onBeat: (answered) => progress.beat(answered) })
  const unsubscribe = [wakeUps.on('work', nudge), wakeUps.on('stop', () => heartbeat.look())]

  const run = (shard: HeldShard): void => {
    const { operationId, shard: number, epoch } = shard.lease
    log.debug({ operation_id: operationId, shard: number, epoch, type: shard.type.name }, 'shard claimed')
    const over = (dueInMs: number | null): void => {
      if (dueInMs !== null) nudgeIn(dueInMs)
      held.delete(shard)
      nudge()
    }
    const finished = runShard(context, shard)
      .then(
        (dueInMs) => {
          giveBacks.ended(shard)
          over(dueInMs)
        },
        // not waited for: a drain waits for what runs, and for this no longer than it has to
        (error: unknown) => void giveBacks.giveBack(shard, error).then(over),
      )
      .finally(() => {
        running.delete(finished)
        nudge()
      })
    running.add(finished)
  }

  /** Isolated shards wait until this process has nothing else in hand, then run one by one. */
  const runIsolated = (): void => {
    if (isolated.length === 0) return
    for (const shard of isolated) shard.step() // it waits for its turn, and is not stalled
    for (const shard of held) {
      if (shard.isIsolated || shard.giveBack) continue
      shard.giveBack = true
      shard.wake()
    }
    const next = running.size === 0 ? isolated.shift() : undefined
    if (next) run(next)
  }

  /** Alone means that nothing else is taken in hand before its isolation has ended. */
  const isAlone = (): boolean => [...held].some((shard) => shard.isIsolated)

  const adopt = (claimed: readonly ClaimedShard[], askedAtMs: number): void => {
    for (const lease of claimed) {
      const type = types.get(lease.type)
      if (!type) continue
      const shard = new HeldShard(lease, type, askedAtMs)
      held.add(shard)
      if (shard.isIsolated) isolated.push(shard)
      else run(shard)
    }
    if (claimed.length > 0) heartbeat.claimed()
  }

  const free = (): number => concurrency - held.size

  const turns = openTenantTurns({
    claim: (stretch) =>
      database.query((connection) =>
        claimReadyShards(connection, { workerId: presence.id, types: runnable, ...stretch }),
      ),
    adopt,
    room: () => (isAlone() || draining ? 0 : free()),
  })

  const claim = async (): Promise<void> => {
    if (free() > 0 && performance.now() - takeoverAt >= TAKEOVER_MS) {
      takeoverAt = performance.now()
      const askedAtMs = performance.now()
      adopt(
        await database.query((connection) =>
          claimExpiredShards(connection, { workerId: presence.id, types: runnable, limit: free() }),
        ),
        askedAtMs,
      )
    }
    // one shard of each tenant first; what is left goes to whoever has more
    if ((await turns.take(1)) > 0) await turns.take(concurrency)
  }

  const loop = async (): Promise<void> => {
    while (!draining) {
      progress.round()
      if (!wanted) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, POLL_MS)
          wake = () => {
            clearTimeout(timer)
            resolve()
          }
        })
      }
      wanted = false
      if (draining) return
      runIsolated()
      if (isAlone()) continue
      await claim().catch((error: unknown) => log.warn({ err: error }, 'claiming shards failed'))
      runIsolated()
    }
  }
  const looping = loop()

  let takingTurns = false
  const turnLooks = setInterval(() => {
    // one at a time: a slow database must not fill the connections that heartbeats use
    if (takingTurns) return
    takingTurns = true
    takeTurns()
      .catch((error: unknown) => log.warn({ err: error }, 'looking who waits failed'))
      .finally(() => {
        takingTurns = false
      })
  }, TURN_LOOK_MS)

  const takeTurns = async (): Promise<void> => {
    if (held.size === 0 || draining) return
    const paused = await control.query(readPausedTypes)
    for (const shard of held) {
      if (!paused.has(shard.type.name)) continue
      shard.giveBack = true
      shard.wake()
    }
    if (held.size < concurrency) return
    const longest = [...held].filter(
      (shard) => performance.now() - shard.heldSinceMs > TURN_MS && !shard.giveBack && !shard.isIsolated,
    )
    if (longest.length === 0 || !(await control.query((connection) => othersWait(connection, runnable)))) return
    for (const shard of longest) {
      shard.giveBack = true
      shard.wake()
    }
  }

  return {
    stuck() {
      if (draining) return null
      const full = held.size >= concurrency || isAlone()
      return progress.stuck({ full, running: [...held].filter((shard) => !isolated.includes(shard)) })
    },
    async drain() {
      draining = true
      heartbeat.state = 'draining'
      clearInterval(turnLooks)
      for (const off of unsubscribe) off()
      wake()
      await looping
      for (const shard of held) {
        shard.giveBack = true
        shard.wake()
      }
      // shards that waited for their isolated run are given back like the others, at their first boundary
      for (const shard of isolated.splice(0)) run(shard)
      while (running.size > 0) await Promise.all(running)
      await giveBacks.leave()
      for (const timer of timers) clearTimeout(timer)
      await heartbeat.stop()
    },
  }
}

const register = async (control: Database, presence: WorkerPresence, log: Log): Promise<void> => {
  for (;;) {
    try {
      return await control.query((connection) => registerWorker(connection, presence))
    } catch (error) {
      log.warn({ err: error }, 'the database is not there yet')
      await new Promise((resolve) => setTimeout(resolve, REGISTER_RETRY_MS))
    }
  }
}
