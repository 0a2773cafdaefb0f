/**
 * Refuses requests (503 with `Retry-After`) before a process that has too much to do gets slow for everybody, dies of its heap,
 * or keeps people waiting for a database connection until they give up.
 *
 *   calm ──a figure over its limit──▶ strained: most routes are refused
 *        ──a figure over its last limit──▶ drowning: so is what is refused last (cancels, pauses, workers, callbacks)
 *
 * Probes and metrics are answered always: what is strained must not be taken for dead and restarted.
 * A figure counts when it was over its limit in two looks on end: one pause of the whole process (a collection, a laptop that
 * slept) is over when it is seen, and to refuse then would help nobody.
 *
 * Why not @fastify/under-pressure: it has one limit for all routes, looks at no queue but by a health check of its own timer, and
 * trips on a single pause. What is left of it is the timer.
 */
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'
import { getHeapStatistics } from 'node:v8'
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../domain/errors.ts'
import {
  HEAP_JUDGED_MS,
  HEAP_SHARE_LAST_MAX,
  HEAP_SHARE_MAX,
  LOOP_DELAY_LAST_MS_MAX,
  LOOP_DELAY_MS_MAX,
  PRESSURE_LOOK_MS,
  QUEUE_LAST_MS_MAX,
  QUEUE_MS_MAX,
} from './limits.ts'

/** When a route is refused: `first` with most others, `last`, or `never`. */
export type Refusal = 'first' | 'last' | 'never'

export interface Figures {
  /** How late the event loop is for what is due, in milliseconds; half of the time it is later. */
  loopDelayMs: number
  /** Of the heap that there may be, in [0, 1]: what the last whole collection has left. */
  heapShare: number
  /** For how long somebody has been waiting for a connection to the database. */
  queueMs: number
}

const LEVELS = ['calm', 'strained', 'drowning'] as const
type Level = (typeof LEVELS)[number]

const WORDS: Readonly<Record<keyof Figures, string>> = {
  loopDelayMs: 'requests come in faster than they are answered',
  heapShare: 'its memory is nearly used up',
  queueMs: 'the database does not keep up',
}

const LIMITS: Readonly<Record<keyof Figures, Readonly<Record<Exclude<Level, 'calm'>, number>>>> = {
  loopDelayMs: { strained: LOOP_DELAY_MS_MAX, drowning: LOOP_DELAY_LAST_MS_MAX },
  heapShare: { strained: HEAP_SHARE_MAX, drowning: HEAP_SHARE_LAST_MAX },
  queueMs: { strained: QUEUE_MS_MAX, drowning: QUEUE_LAST_MS_MAX },
}

const FIGURES = ['loopDelayMs', 'heapShare', 'queueMs'] as const

const levelOf = (figure: keyof Figures, value: number): Level => {
  if (value > LIMITS[figure].drowning) return 'drowning'
  return value > LIMITS[figure].strained ? 'strained' : 'calm'
}

export class Pressure {
  #last: Figures = { loopDelayMs: 0, heapShare: 0, queueMs: 0 }
  #level: Level = 'calm'
  #cause: keyof Figures = 'loopDelayMs'

  /** Whether the level changed. */
  look(figures: Figures): boolean {
    const before = this.#level
    this.#level = 'calm'
    for (const figure of FIGURES) {
      const level = levelOf(figure, Math.min(figures[figure], this.#last[figure]))
      if (LEVELS.indexOf(level) <= LEVELS.indexOf(this.#level)) continue
      this.#level = level
      this.#cause = figure
    }
    this.#last = figures
    return this.#level !== before
  }

  get level(): Level {
    return this.#level
  }

  /** @throws AppError `overloaded` */
  refuse(refusal: Refusal = 'first'): void {
    if (this.#level === 'calm' || refusal === 'never') return
    if (refusal === 'last' && this.#level === 'strained') return
    throw new AppError('overloaded', `This process refuses requests for the moment: ${WORDS[this.#cause]}`)
  }
}

/** How often it is measured how late a timer is. */
const TICK_MS = 50

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

/**
 * How late the event loop is, measured by a timer. Node's own histogram does not do: it leaves out the first turn after each reset,
 * and a loop that is late has hardly more than one.
 */
const startTicking = (): { lateMs(): number; stop(): void } => {
  let late: number[] = []
  let tickedAt = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    late.push(Math.max(0, now - tickedAt - TICK_MS))
    tickedAt = now
  }, TICK_MS)
  timer.unref()
  return {
    lateMs() {
      const found = median(late)
      late = []
      return found
    },
    stop: () => clearInterval(timer),
  }
}

/**
 * How much of the heap is in use. Most of what a heap holds is garbage, which is no want of memory: so what counts is what was
 * left behind a collection of the whole heap. Those come by themselves, and the closer to the limit the more often. After
 * HEAP_JUDGED_MS without another one nothing counts: a process that refuses everybody makes no garbage, and would refuse for ever.
 */
export class HeapUse {
  #leftBytes = 0
  #collectedAtMs = Number.NEGATIVE_INFINITY

  /** A collection of the whole heap has left so much. */
  collected(leftBytes: number, nowMs: number): void {
    this.#leftBytes = leftBytes
    this.#collectedAtMs = nowMs
  }

  /** In [0, 1]. `used`: with the garbage of now; it can have become less by smaller collections. */
  share(used: number, limit: number, nowMs: number): number {
    return nowMs - this.#collectedAtMs > HEAP_JUDGED_MS ? 0 : Math.min(used, this.#leftBytes) / limit
  }
}

const isWhole = ({ detail }: PerformanceEntry & { detail?: { kind?: number } }): boolean =>
  detail?.kind === constants.NODE_PERFORMANCE_GC_MAJOR

/** Of this process; watched until it is stopped. */
export const watchHeap = (): { share(): number; stop(): void } => {
  const heap = new HeapUse()
  const observer = new PerformanceObserver((list) => {
    if (list.getEntries().some(isWhole)) heap.collected(getHeapStatistics().used_heap_size, performance.now())
  })
  observer.observe({ entryTypes: ['gc'] })
  return {
    share() {
      const { used_heap_size, heap_size_limit } = getHeapStatistics()
      return heap.share(used_heap_size, heap_size_limit, performance.now())
    },
    stop: () => observer.disconnect(),
  }
}

/** Looks by itself until it is closed. */
export const watchPressure = (
  log: Pick<FastifyBaseLogger, 'warn'>,
  queueMs: () => number,
): { pressure: Pressure; close(): void } => {
  const pressure = new Pressure()
  const ticking = startTicking()
  const heap = watchHeap()
  const timer = setInterval(() => {
    const figures = { loopDelayMs: ticking.lateMs(), heapShare: heap.share(), queueMs: queueMs() }
    if (pressure.look(figures)) log.warn({ pressure: pressure.level, ...figures }, 'the pressure has changed')
  }, PRESSURE_LOOK_MS)
  timer.unref()
  return {
    pressure,
    close() {
      clearInterval(timer)
      ticking.stop()
      heap.stop()
    },
  }
}
