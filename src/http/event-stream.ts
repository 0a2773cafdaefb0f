/**
 * The events of an operation as Server-Sent Events, with its progress between them.
 *
 *   connect ──▶ what was missed (`Last-Event-ID`) ──▶ what comes ──▶ end, after the final state
 *
 * - Events carry their version as `id`, so a client that was cut off resumes behind the last one it has seen. `progress`
 *   frames carry none: they tell how it stands, and are not missed.
 * - The operation is read before its events: if it was final then, its last event is among those read after.
 * - At most one look a second, however fast the operation changes, and a byte every SSE_KEEP_ALIVE_SECONDS at the latest,
 *   because a proxy ends what is silent.
 * - Between two looks a stream is a timer and a place among the waiters; no connection to the database.
 * - A database that is away is waited for: a browser that is answered 503 when it comes back would never ask again.
 * - A stream ends by itself after SSE_STREAM_SECONDS, and the client comes back: with a key that must still be valid, and
 *   maybe to another process.
 */
import { Readable } from 'node:stream'
import { AppError } from '../domain/errors.ts'
import { isFinal } from '../domain/operation.ts'
import type { Principal } from '../services/principal.ts'
import type { EventView, OperationView } from '../services/views.ts'
import type { Services } from './deps.ts'
import {
  MAX_PAGE_LIMIT,
  SSE_KEEP_ALIVE_SECONDS,
  SSE_LOOK_MS,
  SSE_OUTAGE_LOOK_MS,
  SSE_RETRY_MS,
  SSE_STREAM_SECONDS,
} from './limits.ts'
import { PROBLEMS } from './problems.ts'
import { toOperation } from './resources/operation.ts'
import { toEvent } from './resources/outcomes.ts'

export const EVENT_STREAM = 'text/event-stream'

interface StreamOptions {
  principal: Principal
  operationId: string
  /** The version of the last event that the client has seen (`Last-Event-ID`). */
  afterVersion: number | null
  services: Pick<Services, 'getOperation' | 'listEvents' | 'waitForChange'>
  /** Aborted when the client is gone, or the server closes. */
  signal: AbortSignal
  /** Tests have less time. */
  times?: Partial<StreamTimes>
}

interface StreamTimes {
  keepAliveSeconds: number
  lookMs: number
  outageLookMs: number
  streamSeconds: number
}

const TIMES: StreamTimes = {
  keepAliveSeconds: SSE_KEEP_ALIVE_SECONDS,
  lookMs: SSE_LOOK_MS,
  outageLookMs: SSE_OUTAGE_LOOK_MS,
  streamSeconds: SSE_STREAM_SECONDS,
}

export const openEventStream = (options: StreamOptions): Readable =>
  Readable.from(frames(options, { ...TIMES, ...options.times }), { objectMode: false })

/**
 * Whether everything was told: a client that asks for more then gets 204, which tells an EventSource not to come back.
 * `afterVersion` null: it has seen nothing yet.
 */
export const isAllTold = async (
  { principal, operationId, afterVersion, services }: Omit<StreamOptions, 'signal'>,
  operation: OperationView,
): Promise<boolean> => {
  if (afterVersion === null || !isFinal(operation.status)) return false
  const missed = await services.listEvents(principal, operationId, { limit: 1, position: { version: afterVersion } })
  return missed?.items.length === 0
}

async function* frames(options: StreamOptions, times: StreamTimes): AsyncGenerator<string> {
  const { principal, operationId, services, signal } = options
  const endsAt = performance.now() + times.streamSeconds * 1_000
  // not all at once, when a process that held thousands of them has gone
  yield `retry: ${SSE_RETRY_MS + Math.floor(Math.random() * SSE_RETRY_MS)}\n\n`
  let seenEvent = options.afterVersion ?? 0
  let seenVersion: number | null = null
  while (!signal.aborted && performance.now() < endsAt) {
    try {
      const operation = await services.getOperation(principal, operationId)
      if (operation === null) return
      for await (const page of missedPages(options, seenEvent)) {
        yield page.map(eventFrame).join('')
        seenEvent = page.at(-1)?.version ?? seenEvent
      }
      yield operation.version === seenVersion ? KEEP_ALIVE : progressFrame(operation, principal)
      seenVersion = operation.version
      if (isFinal(operation.status)) return
      await pause(times.lookMs, signal)
      if (signal.aborted) return
      await services.waitForChange(principal, operationId, { seconds: times.keepAliveSeconds, seenVersion, signal })
    } catch (error) {
      if (!isPassing(error)) throw error
      yield KEEP_ALIVE
      await pause(times.outageLookMs, signal)
    }
  }
}

async function* missedPages(
  { principal, operationId, services }: StreamOptions,
  afterVersion: number,
): AsyncGenerator<EventView[]> {
  for (let version = afterVersion; ; ) {
    const page = await services.listEvents(principal, operationId, { limit: MAX_PAGE_LIMIT, position: { version } })
    if (page === null || page.items.length === 0) return
    yield page.items
    version = page.items.at(-1)?.version ?? version
    if (page.next === null) return
  }
}

const KEEP_ALIVE = ': keep-alive\n\n'

/** JSON has no raw line breaks, so one data line holds it. */
const eventFrame = (event: EventView): string =>
  `id: ${event.version}\nevent: ${event.kind}\ndata: ${JSON.stringify(toEvent(event))}\n\n`

const progressFrame = (view: OperationView, principal: Principal): string => {
  const { status, version, counts, count_ranges, progress, stuck_signals } = toOperation(view, principal)
  const told = { status, version, counts, count_ranges, progress, stuck_signals }
  return `event: progress\ndata: ${JSON.stringify(told)}\n\n`
}

/** What a service answers 503 for, and what may be over in a moment. */
const isPassing = (error: unknown): boolean => error instanceof AppError && PROBLEMS[error.code].status === 503

/** Resolves early when `signal` is aborted. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    if (signal.aborted) done()
    else signal.addEventListener('abort', done)
  })
