import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { patiently, returnUnclear, writePatiently } from '../../../src/engine/outcomes.ts'
import { convergeEvidence } from '../../../src/services/converge.ts'
import { report } from '../../../src/services/evidence-reports.ts'
import { workerEvidence } from '../../../src/services/outcome-reports.ts'
import type { Report } from '../../../src/storage/run/evidence.ts'
import { readOwnIntents } from '../../../src/storage/run/window.ts'
import { away, holdShard, notingContext, refusal, useTestClock, WORKER_ID } from '../../support/held-run.ts'

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
vi.mock('../../../src/services/converge.ts', () => ({ convergeEvidence: vi.fn() }))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const applied = (ord: number): Report =>
  report({ ord, effectKey: `e${ord}`, send: 1 }, { effect: 'applied', item: 'applied' })
const converged = { moved: new Set<number>(), mine: true, stopRequested: null, done: false }

/** The answer, once it is there; `tick` lets the time pass until then. */
const outcomeOf = <T>(work: Promise<T>): { value?: T } => {
  const box: { value?: T } = {}
  void work.then((value) => {
    box.value = value
  })
  return box
}

describe('outcomes that are written', () => {
  test('name their worker, its epoch and its code, and when to look at what is uncertain', async () => {
    const held = holdShard({ epoch: 9 }, { codeVersion: 'c7', providerIdempotentMs: 5_000 })
    vi.mocked(convergeEvidence).mockResolvedValue(converged)
    const reports = [applied(1)]
    const evidence = {
      source: 'worker',
      epoch: 9,
      workerId: WORKER_ID,
      actor: null,
      codeVersion: 'c7',
      lookupAfterMs: 0,
      reports,
    }
    expect(workerEvidence(held, reports)).toEqual(evidence)
    const { context } = notingContext()
    await writePatiently(context, held, reports)
    expect(convergeEvidence).toHaveBeenCalledWith(context, held.lease, evidence, { doublesMatter: true })
  })

  test('of an artifact are of no interest where something was written twice', async () => {
    vi.mocked(convergeEvidence).mockResolvedValue(converged)
    await writePatiently(notingContext().context, holdShard({}, { effect: 'artifact' }), [applied(1)])
    expect(vi.mocked(convergeEvidence).mock.calls[0]?.[3]).toEqual({ doublesMatter: false })
  })

  test('are counted: those that were sent, and the rejects among them', async () => {
    const { context, noted } = notingContext()
    vi.mocked(convergeEvidence).mockResolvedValue(converged)
    const unsent = report({ ord: 2, effectKey: 'e2', send: 1 }, { effect: 'absent', item: null })
    const rejected: Report = { ...applied(3), item: 'failed', failureClass: 'validation_rejected' }
    const failed: Report = { ...applied(4), item: 'failed', failureClass: 'transient' }
    await writePatiently(context, holdShard(), [applied(1), unsent, rejected, failed])
    expect(noted.items).toEqual([['grant', 3, 1]])
  })

  test('tell whether the lease is lost, and of a stop', async () => {
    const { context } = notingContext()
    const [kept, lost, stopped] = [holdShard(), holdShard(), holdShard()]
    vi.mocked(convergeEvidence)
      .mockResolvedValueOnce(converged)
      .mockResolvedValueOnce({ ...converged, mine: false })
      .mockResolvedValueOnce({ ...converged, stopRequested: 'cancel' })
    for (const held of [kept, lost, stopped]) await writePatiently(context, held, [applied(1)])
    expect([kept, lost, stopped].map((held) => [held.lost, held.stop])).toEqual([
      [false, null],
      [true, null],
      [false, 'cancel'],
    ])
  })

  test('one that the database does not take costs no other one', async () => {
    const { context, noted } = notingContext()
    const written: number[][] = []
    vi.mocked(convergeEvidence).mockImplementation(async (_context, _shard, { reports }) => {
      const ords = reports.map(({ ord }) => ord)
      if (ords.includes(3)) throw refusal()
      written.push(ords)
      return converged
    })
    await writePatiently(context, holdShard(), [1, 2, 3, 4, 5].map(applied))
    expect(written.flat().sort()).toEqual([1, 2, 4, 5])
    // halves: 1-5, 1-3, 1-2, 3, 4-5
    expect(vi.mocked(convergeEvidence).mock.calls.map(([, , { reports }]) => reports.length)).toEqual([5, 3, 2, 1, 2])
    expect(noted.log).toEqual(Array(3).fill('outcomes were refused by the database'))
    expect(noted.items).toEqual([
      ['grant', 2, 0],
      ['grant', 2, 0],
    ])
  })
})

describe('patience', () => {
  test('repeats every 250 ms what the database could not do now', async () => {
    const { context, noted } = notingContext()
    const work = vi.fn().mockRejectedValueOnce(away()).mockRejectedValueOnce(away()).mockResolvedValueOnce('there')
    const outcome = outcomeOf(patiently(holdShard(), context, work))
    await tick(249)
    expect(work).toHaveBeenCalledTimes(1)
    await tick(1)
    expect(work).toHaveBeenCalledTimes(2)
    await tick(250)
    expect(outcome).toEqual({ value: 'there' })
    expect(noted.log).toEqual(Array(2).fill('outcomes are kept until the database is back'))
  })

  test('ends after two minutes: a takeover then calls it uncertain', async () => {
    const { context, noted } = notingContext()
    const outcome = outcomeOf(patiently(holdShard(), context, () => Promise.reject(away())))
    await tick(120_000)
    expect(outcome).toEqual({})
    await tick(250)
    expect(outcome).toEqual({ value: null })
    expect(noted.log.at(-1)).toBe('outcomes could not be written; a takeover will call them uncertain')
  })

  test('is not spent on what is refused', async () => {
    const { context } = notingContext()
    const outcome = outcomeOf(patiently(holdShard(), context, () => Promise.reject(refusal())))
    await tick()
    expect(outcome).toEqual({ value: 'refused' })
  })

  test('that ends without a write counts nothing and loses no lease by it', async () => {
    const { context, noted } = notingContext()
    const held = holdShard()
    vi.mocked(convergeEvidence).mockRejectedValue(away())
    const outcome = outcomeOf(writePatiently(context, held, [applied(1)]))
    await tick(121_000)
    expect(outcome).toHaveProperty('value')
    expect([noted.items, held.lost]).toEqual([[], false])
  })
})

describe('intents of a claim without an answer', () => {
  const intent = (ord: number) => ({ ord, effectKey: `e${ord}`, send: 1, resend: false })

  test('go back unsent, if the claim asked for them', async () => {
    vi.mocked(readOwnIntents).mockResolvedValue([intent(1), intent(2)])
    vi.mocked(convergeEvidence).mockResolvedValue(converged)
    await returnUnclear(notingContext().context, holdShard(), new Set([2, 3]))
    expect(vi.mocked(convergeEvidence).mock.calls.map(([, , { reports }]) => reports)).toEqual([
      [expect.objectContaining({ ord: 2, effect: 'absent', item: null })],
    ])
  })

  test('are not there when the claim was not made', async () => {
    vi.mocked(readOwnIntents).mockResolvedValue([intent(1)])
    await returnUnclear(notingContext().context, holdShard(), new Set([2]))
    expect(convergeEvidence).not.toHaveBeenCalled()
  })

  test.each([
    ['refused', refusal],
    ['out of reach', away],
  ])('that are %s are left to a takeover', async (_what, error) => {
    vi.mocked(readOwnIntents).mockRejectedValue(error())
    const outcome = outcomeOf(returnUnclear(notingContext().context, holdShard(), new Set([2])))
    await tick(121_000)
    expect(outcome).toHaveProperty('value')
    expect(convergeEvidence).not.toHaveBeenCalled()
  })
})
