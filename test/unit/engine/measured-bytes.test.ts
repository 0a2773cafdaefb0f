import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { MeasuredBytes, TimeIsUp, withDeadline } from '../../../src/engine/measured-bytes.ts'
import { assertWindow } from '../../../src/services/assert-window.ts'
import { runnableItem, useTestClock } from '../../support/held-run.ts'

test('bytes are counted and hashed as they pass', () => {
  const measured = new MeasuredBytes()
  measured.add(Buffer.from('one, '))
  measured.add(Buffer.from('two'))
  expect(measured.sizeBytes).toBe(8)
  expect(measured.digest()).toBe(createHash('sha256').update('one, two').digest('hex'))
})

describe('a deadline', () => {
  let tick: (ms?: number) => Promise<void>
  beforeEach(() => {
    tick = useTestClock().tick
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('ends the wait for work that is late, and tells the work', async () => {
    let told: AbortSignal | undefined
    let failure: unknown
    withDeadline(1_000, ({ signal }) => {
      told = signal
      return new Promise(() => {})
    }).catch((error: unknown) => {
      failure = error
    })
    await tick(999)
    expect([failure, told?.aborted]).toEqual([undefined, false])
    await tick(1)
    expect(failure).toBeInstanceOf(TimeIsUp)
    expect(told?.aborted).toBe(true)
    expect(told?.reason).toBe(failure)
  })

  test('begins anew whenever the clock is touched', async () => {
    let touch = (): void => {}
    let failure: unknown
    withDeadline(1_000, (clock) => {
      touch = clock.touch
      return new Promise(() => {})
    }).catch((error: unknown) => {
      failure = error
    })
    await tick(900)
    touch()
    await tick(999)
    expect(failure).toBeUndefined()
    await tick(1)
    expect(failure).toBeInstanceOf(TimeIsUp)
  })

  test.each([
    ['answers', async () => 'done', 'done'],
    ['fails', () => Promise.reject(new Error('no')), 'no'],
  ])('is over with work that %s', async (_how, work, answer) => {
    expect(await withDeadline(1_000, work).catch((error: Error) => error.message)).toBe(answer)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('a window', () => {
  test('has every item from the cursor on', () => {
    expect(() => assertWindow([runnableItem(3), runnableItem(4), runnableItem(5)], 3)).not.toThrow()
  })

  test.each([
    ['none', []],
    ['one too early', [runnableItem(2)]],
    ['a gap', [runnableItem(3), runnableItem(5)]],
  ])('with %s ends the run', (_what, items) => {
    expect(() => assertWindow(items, 3)).toThrow('items are missing at ord 3')
  })
})
