import { useEffect, useState } from 'preact/hooks'
import { readServerSentEvents } from '../api/server-sent-events.ts'
import type { OperationEvent } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { isFinal } from '../status.ts'

/**
 * The events of an operation as they happen: a stream that resumes after the last event seen; where there is none (a
 * proxy that swallows streams, a service at its limit), the list, asked for every few seconds.
 */
export interface Events {
  items: OperationEvent[]
  /** `polling` after a stream failed; it is tried again later. `ended`: the operation is final, nothing more comes. */
  mode: 'stream' | 'polling' | 'ended'
}

const POLL_MS = 5_000
const STREAM_AGAIN_MS = 30_000
/** As the service itself asks for. */
const STREAM_ENDED_MS = 2_000
const PAGE_LIMIT = 500
/** An operation has some ten events; one that has thousands is not shown in full. */
const PAGES_MAX = 10

const sleep = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })

/** Browsers keep some six connections to a service, over all tabs: a stream that nobody looks at would hold up the others. */
const untilSeen = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (!document.hidden || signal.aborted) return resolve()
    const controller = new AbortController()
    const end = (): void => {
      if (document.hidden && !signal.aborted) return
      controller.abort()
      resolve()
    }
    document.addEventListener('visibilitychange', end, { signal: controller.signal })
    signal.addEventListener('abort', end, { signal: controller.signal })
  })

const hiddenOr = (signal: AbortSignal): AbortSignal => {
  const controller = new AbortController()
  const onVisibility = (): void => {
    if (document.hidden) controller.abort()
  }
  document.addEventListener('visibilitychange', onVisibility, { signal: AbortSignal.any([signal, controller.signal]) })
  return AbortSignal.any([signal, controller.signal])
}

const isEvent = (value: unknown): value is OperationEvent =>
  typeof value === 'object' && value !== null && 'version' in value && 'kind' in value && 'at' in value

export const useEvents = (operationId: string, onEvent: () => void): Events => {
  const { client, caller } = useApp()
  const [events, setEvents] = useState<Events>({ items: [], mode: 'stream' })

  useEffect(() => {
    const controller = new AbortController()
    const { signal } = controller
    const seen = new Map<number, OperationEvent>()
    const show = (mode: Events['mode']): void => {
      if (!signal.aborted) setEvents({ items: [...seen.values()].sort((a, b) => a.version - b.version), mode })
    }
    const latest = (): OperationEvent | undefined => seen.get(Math.max(0, ...seen.keys()))
    const take = (event: OperationEvent): void => {
      if (seen.has(event.version)) return
      seen.set(event.version, event)
      onEvent()
    }

    /** Returns when the stream has ended in good order. */
    const follow = async (whileSeen: AbortSignal): Promise<void> => {
      const last = latest()?.version ?? 0
      const response = await client.open('/operations/{id}/events', {
        path: { id: operationId },
        accept: 'text/event-stream',
        headers: last > 0 ? { 'last-event-id': String(last) } : {},
        signal: whileSeen,
      })
      if (response.body === null) throw new Error('the stream has no body')
      show('stream')
      for await (const { data } of readServerSentEvents(response.body)) {
        const event: unknown = JSON.parse(data)
        if (!isEvent(event)) continue
        take(event)
        show('stream')
      }
    }
    const poll = async (): Promise<void> => {
      let cursor: string | undefined
      for (let page = 0; page < PAGES_MAX; page += 1) {
        const query = { limit: PAGE_LIMIT, cursor }
        const { items, next_cursor } = await client.get('/operations/{id}/events', {
          path: { id: operationId },
          query,
          signal,
        })
        for (const event of items) take(event)
        if (next_cursor === undefined) break
        cursor = next_cursor
      }
      show('polling')
    }
    const run = async (): Promise<void> => {
      while (!signal.aborted) {
        await untilSeen(signal)
        try {
          await follow(hiddenOr(signal))
          // after the final state nothing more comes: late evidence has no event
          if (isFinal(latest()?.status ?? '')) {
            show('ended')
            return
          }
          // the service was stopped, or another one is there now
          await sleep(STREAM_ENDED_MS, signal)
        } catch {
          const until = Date.now() + STREAM_AGAIN_MS
          while (!signal.aborted && !document.hidden && Date.now() < until) {
            await poll().catch(() => {})
            await sleep(POLL_MS, signal)
          }
        }
      }
    }
    setEvents({ items: [], mode: 'stream' })
    void run()
    return () => controller.abort()
  }, [operationId, client, caller, onEvent])

  return events
}
