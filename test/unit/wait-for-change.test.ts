import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { changedSince, openChangeWaiter } from '../../src/services/wait-for-change.ts'
import type { OperationKey, OperationState } from '../../src/storage/operation-state.ts'
import type { WakeUp } from '../../src/storage/wake-ups.ts'

const CROWD = 1_000

/** Rows by id, and how many were read. */
const open = () => {
  const versions = new Map<string, number>()
  let reads = 0
  let wake: () => void = () => {}
  const waiter = openChangeWaiter({
    wakeUps: {
      send: () => {},
      on: (_kind: WakeUp, listener: () => void) => {
        wake = listener
        return () => {}
      },
      close: async () => {},
    },
    readState: async ({ id }: OperationKey) => {
      reads++
      return { id, status: 'running', version: versions.get(id) ?? 0 } as OperationState
    },
  })
  const wait = (id: string, ms: number, signal = new AbortController().signal) =>
    waiter.wait({ tenantId: 1, id }, { ms, until: changedSince(0), signal })
  return { waiter, wait, versions, wake: () => wake(), reads: () => reads }
}

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

describe('waiting for a change', () => {
  it('answers soon after the wake-up that says so', async () => {
    const { wait, versions, wake } = open()
    const waiting = wait('a', 60_000)
    await vi.advanceTimersByTimeAsync(10)
    versions.set('a', 1)
    wake()
    await vi.advanceTimersByTimeAsync(30)
    expect(await waiting).toMatchObject({ version: 1 })
  })

  it('finds a change by itself when no wake-up comes', async () => {
    const { wait, versions } = open()
    const waiting = wait('a', 60_000)
    await vi.advanceTimersByTimeAsync(10)
    versions.set('a', 1)
    await vi.advanceTimersByTimeAsync(600)
    expect(await waiting).toMatchObject({ version: 1 })
  })

  it('reads a bounded number of rows for a crowd, however often something changes', async () => {
    const { wait, wake, reads, waiter } = open()
    const controllers = Array.from({ length: CROWD }, () => new AbortController())
    const waiting = controllers.map(({ signal }, index) => wait(String(index), 60_000, signal))
    await vi.advanceTimersByTimeAsync(10)
    const before = reads()
    for (let ms = 0; ms < 1_000; ms += 5) {
      wake()
      await vi.advanceTimersByTimeAsync(5)
    }
    // everybody looks some eight times a second then; for a handful of waiters it would be forty times
    expect(reads() - before).toBeLessThanOrEqual(12 * CROWD)
    expect(reads() - before).toBeGreaterThanOrEqual(4 * CROWD)
    for (const controller of controllers) controller.abort()
    await Promise.all(waiting)
    waiter.close()
  })
})
