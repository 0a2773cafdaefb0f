import { beforeEach, describe, expect, test, vi } from 'vitest'
import { charge, runSuspected, uncharge, workerCrash } from '../../../src/engine/suspects.ts'
import { chargeSuspect, unchargeSuspect } from '../../../src/storage/run/window.ts'
import { holdShard, notingContext } from '../../support/held-run.ts'

vi.mock('../../../src/storage/run/window.ts', () => ({
  chargeSuspect: vi.fn(),
  readDueRetries: vi.fn(),
  readItems: vi.fn(),
  readOrphanedIntents: vi.fn(),
  readOwnIntents: vi.fn(),
  readPosition: vi.fn(),
  readRetryAttempts: vi.fn(),
  readWindow: vi.fn(),
  unchargeSuspect: vi.fn(),
}))

beforeEach(() => {
  vi.resetAllMocks()
})

const SUSPECTED = { claims: 2 }

describe('an item that may have killed a worker', () => {
  test('is charged before it runs, and its charge is taken back after it', async () => {
    const order: string[] = []
    vi.mocked(chargeSuspect).mockImplementation(async (_connection, _lease, ord) => {
      order.push(`charge ${ord}`)
      return 3
    })
    vi.mocked(unchargeSuspect).mockImplementation(async () => void order.push('uncharge'))
    const answer = await runSuspected(notingContext().context, holdShard(SUSPECTED), 5, async () => {
      order.push('run')
      return 'done'
    })
    expect([answer, order]).toEqual(['done', ['charge 5', 'run', 'uncharge']])
  })

  test('is not run once it has killed as many as it has attempts', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(4)
    const run = vi.fn()
    expect(await runSuspected(notingContext().context, holdShard(SUSPECTED), 5, run)).toBe('used-up')
    expect(run).not.toHaveBeenCalled()
    expect(unchargeSuspect).not.toHaveBeenCalled()
  })

  test('is not run under a lease that is lost', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(null)
    const run = vi.fn()
    const held = holdShard(SUSPECTED)
    expect(await runSuspected(notingContext().context, held, 5, run)).toBe('lost')
    expect(run).not.toHaveBeenCalled()
    // nothing was charged, so nothing is to be taken back
    expect(held.charge).toBeNull()
  })

  test('loses its charge when it fails without killing anybody', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(1)
    vi.mocked(unchargeSuspect).mockResolvedValue()
    const failing = runSuspected(notingContext().context, holdShard(SUSPECTED), 5, () =>
      Promise.reject(new Error('no')),
    )
    await expect(failing).rejects.toThrow('no')
    expect(unchargeSuspect).toHaveBeenCalledTimes(1)
  })

  test('is an item like any other while its shard is not isolated', async () => {
    expect(await runSuspected(notingContext().context, holdShard(), 5, async () => 'done')).toBe('done')
    expect(chargeSuspect).not.toHaveBeenCalled()
  })
})

describe('a charge', () => {
  const charges = () => vi.mocked(unchargeSuspect).mock.calls.map(([, , taken]) => taken)

  test('that cannot be taken back ends no run, and goes before the next one', async () => {
    const { context, noted } = notingContext()
    const held = holdShard(SUSPECTED)
    vi.mocked(chargeSuspect).mockResolvedValueOnce(2).mockResolvedValueOnce(2)
    vi.mocked(unchargeSuspect).mockRejectedValueOnce(new Error('away'))
    expect(await charge(context, held, 5)).toBe(2)
    await uncharge(context, held)
    expect([noted.log, held.charge]).toEqual([['a charge was not taken back'], { ord: 5, before: 1 }])

    expect(await charge(context, held, 5)).toBe(2)
    expect(charges()).toEqual(Array(2).fill({ ord: 5, before: 1 }))
    await uncharge(context, held)
    expect([charges().length, held.charge]).toEqual([3, null])
  })

  test('is not made while an earlier one cannot be taken back', async () => {
    const { context } = notingContext()
    const held = holdShard(SUSPECTED)
    held.charge = { ord: 5, before: 0 }
    vi.mocked(unchargeSuspect).mockRejectedValueOnce(new Error('away'))
    await expect(charge(context, held, 5)).rejects.toThrow('away')
    expect(chargeSuspect).not.toHaveBeenCalled()
  })

  test('whose answer was lost may have been made', async () => {
    const { context } = notingContext()
    const held = holdShard(SUSPECTED)
    vi.mocked(chargeSuspect).mockRejectedValueOnce(new Error('away'))
    await expect(charge(context, held, 5)).rejects.toThrow('away')
    expect(held.charge).toEqual({ ord: 5, before: null })
    await uncharge(context, held)
    expect(charges()).toEqual([{ ord: 5, before: null }])
  })

  test('that was never made is not taken back: what stands there is the death of somebody else', async () => {
    await uncharge(notingContext().context, holdShard(SUSPECTED))
    expect(unchargeSuspect).not.toHaveBeenCalled()
  })
})

test('an item that killed its process each time is a bug, and says so', () => {
  expect(workerCrash(3)).toEqual({
    state: 'failed',
    failureClass: 'bug_suspected',
    reasonCode: 'WORKER_CRASH',
    message: 'the worker process died 3 times while it ran this item alone',
  })
})
