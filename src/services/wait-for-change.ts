import { isSettled } from '../domain/operation.ts'
import type { OperationKey, OperationState } from '../storage/operation-state.ts'
import type { ServiceContext } from './context.ts'
import type { StateReader } from './get-operation.ts'

/** Waiters are looked after so often although nothing woke them; all of them share the statements (natural batching). */
const POLL_MS = 500
/** After a wake-up some waiting time lets changes gather. */
const GATHER_MS = 25
/**
 * Both grow with the crowd. A wake-up does not say which operation changed, so everybody looks: thousands of waiters would read
 * as many rows forty times a second. With 5,000 it is some 10,000 rows a second, in 40 statements.
 */
const GATHER_MS_PER_WAITER = 0.1
const POLL_MS_PER_WAITER = 0.5

export interface ChangeWaiter {
  /**
   * Resolves with the operation once `until` holds for it, after `ms`, or when `signal` aborts; null when it does not exist.
   * A waiter costs a timer and no connection.
   */
  wait(
    key: OperationKey,
    options: { ms: number; until: (state: OperationState) => boolean; signal: AbortSignal },
  ): Promise<OperationState | null>
  close(): void
}

export const openChangeWaiter = ({
  wakeUps,
  readState,
}: Pick<ServiceContext, 'wakeUps'> & { readState: StateReader }): ChangeWaiter => {
  const looks = new Set<() => void>()
  let gathering: NodeJS.Timeout | null = null
  const lookAll = (): void => {
    gathering = null
    for (const look of [...looks]) look()
  }
  const off = wakeUps.on('change', () => {
    if (looks.size > 0) gathering ??= setTimeout(lookAll, GATHER_MS + looks.size * GATHER_MS_PER_WAITER)
  })

  return {
    async wait(key, { ms, until, signal }) {
      const deadline = performance.now() + ms
      for (;;) {
        const left = deadline - performance.now()
        // registered before the read: a change in between wakes it
        let look: () => void = () => {}
        const woken = new Promise<void>((resolve) => {
          look = resolve
        })
        looks.add(look)
        signal.addEventListener('abort', look)
        const pollMs = POLL_MS + looks.size * POLL_MS_PER_WAITER
        const timer = setTimeout(look, Math.max(0, Math.min(left, pollMs)))
        try {
          const state = await readState(key)
          if (!state || left <= 0 || signal.aborted || until(state)) return state
          await woken
        } finally {
          clearTimeout(timer)
          looks.delete(look)
          signal.removeEventListener('abort', look)
        }
      }
    },
    close() {
      off()
      if (gathering) clearTimeout(gathering)
    },
  }
}

/** What `Prefer: wait` waits for: another version than the one seen or, without one, a settled state. */
export const changedSince =
  (seenVersion: number | null) =>
  (state: OperationState): boolean =>
    seenVersion === null ? isSettled(state.status) : state.version !== seenVersion
