import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { Problem, unreachable } from '../api/problem.ts'

/**
 * Reads a resource, and again every so often while the page is seen. While it fails, what was read before stays, with
 * the problem beside it, and asking goes on more slowly.
 */
export interface Read<T> {
  data: T | null
  problem: Problem | null
  /** When `data` was read. */
  readAtMs: number | null
  refresh: () => void
}

const FAILURES_WAIT_MAX_MS = 30_000

interface State<T> {
  key: string
  data: T | null
  problem: Problem | null
  readAtMs: number | null
}

/**
 * @param key names what is read; another key starts anew. Null: nothing is read.
 * @param everyMs null: once, and when `refresh` is called
 */
export const useRead = <T>(
  key: string | null,
  read: (signal: AbortSignal) => Promise<T>,
  everyMs: number | null,
): Read<T> => {
  const [state, setState] = useState<State<T>>({ key: key ?? '', data: null, problem: null, readAtMs: null })
  const latestRead = useRef(read)
  latestRead.current = read
  const latestEveryMs = useRef(everyMs)
  latestEveryMs.current = everyMs
  const poke = useRef<() => void>(() => {})

  useEffect(() => {
    if (key === null) return
    const controller = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    let failures = 0
    let isReading = false
    let isAskedAgain = false

    const next = (): void => {
      clearTimeout(timer)
      const every = latestEveryMs.current
      if (controller.signal.aborted || document.hidden) return
      if (failures > 0) timer = setTimeout(run, Math.min((every ?? 2_000) * 2 ** failures, FAILURES_WAIT_MAX_MS))
      else if (every !== null) timer = setTimeout(run, every)
    }
    const run = async (): Promise<void> => {
      clearTimeout(timer)
      isReading = true
      try {
        const data = await latestRead.current(controller.signal)
        if (controller.signal.aborted) return
        failures = 0
        setState({ key, data, problem: null, readAtMs: Date.now() })
      } catch (error) {
        if (controller.signal.aborted) return
        // a refusal stays one until something changes; only a missing answer is worth asking for again
        const problem = error instanceof Problem ? error : unreachable(String(error), error)
        failures = problem.status === 0 || problem.status >= 500 ? failures + 1 : 0
        setState((before) =>
          before.key === key ? { ...before, problem } : { key, data: null, problem, readAtMs: null },
        )
      } finally {
        isReading = false
      }
      if (isAskedAgain) {
        isAskedAgain = false
        void run()
      } else next()
    }
    const runOnce = (): void => {
      if (isReading) isAskedAgain = true
      else void run()
    }
    const onVisibility = (): void => {
      if (!document.hidden) runOnce()
    }
    poke.current = runOnce
    document.addEventListener('visibilitychange', onVisibility)
    void run()
    return () => {
      controller.abort()
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', onVisibility)
    }
  }, [key])

  // what turns from resting to moving is asked for again at once
  const knownEveryMs = useRef(everyMs)
  useEffect(() => {
    if (everyMs === knownEveryMs.current) return
    knownEveryMs.current = everyMs
    if (everyMs !== null) poke.current()
  }, [everyMs])

  const refresh = useCallback(() => poke.current(), [])
  const isCurrent = state.key === key
  return {
    data: isCurrent ? state.data : null,
    problem: isCurrent ? state.problem : null,
    readAtMs: isCurrent ? state.readAtMs : null,
    refresh,
  }
}
