import { Readable } from 'node:stream'
import { isFinal } from '../domain/operation.ts'
import type { Principal } from '../services/principal.ts'
import type { EventView } from '../services/views.ts'
import type { Services } from './deps.ts'
import { MAX_PAGE_LIMIT, SSE_KEEP_ALIVE_SECONDS, SSE_RETRY_MS } from './limits.ts'
import { toEvent } from './resources/outcomes.ts'
import type { Waiters } from './waiters.ts'

export const EVENT_STREAM = 'text/event-stream'

interface StreamOptions {
  principal: Principal
  operationId: string
  /** The version of the last event that the client has seen (`Last-Event-ID`). */
  afterVersion: number | null
  services: Pick<Services, 'getOperation' | 'listEvents' | 'waitForChange'>
  waiters: Waiters
}

/**
 * The events of an operation as Server-Sent Events: what was missed first, then what comes, until the final state.
 * The operation is read before its events: if it was final then, its last event is among those read after.
 */
export const openEventStream = (options: StreamOptions): Readable => {
  const place = options.waiters.enter()
  const stream = Readable.from(events(options, place.signal), { objectMode: false })
  stream.once('close', () => options.waiters.leave(place))
  return stream
}

async function* events({ principal, operationId, afterVersion, services }: StreamOptions, signal: AbortSignal) {
  yield `retry: ${SSE_RETRY_MS}\n\n`
  let seen = afterVersion ?? 0
  while (!signal.aborted) {
    const operation = await services.getOperation(principal, operationId)
    if (operation === null) return
    for (;;) {
      const page = await services.listEvents(principal, operationId, {
        limit: MAX_PAGE_LIMIT,
        position: { version: seen },
      })
      if (page === null || page.items.length === 0) break
      yield page.items.map(frame).join('')
      seen = page.items.at(-1)?.version ?? seen
      if (page.next === null) break
    }
    if (isFinal(operation.status)) return
    const wait = { seconds: SSE_KEEP_ALIVE_SECONDS, seenVersion: operation.version, signal }
    const changed = await services.waitForChange(principal, operationId, wait)
    if (changed?.version === operation.version) yield ': keep-alive\n\n'
  }
}

/** JSON has no raw line breaks, so one data line holds it. */
const frame = (event: EventView): string =>
  `id: ${event.version}\nevent: ${event.kind}\ndata: ${JSON.stringify(toEvent(event))}\n\n`
