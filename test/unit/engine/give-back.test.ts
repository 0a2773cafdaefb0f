import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { AppError } from '../../../src/domain/errors.ts'
import { openGiveBacks } from '../../../src/engine/give-back.ts'
import { endLease } from '../../../src/storage/run/end-lease.ts'
import { away, FAKED_DATABASE, holdShard, notingContext, refusal, useTestClock } from '../../support/held-run.ts'

vi.mock('../../../src/storage/run/end-lease.ts', () => ({ endLease: vi.fn() }))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const start = () => {
  const { context, noted } = notingContext()
  const giveBacks = openGiveBacks({ control: FAKED_DATABASE, log: context.log })
  return { giveBacks, noted }
}
const ends = () => vi.mocked(endLease).mock.calls.map(([, , end]) => end)
/** What a promise has come to by now. */
const watch = <T>(promise: Promise<T>): { came: T | 'not yet' } => {
  const seen: { came: T | 'not yet' } = { came: 'not yet' }
  promise.then((answer) => {
    seen.came = answer
  })
  return seen
}

describe('a run that ended in a fault of the database', () => {
  test.each([
    ['a session that was ended', away()],
    ['a statement that took too long', Object.assign(new Error('canceling'), { code: '57014' })],
    ['a lock that did not come', Object.assign(new Error('lock'), { code: '55P03' })],
    ['transactions in the way', new AppError('database-unavailable', 'too busy')],
    ['no free connection', new AppError('overloaded', 'none became free')],
  ])('(%s) ends its lease with the counts that it found', async (_, error) => {
    const { giveBacks, noted } = start()
    const held = holdShard({ claims: 3, claimsBefore: 2 })
    held.charge = { ord: 4, before: 1 }
    vi.mocked(endLease).mockResolvedValue(true)
    expect(await giveBacks.giveBack(held, error)).toBe(500)
    expect(vi.mocked(endLease).mock.calls[0]?.[1]).toBe(held.lease)
    expect(ends()).toEqual([{ dueInMs: 500, claims: 2, charge: { ord: 4, before: 1 } }])
    expect([held.finishing, held.mayGoOn]).toEqual([true, false])
    expect(noted.log).toEqual(['a run ended in a fault of the database'])
  })

  test('ends its lease as soon as the database answers', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockRejectedValue(away())
    const given = watch(giveBacks.giveBack(holdShard(), away()))
    await tick(60_000)
    expect(given.came).toBe('not yet')
    const tries = ends().length
    expect(tries).toBeGreaterThan(200)
    vi.mocked(endLease).mockResolvedValue(true)
    await tick(250)
    expect([given.came, ends().length]).toEqual([500, tries + 1])
  })

  test('gives up after two minutes: the lease runs out', async () => {
    const { giveBacks, noted } = start()
    vi.mocked(endLease).mockRejectedValue(away())
    const given = watch(giveBacks.giveBack(holdShard(), away()))
    await tick(119_500)
    expect(given.came).toBe('not yet')
    await tick(500)
    expect(given.came).toBeNull()
    expect(noted.log.at(-1)).toBe('a lease could not be ended: it runs out, as after a crash')
    expect(vi.getTimerCount()).toBe(0)
  })

  test('leaves a shard that another has by now to it', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockResolvedValue(false)
    expect(await giveBacks.giveBack(holdShard(), away())).toBeNull()
    expect(ends()).toHaveLength(1)
  })

  test('again and again is counted in the end, and rests longer each time; a run that ends well begins anew', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockResolvedValue(true)
    const held = () => holdShard({ claims: 2, claimsBefore: 1 })
    for (let n = 0; n < 7; n++) await giveBacks.giveBack(held(), away())
    await giveBacks.giveBack(holdShard({ shard: 1 }), away())
    giveBacks.ended(held())
    await giveBacks.giveBack(held(), away())
    expect(ends().map(({ dueInMs, claims }) => [dueInMs, claims])).toEqual([
      [500, 1],
      [1_000, 1],
      [2_000, 1],
      [4_000, 1],
      [8_000, 1],
      [8_000, 2],
      [8_000, 2],
      [500, 0],
      [500, 1],
    ])
  })

  test('is forgotten when a thousand other shards had theirs', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockResolvedValue(true)
    for (let shard = 0; shard < 1_001; shard++) await giveBacks.giveBack(holdShard({ shard }), away())
    await giveBacks.giveBack(holdShard({ shard: 1 }), away())
    await giveBacks.giveBack(holdShard({ shard: 0 }), away())
    expect(
      ends()
        .slice(-2)
        .map(({ dueInMs }) => dueInMs),
    ).toEqual([1_000, 500])
  })
})

test.each([
  ['a bug', new Error('a bug')],
  ['what the database refuses', refusal()],
])('a run that ended in another error (%s) is counted: its lease runs out', async (_, error) => {
  const { giveBacks, noted } = start()
  const held = holdShard()
  expect(await giveBacks.giveBack(held, error)).toBeNull()
  expect(endLease).not.toHaveBeenCalled()
  expect([held.finishing, noted.log]).toEqual([true, ['a run ended in an error']])
})

describe('a process that leaves', () => {
  test('waits for nothing where nothing is to be given back, or everything was', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockResolvedValue(true)
    for (let given = 0; given < 2; given++) {
      const leaving = giveBacks.leave()
      expect(vi.getTimerCount()).toBe(0)
      await leaving
      await giveBacks.giveBack(holdShard(), away())
    }
  })

  test('waits for a lease that is being ended', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease).mockRejectedValueOnce(away()).mockResolvedValue(true)
    const given = watch(giveBacks.giveBack(holdShard(), away()))
    const left = watch(giveBacks.leave())
    await tick(249)
    expect([given.came, left.came]).toEqual(['not yet', 'not yet'])
    await tick(1)
    expect([given.came, left.came]).toEqual([500, undefined])
    expect(vi.getTimerCount()).toBe(0)
  })

  test('waits no longer than a second, whether the database refuses or is silent', async () => {
    const { giveBacks } = start()
    vi.mocked(endLease)
      .mockReturnValueOnce(new Promise(() => {}))
      .mockRejectedValue(away())
    const silent = watch(giveBacks.giveBack(holdShard({ shard: 0 }), away()))
    const refused = watch(giveBacks.giveBack(holdShard({ shard: 1 }), away()))
    const left = watch(giveBacks.leave())
    await tick(999)
    expect(left.came).toBe('not yet')
    await tick(1)
    expect(left.came).toBeUndefined()
    await tick(250)
    expect([silent.came, refused.came]).toEqual(['not yet', null])
    expect(vi.getTimerCount()).toBe(0)
  })
})
