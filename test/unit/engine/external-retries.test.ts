import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { convergeEvidence } from '../../../src/services/converge.ts'
import { reserveCalls } from '../../../src/storage/rate-limits.ts'
import { claimIntents } from '../../../src/storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../../../src/storage/run/claim-retries.ts'
import {
  readDueRetries,
  readItems,
  readOwnIntents,
  readRetryAttempts,
  readWindow,
} from '../../../src/storage/run/window.ts'
import { APPLIED, dueRetry, startExternalRun } from '../../support/external-run.ts'
import { away, runnableItem, useTestClock } from '../../support/held-run.ts'

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
vi.mock('../../../src/storage/run/claim-intents.ts', () => ({ claimIntents: vi.fn() }))
vi.mock('../../../src/storage/run/claim-retries.ts', () => ({ claimRetries: vi.fn(), explainKnownKeys: vi.fn() }))
vi.mock('../../../src/storage/rate-limits.ts', () => ({ reserveCalls: vi.fn() }))
vi.mock('../../../src/services/converge.ts', () => ({ convergeEvidence: vi.fn() }))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

describe('waiting items', () => {
  test('are sent at the step, under the key and with the number that their claim names', async () => {
    const run = startExternalRun({ cursor: 10 }, { providerIdempotentMs: 60_000 })
    run.due.push(
      dueRetry(4, { send: 3, attempt: 2 }),
      dueRetry(6, { send: 1, attempt: 1, effectKey: 'e6b' }),
      dueRetry(8, { send: 3, attempt: 3 }),
    )
    await tick()
    expect(vi.mocked(claimRetries).mock.calls[0]?.slice(2)).toEqual([
      [4, 6, 8],
      { sendByMs: 25_000, resendWithinMs: 55_000 },
    ])
    expect(run.air.map(({ call, claimed }) => [call.effectKey, call.input, call.attempt, claimed])).toEqual([
      ['e4', { n: 4 }, 2, { ord: 4, send: 3 }],
      ['e6b', { n: 6 }, 1, { ord: 6, send: 1 }],
      ['e8', { n: 8 }, 3, { ord: 8, send: 3 }],
    ])
    // a first attempt that had to wait for its key is no repetition
    expect(run.noted.retries).toEqual([['grant', 2]])
    for (const { answer } of run.air) answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['4 applied applied', '6 applied applied', '8 applied applied'])
  })

  test('a resend that does not answer "applied" says nothing of the first send', async () => {
    const run = startExternalRun({ cursor: 10 })
    run.due.push(dueRetry(4, { resend: true }))
    await tick()
    run.air[0]?.answer({ state: 'failed', failureClass: 'conflict' })
    await tick()
    expect(run.outcomes()).toEqual(['4 uncertain uncertain'])
  })

  test('are looked for first, then every 200 ms as long as new items are left, and at the end', async () => {
    const run = startExternalRun({ toOrd: 4 }, { concurrency: 1 })
    await tick()
    expect(run.claims).toHaveLength(2)
    expect(readDueRetries).toHaveBeenCalledTimes(1)
    await tick(199)
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.claims).toHaveLength(3)
    expect(readDueRetries).toHaveBeenCalledTimes(1)
    await tick(1)
    run.due.push(dueRetry(0))
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(2)
    expect(run.claims).toHaveLength(3)
    for (let n = 2; n < 5; n++) {
      run.air[n]?.answer(APPLIED)
      await tick()
    }
    expect(run.sent()).toEqual([0, 1, 2, 0, 3])
    expect(run.isOver).toBe(true)
    // the last look finds nothing, and ends the run
    expect(vi.mocked(readDueRetries).mock.results).toHaveLength(3)
  })

  test('that are due at the end keep the run going, and it asks for no more than there is room for', async () => {
    const run = startExternalRun({ toOrd: 1 }, { concurrency: 2 })
    await tick()
    run.due.push(dueRetry(5), dueRetry(6), dueRetry(7))
    run.air[0]?.answer(APPLIED)
    await tick()
    // nothing was due when the shard was read to its end
    expect(run.isOver).toBe(true)
    expect(vi.mocked(readDueRetries).mock.calls.map(([, , limit]) => limit)).toEqual([2, 2])
  })

  test('whose keys are all known by now leave room for new items', async () => {
    const run = startExternalRun({ toOrd: 2 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([7])
    vi.mocked(claimRetries).mockResolvedValueOnce([])
    await tick()
    expect(vi.mocked(explainKnownKeys).mock.calls.map(([, , ords, code]) => [ords, code])).toEqual([[[7], 'c1']])
    expect(run.sent()).toEqual([0, 1])
  })

  test('of which none is won are looked for once at the end of a shard', async () => {
    const run = startExternalRun({ cursor: 10 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([7])
    vi.mocked(claimRetries).mockResolvedValueOnce([])
    vi.mocked(explainKnownKeys).mockResolvedValueOnce(1)
    await tick()
    expect([run.isOver, vi.mocked(readDueRetries).mock.calls.length, run.noted.retries]).toEqual([true, 1, []])
  })

  test('whose rows are gone are not sent: nobody knows their input', async () => {
    const run = startExternalRun({ cursor: 10 })
    run.due.push(dueRetry(3), dueRetry(4))
    vi.mocked(readItems).mockResolvedValueOnce([runnableItem(4)])
    await tick()
    expect(run.sent()).toEqual([4])
  })

  test('of which some are won: the others are explained', async () => {
    const run = startExternalRun({ cursor: 10 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([3, 8])
    vi.mocked(claimRetries).mockResolvedValueOnce([dueRetry(3)])
    await tick()
    expect(explainKnownKeys).toHaveBeenCalledTimes(1)
    expect(run.sent()).toEqual([3])
  })

  test('that are all won need no explaining', async () => {
    const run = startExternalRun({ cursor: 10 })
    run.due.push(dueRetry(3))
    await tick()
    expect(explainKnownKeys).not.toHaveBeenCalled()
    expect(run.sent()).toEqual([3])
  })

  test('that the fence refuses end the claims', async () => {
    const run = startExternalRun({ toOrd: 2 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([7])
    vi.mocked(claimRetries).mockResolvedValueOnce(null)
    await tick()
    expect(run.isOver).toBe(true)
    expect(claimIntents).not.toHaveBeenCalled()
    expect(explainKnownKeys).not.toHaveBeenCalled()
    // it answered: what it left behind is known
    expect([run.noted.log, vi.mocked(readOwnIntents).mock.calls]).toEqual([[], []])
  })

  test('whose claim has no answer go back unsent; a resend to what it was', async () => {
    const run = startExternalRun({ toOrd: 2 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([7, 8])
    vi.mocked(claimRetries).mockRejectedValueOnce(away())
    vi.mocked(readOwnIntents).mockResolvedValue([
      { ord: 7, effectKey: 'e7', send: 2, resend: false },
      { ord: 8, effectKey: 'e8', send: 2, resend: true },
      { ord: 1, effectKey: 'e1', send: 1, resend: false },
    ])
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['7 absent null', '8 uncertain null'])
  })

  test('use the rate for those alone whose key is free', async () => {
    const run = startExternalRun({ cursor: 10 }, { ratePerSecond: 100 })
    run.due.push(dueRetry(1), dueRetry(2), dueRetry(3))
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(new Map([[2, 2]]))
    vi.mocked(reserveCalls).mockResolvedValue(0)
    await tick()
    expect(explainKnownKeys).toHaveBeenCalledTimes(1)
    expect(vi.mocked(reserveCalls).mock.calls.map(([, ...asked]) => asked)).toEqual([['grant', 100, 1]])
  })

  test('none of which is free use nothing of the rate', async () => {
    const run = startExternalRun({ cursor: 10 }, { ratePerSecond: 100 })
    run.due.push(dueRetry(1))
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(new Map())
    await tick()
    expect(reserveCalls).not.toHaveBeenCalled()
  })

  test('are not claimed when the gate closes while they wait for the rate', async () => {
    const run = startExternalRun({ toOrd: 10 }, { ratePerSecond: 1 })
    run.due.push(dueRetry(1))
    vi.mocked(reserveCalls).mockResolvedValue(60_000)
    await tick()
    run.held.giveBack = true
    run.held.wake()
    await tick()
    expect(run.isOver).toBe(true)
    expect(claimRetries).not.toHaveBeenCalled()
    // nor does it use up the rate for new ones
    expect(reserveCalls).toHaveBeenCalledTimes(1)
    expect(readWindow).not.toHaveBeenCalled()
  })
})

describe('isolation', () => {
  test('one item at a time, waiting ones first, until the suspects are behind it', async () => {
    const run = startExternalRun({ claims: 2, isolateUntil: 2, toOrd: 20 }, { concurrency: 4 })
    run.due.push(dueRetry(15))
    await tick()
    expect(vi.mocked(readDueRetries).mock.calls[0]?.[2]).toBe(1)
    expect(run.sent()).toEqual([15])
    expect(run.claims).toEqual([])
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.sent()).toEqual([15, 0])
    expect(run.claims.map(({ ords }) => ords)).toEqual([[0]])
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(run.sent()).toEqual([15, 0, 1])
    expect(run.held.isIsolated).toBe(true)
    run.air[2]?.answer(APPLIED)
    await tick()
    expect(run.held.isIsolated).toBe(false)
    // from here on the shard runs as any other
    await tick(1_000)
    expect(run.sent().slice(3, 7)).toEqual([2, 3, 4, 5])
  })

  test('the next suspect is not claimed before the outcome of the last one is written', async () => {
    const run = startExternalRun({ claims: 2, isolateUntil: 5 }, { concurrency: 4 })
    await tick()
    let finishWrite = (): void => {}
    vi.mocked(convergeEvidence).mockReturnValueOnce(
      new Promise((resolve) => {
        finishWrite = () => resolve({ moved: new Set([0]), mine: true, stopRequested: null, done: false })
      }),
    )
    run.air[0]?.answer(APPLIED)
    await tick(5_000)
    expect(run.claims).toHaveLength(1)
    finishWrite()
    await tick()
    expect(run.claims).toHaveLength(2)
  })

  test('without suspects at the cursor it ends with the first look', async () => {
    const run = startExternalRun({ claims: 3, isolateUntil: null, toOrd: 8 }, { concurrency: 4 })
    await tick()
    expect(run.held.isIsolated).toBe(false)
    await tick(1_000)
    expect(run.sent().length).toBeGreaterThan(0)
  })

  test('waiting suspects are looked for at each item, and not only now and then', async () => {
    const run = startExternalRun({ claims: 2, isolateUntil: 3 }, { concurrency: 4 })
    for (let n = 0; n < 3; n++) {
      await tick()
      expect(readDueRetries).toHaveBeenCalledTimes(n + 1)
      run.air[n]?.answer(APPLIED)
    }
  })
})

describe('items with steps', () => {
  const STEPS = { steps: ['charge', 'mail'] }

  test('begin with the first one, and come back for the next', async () => {
    const run = startExternalRun({ ...STEPS, toOrd: 1 }, STEPS)
    await tick()
    expect(run.air[0]?.call).toMatchObject({ step: 'charge', effectKey: 'e0/charge' })
    vi.mocked(convergeEvidence).mockImplementationOnce(async (_context, _shard, { reports }) => {
      run.written.push([...reports])
      run.due.push(dueRetry(0, { step: 'mail', effectKey: 'e0/mail', send: 1, attempt: 1 }))
      return { moved: new Set([0]), mine: true, stopRequested: null, done: false }
    })
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.air[1]?.call).toMatchObject({ step: 'mail', effectKey: 'e0/mail', itemKey: 'k0' })
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([0, 0])
  })

  test('what was begun is ended first: waiting items are looked for at every claim', async () => {
    const run = startExternalRun({ ...STEPS, toOrd: 3 }, { ...STEPS, concurrency: 1 })
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(2)
    run.due.push(dueRetry(0, { step: 'mail' }))
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(3)
    expect(run.claims).toHaveLength(2)
  })

  test('a write that ends while the last look is under way makes it look again', async () => {
    const run = startExternalRun({ ...STEPS, toOrd: 1 }, STEPS)
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(2)
    let answerLook = (): void => {}
    vi.mocked(convergeEvidence).mockImplementationOnce(async () => {
      run.due.push(dueRetry(0, { step: 'mail', effectKey: 'e0/mail' }))
      return { moved: new Set([0]), mine: true, stopRequested: null, done: false }
    })
    run.air[0]?.answer(APPLIED)
    await tick()
    vi.mocked(readDueRetries).mockReturnValueOnce(
      new Promise((resolve) => {
        answerLook = () => resolve([])
      }),
    )
    expect(run.air.map(({ call }) => call.step)).toEqual(['charge', 'mail'])
    run.air[1]?.answer(APPLIED)
    await tick()
    answerLook()
    await tick()
    expect(run.isOver).toBe(true)
  })

  test('a write that ends during a look that found nothing makes it look again', async () => {
    const run = startExternalRun({ ...STEPS, toOrd: 2 }, { ...STEPS, concurrency: 2 })
    await tick()
    expect(run.sent()).toEqual([0, 1])
    let answerLook = (): void => {}
    vi.mocked(readDueRetries).mockReturnValueOnce(
      new Promise((resolve) => {
        answerLook = () => resolve([])
      }),
    )
    run.air[0]?.answer(APPLIED)
    await tick(2)
    // the look is under way: it does not see the next step of the item whose outcome is written now
    run.due.push(dueRetry(1, { step: 'mail', effectKey: 'e1/mail' }))
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(run.outcomes()).toEqual(['0 applied applied', '1 applied applied'])
    answerLook()
    await tick()
    expect([run.isOver, run.sent()]).toEqual([false, [0, 1, 1]])
    expect(run.air[2]?.call.step).toBe('mail')
  })

  test('whose keys another operation has applied meanwhile are looked for again at once, at their next step', async () => {
    const run = startExternalRun({ ...STEPS, cursor: 10 }, STEPS)
    vi.mocked(readDueRetries).mockResolvedValueOnce([4])
    vi.mocked(claimRetries).mockResolvedValueOnce([])
    vi.mocked(explainKnownKeys).mockImplementationOnce(async () => {
      run.due.push(dueRetry(4, { step: 'mail', effectKey: 'e4/mail' }))
      return 1
    })
    await tick()
    expect(run.air[0]?.call).toMatchObject({ step: 'mail', itemKey: 'k4' })
  })

  test('of which nothing was explained: new items have their turn', async () => {
    const run = startExternalRun({ ...STEPS, toOrd: 1 }, STEPS)
    vi.mocked(readDueRetries).mockResolvedValueOnce([4])
    vi.mocked(claimRetries).mockResolvedValueOnce([])
    await tick()
    expect(run.claims).toHaveLength(1)
    const [, secondLook] = vi.mocked(readDueRetries).mock.invocationCallOrder
    expect(vi.mocked(claimIntents).mock.invocationCallOrder[0]).toBeLessThan(secondLook ?? 0)
  })

  test('without steps, what was explained is not due again: new items have their turn', async () => {
    const run = startExternalRun({ toOrd: 1 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([4])
    vi.mocked(claimRetries).mockResolvedValueOnce([])
    vi.mocked(explainKnownKeys).mockResolvedValueOnce(1)
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(2)
    expect(run.claims).toHaveLength(1)
    expect(run.claims[0]).toMatchObject({ from: 0 })
  })

  test.each([
    { now: ['mail'], at: 'charge', says: 'the type has no step "charge" now' },
    { now: [], at: 'charge', says: 'the type has no step "charge" now' },
    { now: ['mail'], at: '', says: 'the type has steps now' },
  ])('at "$at" of a type that now has $now: nothing is sent, and a person has to look', async ({ now, at, says }) => {
    const run = startExternalRun({ steps: at === '' ? [] : [at], toOrd: 1 }, { steps: now })
    await tick()
    expect(run.sent()).toEqual([])
    expect(run.written[0]).toMatchObject([
      { effect: 'absent', item: 'failed', failureClass: 'bug_suspected', reasonCode: 'UNKNOWN_STEP', message: says },
    ])
  })

  test('are undone as a whole: a compensation has no steps', async () => {
    const compensator = {
      kind: 'external' as const,
      callTimeoutMs: 5_000,
      send: () => Promise.reject(new Error('not run here')),
      lookup: null,
    }
    const run = startExternalRun({ toOrd: 1, compensating: true }, { ...STEPS, compensator })
    await tick()
    expect(run.air[0]?.call.step).toBe('')
  })
})
