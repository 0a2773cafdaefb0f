import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { AppError } from '../../src/domain/errors.ts'
import {
  HEAP_JUDGED_MS,
  HEAP_SHARE_LAST_MAX,
  HEAP_SHARE_MAX,
  LOOP_DELAY_LAST_MS_MAX,
  LOOP_DELAY_MS_MAX,
  QUEUE_LAST_MS_MAX,
  QUEUE_MS_MAX,
} from '../../src/http/limits.ts'
import { type Figures, HeapUse, Pressure, type Refusal, watchHeap, watchPressure } from '../../src/http/pressure.ts'

const CALM: Figures = { loopDelayMs: 5, heapShare: 0.2, queueMs: 0 }
const refuses = (pressure: Pressure): Refusal[] =>
  (['first', 'last', 'never'] as const).filter((refusal) => {
    try {
      pressure.refuse(refusal)
      return false
    } catch (error) {
      expect(error).toBeInstanceOf(AppError)
      expect((error as AppError).code).toBe('overloaded')
      return true
    }
  })
const lookedAt = (...looks: Partial<Figures>[]): Pressure => {
  const pressure = new Pressure()
  for (const figures of looks) pressure.look({ ...CALM, ...figures })
  return pressure
}

describe.each([
  ['loopDelayMs', LOOP_DELAY_MS_MAX, LOOP_DELAY_LAST_MS_MAX],
  ['heapShare', HEAP_SHARE_MAX, HEAP_SHARE_LAST_MAX],
  ['queueMs', QUEUE_MS_MAX, QUEUE_LAST_MS_MAX],
] as const)('%s', (figure, limit, last) => {
  const at = (value: number): Partial<Figures> => ({ [figure]: value })
  it('at its limit refuses nobody', () => expect(refuses(lookedAt(at(limit), at(limit)))).toEqual([]))
  it('over its limit refuses most', () =>
    expect(refuses(lookedAt(at(limit * 1.01), at(limit * 1.01)))).toEqual(['first']))
  it('at its last limit spares what is refused last', () =>
    expect(refuses(lookedAt(at(last), at(last)))).toEqual(['first']))
  it('over its last limit refuses all but what is never refused', () =>
    expect(refuses(lookedAt(at(last * 1.01), at(last * 1.01)))).toEqual(['first', 'last']))
  it('counts when it was over in two looks on end', () => {
    expect(refuses(lookedAt(at(last * 2)))).toEqual([])
    expect(refuses(lookedAt(at(last * 2), {}))).toEqual([])
    expect(refuses(lookedAt(at(last * 2), at(limit * 1.01)))).toEqual(['first'])
  })
})

it('tells when the level changes, and why it refuses', () => {
  const pressure = new Pressure()
  const over = { ...CALM, queueMs: QUEUE_MS_MAX + 1 }
  expect([pressure.look(CALM), pressure.look(over), pressure.look(over), pressure.look(over)]).toEqual([
    false,
    false,
    true,
    false,
  ])
  expect(() => pressure.refuse()).toThrow(/the database does not keep up/)
  expect(pressure.look(CALM)).toBe(true)
  expect(() => pressure.refuse()).not.toThrow()
})

describe('the heap in use', () => {
  it('is what a whole collection has left, whatever garbage there is since', () => {
    const heap = new HeapUse()
    expect(heap.share(99, 100, 0)).toBe(0)
    heap.collected(30, 0)
    expect(heap.share(99, 100, HEAP_JUDGED_MS)).toBe(0.3)
    heap.collected(95, HEAP_JUDGED_MS)
    expect(heap.share(99, 100, HEAP_JUDGED_MS)).toBe(0.95)
    expect(heap.share(50, 100, HEAP_JUDGED_MS)).toBe(0.5)
  })

  it('does not count for ever: a process that refuses everybody may not collect again', () => {
    const heap = new HeapUse()
    heap.collected(98, 1_000)
    expect(heap.share(98, 100, 1_000 + HEAP_JUDGED_MS)).toBe(0.98)
    expect(heap.share(98, 100, 1_001 + HEAP_JUDGED_MS)).toBe(0)
  })

  it('of this process is told by its collections', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const heap = watchHeap()
    try {
      const kept = Array.from({ length: 300_000 }, (_, index) => ({ index }))
      while (heap.share() === 0) {
        collect()
        await sleep(10)
      }
      expect(heap.share()).toBeLessThan(HEAP_SHARE_MAX)
      expect(kept).toHaveLength(300_000)
    } finally {
      heap.stop()
    }
  })
})

describe('a process that watches itself', () => {
  /** Blocks the loop in pieces longer than the limit, until it is noticed. */
  const block = async (isNoticed: () => boolean): Promise<void> => {
    for (let pieces = 0; pieces < 20 && !isNoticed(); pieces++) {
      const until = performance.now() + LOOP_DELAY_MS_MAX + 200
      while (performance.now() < until);
      await sleep(1)
    }
  }

  it('notices that its event loop is late, and that it is no more', { timeout: 60_000 }, async () => {
    const logged: object[] = []
    const { pressure, close } = watchPressure({ warn: (fields: object) => void logged.push(fields) } as never, () => 0)
    try {
      await block(() => pressure.level !== 'calm')
      expect(pressure.level).toBe('strained')
      expect(logged).toMatchObject([{ pressure: 'strained' }])
      while (pressure.level !== 'calm') await sleep(50)
      expect(logged).toHaveLength(2)
    } finally {
      close()
    }
  })

  it('asks for the queue of the database', { timeout: 60_000 }, async () => {
    const { pressure, close } = watchPressure({ warn: () => {} } as never, () => QUEUE_LAST_MS_MAX + 1)
    try {
      while (pressure.level !== 'drowning') await sleep(50)
    } finally {
      close()
    }
  })
})
