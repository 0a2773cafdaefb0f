import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { addDuration, emptyLatency, mergeLatency } from '../../../src/domain/latency.ts'
import { openTypeMeter } from '../../../src/engine/type-meter.ts'
import { addTypeMinutes, emptyDelta, type TypeDelta } from '../../../src/storage/type-minutes.ts'
import { notingContext, useTestClock, WORKER_ID } from '../../support/held-run.ts'

vi.mock('../../../src/storage/type-minutes.ts', async (original) => ({
  ...(await original<typeof import('../../../src/storage/type-minutes.ts')>()),
  addTypeMinutes: vi.fn(),
}))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const open = () => {
  const { context, noted } = notingContext()
  const written: TypeDelta[][] = []
  vi.mocked(addTypeMinutes).mockImplementation(async (_connection, workerId, deltas) => {
    expect(workerId).toBe(WORKER_ID)
    written.push([...deltas])
  })
  const info = vi.spyOn(context.log, 'info')
  const meter = openTypeMeter({ database: context.database, workerId: WORKER_ID, log: context.log })
  return { meter, noted, written, info }
}
const latency = (...timesMs: number[]) => timesMs.reduce(addDuration, emptyLatency() as readonly number[])

test('what was counted is written once a second, by type, and nothing is written where nothing was', async () => {
  const { meter, written } = open()
  meter.record({ type: 'grant', durationMs: 4, downstreamError: false })
  meter.record({ type: 'grant', durationMs: 80, downstreamError: true })
  meter.items('grant', 3, 1)
  meter.items('grant', 2, 1)
  meter.retries('grant', 2)
  meter.retries('import', 1)
  await tick(999)
  expect(written).toEqual([])
  await tick(1)
  expect(written).toEqual([
    [
      { type: 'grant', calls: 2, errors: 1, items: 5, rejected: 2, retries: 2, latency: latency(4, 80) },
      { ...emptyDelta('import'), retries: 1 },
    ],
  ])
  await tick(5_000)
  expect(written).toHaveLength(1)
})

test('nothing that did not happen makes a row', async () => {
  const { meter, written } = open()
  meter.items('grant', 0, 0)
  meter.retries('grant', 0)
  await meter.stop()
  expect(written).toEqual([])
})

test('what could not be written is kept, is added to what came since, and is told of once', async () => {
  const { meter, written, noted } = open()
  vi.mocked(addTypeMinutes).mockRejectedValueOnce(new Error('away')).mockRejectedValueOnce(new Error('away'))
  meter.record({ type: 'grant', durationMs: 4, downstreamError: true })
  meter.items('grant', 1, 1)
  meter.retries('grant', 1)
  meter.items('old', 7, 0)
  await tick(1_000)
  meter.record({ type: 'grant', durationMs: 80, downstreamError: true })
  meter.items('grant', 10, 10)
  meter.retries('grant', 10)
  await tick(2_000)
  expect(written).toHaveLength(1)
  expect(written[0]).toEqual([
    {
      type: 'grant',
      calls: 2,
      errors: 2,
      items: 11,
      rejected: 11,
      retries: 11,
      latency: mergeLatency(latency(4), latency(80)),
    },
    { ...emptyDelta('old'), items: 7 },
  ])
  expect(noted.log).toEqual(['the figures of the types could not be written; they are kept'])
  vi.mocked(addTypeMinutes).mockRejectedValueOnce(new Error('away'))
  meter.items('grant', 1, 0)
  await tick(1_000)
  // the next outage is told of again
  expect(noted.log).toHaveLength(2)
})

test('what is counted while a write is under way goes with the next one, and only one is under way', async () => {
  const { meter, written } = open()
  let finish = (): void => {}
  vi.mocked(addTypeMinutes).mockReturnValueOnce(
    new Promise((resolve) => {
      finish = resolve
    }),
  )
  meter.items('grant', 1, 0)
  await tick(1_000)
  meter.items('grant', 2, 0)
  await tick(3_000)
  expect(addTypeMinutes).toHaveBeenCalledTimes(1)
  let stopped = false
  void meter.stop().then(() => {
    stopped = true
  })
  await tick()
  expect(stopped).toBe(false)
  finish()
  await tick()
  expect(stopped).toBe(true)
  expect(written).toEqual([[{ ...emptyDelta('grant'), items: 2 }]])
})

test('what could not be written is added to what was counted while it was tried', async () => {
  const { meter, written } = open()
  let fail = (_error: Error): void => {}
  vi.mocked(addTypeMinutes).mockReturnValueOnce(
    new Promise((_resolve, reject) => {
      fail = reject
    }),
  )
  meter.record({ type: 'grant', durationMs: 4, downstreamError: true })
  meter.items('grant', 2, 1)
  meter.retries('grant', 3)
  await tick(1_000)
  for (let calls = 0; calls < 2; calls++) meter.record({ type: 'grant', durationMs: 80, downstreamError: true })
  meter.items('grant', 10, 6)
  meter.retries('grant', 4)
  fail(new Error('away'))
  await tick(1_000)
  const figures = { calls: 3, errors: 3, items: 12, rejected: 7, retries: 7 }
  expect(written).toEqual([[{ type: 'grant', ...figures, latency: latency(4, 80, 80) }]])
})

test('that figures are written again is told once, and only after an outage', async () => {
  const { meter, info } = open()
  const count = async () => {
    meter.items('grant', 1, 0)
    await tick(1_000)
  }
  await count()
  expect(info).not.toHaveBeenCalled()
  vi.mocked(addTypeMinutes).mockRejectedValueOnce(new Error('away')).mockRejectedValueOnce(new Error('away'))
  await count()
  await count()
  expect(info).not.toHaveBeenCalled()
  await count()
  await count()
  expect(info.mock.calls).toEqual([['the figures of the types are written again']])
})

test('the end writes what is left, and nothing is written after it', async () => {
  const { meter, written } = open()
  meter.items('grant', 2, 0)
  await meter.stop()
  expect(written).toHaveLength(1)
  meter.items('grant', 2, 0)
  await tick(10_000)
  expect(written).toHaveLength(1)
  expect(vi.getTimerCount()).toBe(0)
})

test('more than a thousand types are not counted, neither at first nor when they are kept', async () => {
  const { meter, written } = open()
  vi.mocked(addTypeMinutes).mockRejectedValueOnce(new Error('away'))
  for (let n = 0; n < 1_001; n++) meter.items(`t${n}`, 1, 0)
  await tick(1_000)
  meter.items('t1000', 1, 0)
  await tick(1_000)
  expect(written[0]).toHaveLength(1_000)
  expect(written[0]?.at(-1)?.type).toBe('t999')
  vi.mocked(addTypeMinutes).mockImplementationOnce(async () => {
    for (let n = 0; n < 1_000; n++) meter.items(`n${n}`, 1, 0)
    throw new Error('away')
  })
  meter.items('late', 1, 0)
  meter.items('n5', 4, 0)
  await tick(2_000)
  expect(written[1]).toHaveLength(1_000)
  expect(written[1]?.find(({ type }) => type === 'late')).toBeUndefined()
  expect(written[1]?.find(({ type }) => type === 'n5')?.items).toBe(5)
})
