/**
 * What a worker's types do, counted in memory and written once a second: the hot path pays for an addition, and a database
 * that is away costs nothing but the figures of its absence, which are written later, in the minute of its return.
 *
 *   record ──▶ counted ──flush──▶ flushing ──written──▶ (gone)
 *                 ▲                   │ failed
 *                 └──── added back ───┘
 *
 * A flush whose reply was lost may be counted twice: these are statistics, not facts. Limit: TYPES_MAX types.
 */
import { addDuration, mergeLatency } from '../domain/latency.ts'
import type { Log } from '../log.ts'
import type { Database } from '../storage/database.ts'
import { addTypeMinutes, emptyDelta, type TypeDelta } from '../storage/type-minutes.ts'

const FLUSH_MS = 1_000
/** Far above what an installation has; a name past it is not counted. */
const TYPES_MAX = 1_000

export interface TypeMeter {
  /** One call: of an external effect, or of a batch handler. */
  record(call: { type: string; durationMs: number; downstreamError: boolean }): void
  /** Attempts that ended with an outcome (those that will be retried too), and how many of them were normal rejects. */
  items(type: string, ended: number, rejected: number): void
  /** Attempts that are repetitions. */
  retries(type: string, repeated: number): void
  /** Writes what is left. Never throws. */
  stop(): Promise<void>
}

const added = (left: TypeDelta, right: TypeDelta): TypeDelta => ({
  type: left.type,
  calls: left.calls + right.calls,
  errors: left.errors + right.errors,
  items: left.items + right.items,
  rejected: left.rejected + right.rejected,
  retries: left.retries + right.retries,
  latency: mergeLatency(left.latency, right.latency),
})

export const openTypeMeter = ({
  database,
  workerId,
  log,
}: {
  database: Database
  workerId: string
  log: Log
}): TypeMeter => {
  let counted = new Map<string, TypeDelta>()
  let flushing: Promise<void> | null = null
  let failing = false

  const deltaOf = (type: string): TypeDelta => {
    const known = counted.get(type)
    if (known) return known
    const delta = emptyDelta(type)
    if (counted.size < TYPES_MAX) counted.set(type, delta)
    return delta
  }

  const write = async (): Promise<void> => {
    const deltas = [...counted.values()]
    if (deltas.length === 0) return
    counted = new Map()
    try {
      await database.query((connection) => addTypeMinutes(connection, workerId, deltas))
      if (failing) log.info('the figures of the types are written again')
      failing = false
    } catch (error) {
      for (const delta of deltas) {
        const since = counted.get(delta.type)
        if (since || counted.size < TYPES_MAX) counted.set(delta.type, since ? added(delta, since) : delta)
      }
      // once per outage, not once a second
      if (!failing) log.warn({ err: error }, 'the figures of the types could not be written; they are kept')
      failing = true
    }
  }

  const flush = (): Promise<void> => {
    flushing ??= write().finally(() => {
      flushing = null
    })
    return flushing
  }

  const timer = setInterval(flush, FLUSH_MS)
  timer.unref()

  return {
    record({ type, durationMs, downstreamError }) {
      const delta = deltaOf(type)
      delta.calls++
      if (downstreamError) delta.errors++
      delta.latency = addDuration(delta.latency, durationMs)
    },
    items(type, ended, rejected) {
      if (ended === 0) return
      const delta = deltaOf(type)
      delta.items += ended
      delta.rejected += rejected
    },
    retries(type, repeated) {
      if (repeated > 0) deltaOf(type).retries += repeated
    },
    async stop() {
      clearInterval(timer)
      await flushing
      await flush()
    },
  }
}
