import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { EffectCall, EffectLookup, LookupOutcome, OperationType } from '../../../src/domain/operation-type.ts'
import type { HeldShard } from '../../../src/engine/held-shard.ts'
import { convergeEvidence } from '../../../src/services/converge.ts'
import { reserveCalls } from '../../../src/storage/rate-limits.ts'
import { claimIntents } from '../../../src/storage/run/claim-intents.ts'
import { readDueRetries, readOwnIntents, readWindow } from '../../../src/storage/run/window.ts'
import { APPLIED, dueRetry, startExternalRun } from '../../support/external-run.ts'
import {
  away,
  ignorePoints,
  notePoints,
  noteSpans,
  OPERATION_ID,
  refusal,
  runnableItem,
  useTestClock,
} from '../../support/held-run.ts'

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

describe('sending and claiming overlap', () => {
  test('no more calls than the concurrency are in the air, and no more than twice as many are outstanding', async () => {
    const run = startExternalRun({ toOrd: 7 }, { concurrency: 2 })
    await tick()
    expect(run.sent()).toEqual([0, 1])
    // the next window is claimed while this one is sent; the one after it has to wait
    expect(run.claims.map(({ ords }) => ords)).toEqual([
      [0, 1],
      [2, 3],
    ])
    run.air[0]?.answer(APPLIED)
    await tick(2)
    expect(run.sent()).toEqual([0, 1, 2])
    expect(run.claims).toHaveLength(2)
    run.air[1]?.answer(APPLIED)
    await tick(2)
    expect(run.sent()).toEqual([0, 1, 2, 3])
    expect(run.claims.at(-1)).toMatchObject({ from: 4, to: 6 })
    for (let n = 2; n < 7; n++) {
      run.air[n]?.answer(APPLIED)
      await tick(2)
    }
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([0, 1, 2, 3, 4, 5, 6])
    expect(run.outcomes()).toEqual([0, 1, 2, 3, 4, 5, 6].map((ord) => `${ord} applied applied`))
    // every claim had its answer: there is nothing to look for
    expect(readOwnIntents).not.toHaveBeenCalled()
    expect(run.claims.reduce((to, claim) => (claim.from === to ? claim.to : Number.NaN), 0)).toBe(7)
  })

  test('a window is claimed when there is room for a whole one again, and not for every single item', async () => {
    const run = startExternalRun({ toOrd: 40 }, { concurrency: 4 })
    await tick()
    expect(run.claims.map(({ from, to }) => [from, to])).toEqual([
      [0, 4],
      [4, 8],
    ])
    run.air[0]?.answer(APPLIED)
    await tick(2)
    expect([run.written.length, run.claims.length]).toEqual([1, 2])
    for (const n of [1, 2]) run.air[n]?.answer(APPLIED)
    await tick(2)
    expect([run.written.length, run.claims.length]).toEqual([2, 2])
    run.air[3]?.answer(APPLIED)
    await tick(2)
    expect(run.claims).toHaveLength(3)
    expect(run.claims[2]).toMatchObject({ from: 8, to: 12 })
  })

  test.each([
    [0, 2],
    [19, 2],
    [50, 5],
    [90, 9],
    [30_000, 10],
  ])(
    'the answer of a call that took %i ms waits %i ms for others; a group of all of them waits no longer',
    async (tookMs, waitMs) => {
      const run = startExternalRun({ toOrd: 4 }, { concurrency: 3, leaseMs: 120_000 })
      await tick()
      await tick(tookMs)
      run.air[0]?.answer(APPLIED)
      await tick(waitMs - 1)
      run.air[1]?.answer(APPLIED)
      await tick()
      expect(run.written).toHaveLength(0)
      await tick(1)
      expect(run.written.map(({ length }) => length)).toEqual([2])
      run.air[2]?.answer(APPLIED)
      run.air[3]?.answer(APPLIED)
      await tick()
      expect(run.written.map(({ length }) => length)).toEqual([2, 2])
    },
  )

  test('while answers are written, they count as outstanding, and further answers wait for the next write', async () => {
    const run = startExternalRun({ toOrd: 12 }, { concurrency: 2 })
    await tick()
    let finishWrite = (): void => {}
    vi.mocked(convergeEvidence).mockImplementationOnce(async (_context, _shard, { reports }) => {
      await new Promise<void>((resolve) => {
        finishWrite = resolve
      })
      run.written.push([...reports])
      return { moved: new Set([0]), mine: true, stopRequested: null, done: false }
    })
    for (const n of [0, 1, 2, 3]) {
      run.air[n]?.answer(APPLIED)
      await tick()
    }
    expect(run.sent()).toEqual([0, 1, 2, 3])
    // four are outstanding though none is in the air: their outcomes are in nobody's ledger yet
    expect(run.claims).toHaveLength(2)
    expect(convergeEvidence).toHaveBeenCalledTimes(1)
    finishWrite()
    await tick()
    expect(run.written.map((reports) => reports.map(({ ord }) => ord))).toEqual([
      [0, 1],
      [2, 3],
    ])
    expect(run.claims.length).toBeGreaterThan(2)
    expect(run.isOver).toBe(false)
  })

  test('items are read ahead of the cursor, 500 at a time, and not beyond the end of the shard', async () => {
    const run = startExternalRun({ fromOrd: 40, cursor: 40, toOrd: 620 }, { concurrency: 300 })
    await tick()
    for (let n = 0; n < 580; n++) {
      run.air[n]?.answer(APPLIED)
      if (n % 50 === 0) await tick()
    }
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.sent()).toHaveLength(580)
    expect(vi.mocked(readWindow).mock.calls.map(([, , from, to]) => [from, to])).toEqual([
      [40, 540],
      [540, 620],
    ])
  })

  test('keys that the claim did not win are not sent: the registry keeps them', async () => {
    const run = startExternalRun({ toOrd: 3 })
    vi.mocked(claimIntents).mockResolvedValueOnce(new Set([1]))
    await tick()
    expect(run.sent()).toEqual([1])
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['1 applied applied'])
  })

  test('items that are missing end the claims, and what was claimed is brought home', async () => {
    const run = startExternalRun({ toOrd: 4 }, { concurrency: 1 })
    vi.mocked(readWindow).mockResolvedValueOnce([])
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.claims).toEqual([])
    expect(run.noted.log).toEqual(['claiming a window failed'])
  })

  test('an empty shard ends at once, and looked for waiting items first', async () => {
    const run = startExternalRun({ toOrd: 0 })
    await tick()
    expect(run.isOver).toBe(true)
    expect(readDueRetries).toHaveBeenCalledTimes(1)
    expect([run.claims, run.written]).toEqual([[], []])
  })

  test('items from `toOrd` on are left alone', async () => {
    const run = startExternalRun({ toOrd: 4 }, {}, { toOrd: 3 })
    await tick()
    expect(run.sent()).toEqual([0, 1, 2])
    expect(vi.mocked(readDueRetries).mock.calls[0]?.[3]).toBe(3)
    for (const call of run.air) call.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(vi.mocked(readWindow).mock.calls.map(([, , from, to]) => [from, to])).toEqual([[0, 3]])
  })
})

describe('before the operation is running', () => {
  test.each([
    ['items are read, and none is claimed', false],
    ['nor is what waits', true],
  ])('%s', async (_name, waits) => {
    const run = startExternalRun({ toOrd: 2 })
    if (waits) run.due.push(dueRetry(0))
    let begin = (): void => {}
    run.held.started = new Promise((resolve) => {
      begin = resolve
    })
    await tick()
    expect(readDueRetries).toHaveBeenCalledTimes(1)
    expect(readWindow).toHaveBeenCalledTimes(waits ? 0 : 1)
    expect([run.claims, run.due.length]).toEqual([[], waits ? 1 : 0])
    begin()
    await tick()
    expect(run.sent()[0]).toBe(0)
  })

  test('and where that cannot be stored, nothing is claimed at all', async () => {
    const run = startExternalRun({ toOrd: 2 })
    run.held.started = Promise.reject(away())
    await tick()
    expect(run.isOver).toBe(true)
    expect([run.claims, run.sent()]).toEqual([[], []])
  })
})

describe('outcomes share a commit', () => {
  /** Eight calls in the air, or as many as the shard has, of which the first `answers` come back. */
  const answered = async (answers: number, toOrd = 8) => {
    const run = startExternalRun({ toOrd }, { concurrency: 8 })
    await tick()
    for (const call of run.air.slice(0, answers)) call.answer(APPLIED)
    await tick()
    return run
  }
  const groups = ({ written }: { written: readonly (readonly unknown[])[] }): number[] =>
    written.map((reports) => reports.length)

  test('as many as the concurrency are a group, while more are in the air', async () => {
    expect(groups(await answered(7, 16))).toEqual([])
    expect(groups(await answered(8, 16))).toEqual([8])
  })

  test('fewer wait for others, for two milliseconds after the first of them', async () => {
    const run = await answered(2)
    await tick(1)
    expect(groups(run)).toEqual([])
    run.air[2]?.answer(APPLIED)
    await tick(1)
    expect(groups(run)).toEqual([3])
    run.air[3]?.answer(APPLIED)
    await tick(1)
    expect(groups(run)).toEqual([3])
    await tick(1)
    expect(groups(run)).toEqual([3, 1])
  })

  test('the last ones wait for nobody', async () => {
    const run = await answered(3, 5)
    for (const call of run.air.slice(3)) call.answer(APPLIED)
    await tick()
    expect(groups(run)).toEqual([5])
    expect(run.isOver).toBe(true)
  })

  test('nor do they after a stop', async () => {
    const run = await answered(1)
    run.held.stopped('cancel')
    await tick()
    expect(groups(run)).toEqual([1])
  })
})

describe('a call', () => {
  test('is told everything about its item and operation, and the intent how long it may be sent', async () => {
    await tick(7_000)
    const run = startExternalRun({ toOrd: 1, cursor: 0 }, { leaseMs: 20_000 })
    await tick()
    expect(run.claims).toEqual([{ from: 0, to: 1, ords: [0], sendByMs: 15_000 }])
    expect(run.air[0]?.call).toEqual({
      effectKey: 'e0',
      step: '',
      itemKey: 'k0',
      input: { n: 0 },
      operationId: `op_${OPERATION_ID.replaceAll('-', '')}`,
      type: 'grant',
      attempt: 1,
      traceparent: 'trace',
      mayStart: expect.any(Function),
    })
    expect(run.air[0]?.claimed).toEqual({ ord: 0, send: 1 })
    await tick(300)
    run.air[0]?.answer({ state: 'skipped', reasonCode: 'THERE' }, true)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.noted.calls).toEqual([{ type: 'grant', durationMs: 300, downstreamError: true }])
    expect(run.written).toEqual([[expect.objectContaining({ ord: 0, effectKey: 'e0', send: 1, reasonCode: 'THERE' })]])
    expect(run.noted.items).toEqual([['grant', 1, 0]])
  })

  test.each([
    [false, 'ok'],
    [true, 'error'],
  ])('is a span of the run: of an error of its provider (%s) it says "%s"', async (downstreamError, status) => {
    const run = startExternalRun({ toOrd: 1 }, { steps: ['mail'] })
    vi.mocked(readWindow).mockResolvedValueOnce([runnableItem(0, 'mail')])
    const told = noteSpans(run.held)
    await tick()
    expect(run.air[0]?.call.traceparent).toBe('span')
    run.air[0]?.answer({ state: 'uncertain', reasonCode: 'TIMEOUT' }, downstreamError)
    await tick()
    expect(told).toEqual([
      'call',
      { 'opledger.type': 'grant', 'opledger.step': 'mail', 'opledger.attempt': 1 },
      { 'opledger.outcome': 'uncertain' },
      status,
    ])
  })

  test('of an executor that throws may have happened', async () => {
    const run = startExternalRun({ toOrd: 1 })
    await tick()
    run.air[0]?.break(new Error('a bug'))
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.written[0]).toMatchObject([{ effect: 'uncertain', item: 'uncertain', reasonCode: 'EXECUTOR_ERROR' }])
    expect(run.noted.log).toEqual(['an executor threw'])
  })

  test('is a step of the run: a shard that gets answers is not stalled', async () => {
    const run = startExternalRun({ toOrd: 1 }, { stallMs: 1_000, leaseMs: 600_000 })
    await tick()
    await tick(1_500)
    expect(run.held.isStalled).toBe(true)
    vi.mocked(convergeEvidence).mockReturnValueOnce(new Promise(() => {}))
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.held.isStalled).toBe(false)
  })

  test('a write is a step of the run, too', async () => {
    const run = startExternalRun({ toOrd: 2 }, { stallMs: 1_000, leaseMs: 600_000, concurrency: 1 })
    await tick()
    let finishWrite = (): void => {}
    vi.mocked(convergeEvidence).mockReturnValueOnce(
      new Promise((resolve) => {
        finishWrite = () => resolve({ moved: new Set([0]), mine: true, stopRequested: null, done: false })
      }),
    )
    run.air[0]?.answer(APPLIED)
    await tick(1_500)
    expect(run.held.isStalled).toBe(true)
    finishWrite()
    await tick()
    expect(run.held.isStalled).toBe(false)
  })
})

describe('the gate', () => {
  test('a stop sends what is queued back, waits for what is in the air, and claims no more', async () => {
    const run = startExternalRun({ toOrd: 10 }, { concurrency: 2 })
    await tick()
    run.held.stopped('cancel')
    await tick()
    expect(run.outcomes()).toEqual(['2 absent null', '3 absent null'])
    expect(run.isOver).toBe(false)
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(false)
    run.air[1]?.answer({ state: 'uncertain', reasonCode: 'TIMEOUT' })
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([0, 1])
    expect(run.outcomes().slice(2)).toEqual(['0 applied applied', '1 uncertain uncertain'])
    expect(run.claims).toHaveLength(2)
    expect(run.written[0]?.[0]).toMatchObject({ retry: { afterMs: 0, reason: 'unsent' } })
  })

  test('a stop that the write of an outcome tells is obeyed at once', async () => {
    const run = startExternalRun({ toOrd: 10 }, { concurrency: 1 })
    await tick()
    vi.mocked(convergeEvidence).mockResolvedValueOnce({
      moved: new Set([0]),
      mine: true,
      stopRequested: 'pause',
      done: false,
    })
    run.air[0]?.answer(APPLIED)
    await tick()
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.held.stop).toBe('pause')
    expect(run.sent().length).toBeLessThanOrEqual(2)
  })

  test('a stop that comes while a window is claimed: what it won is not sent', async () => {
    const run = startExternalRun({ toOrd: 2 })
    let win = (): void => {}
    vi.mocked(claimIntents).mockReturnValueOnce(
      new Promise((resolve) => {
        win = () => resolve(new Set([0, 1]))
      }),
    )
    await tick()
    run.held.stopped('pause')
    await tick()
    expect(run.isOver).toBe(false)
    win()
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([])
    expect(run.outcomes()).toEqual(['0 absent null', '1 absent null'])
  })

  test('nothing is sent that could outlive the lease, and the lease alone does not lengthen the time to send', async () => {
    const run = startExternalRun({ toOrd: 2 }, { concurrency: 1, leaseMs: 20_000 })
    await tick()
    expect(run.sent()).toEqual([0])
    // the second item was claimed at 0 as well: it may be sent until 20,000 - 2,000 margin... less the call, 15,000
    await tick(14_000)
    run.held.renewed(performance.now())
    await tick(1_001)
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.sent()).toEqual([0])
    expect(run.outcomes()).toContain('1 absent null')
  })

  test('until then it is sent', async () => {
    const run = startExternalRun({ toOrd: 2 }, { concurrency: 1, leaseMs: 20_000 })
    await tick()
    await tick(14_000)
    run.held.renewed(performance.now())
    await tick(1_000)
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.sent()).toEqual([0, 1])
  })

  test('a lease that was not renewed holds no call that is longer than what is left of it', async () => {
    const run = startExternalRun({ toOrd: 2 }, { concurrency: 1, leaseMs: 20_000 })
    await tick()
    await tick(13_001) // 18,000 - 5,000 is the last instant
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.sent()).toEqual([0])
    expect(run.outcomes()).toContain('1 absent null')
  })

  test('nothing is claimed under a lease that holds no call any more: it waits for the renewal', async () => {
    const run = startExternalRun({ toOrd: 8 }, { concurrency: 1, leaseMs: 20_000 })
    await tick()
    await tick(13_001)
    run.air[0]?.answer(APPLIED)
    await tick(3_000)
    // what was claimed in time went back, once
    expect(run.outcomes()).toEqual(['0 applied applied', '1 absent null'])
    expect(run.claims.map(({ ords }) => ords)).toEqual([[0], [1]])
    expect(run.isOver).toBe(false)
    run.held.renewed(performance.now())
    await tick(100)
    expect(run.sent()).toEqual([0, 2])
  })

  test('a run whose lease is not renewed any more ends with it', async () => {
    const run = startExternalRun({ toOrd: 8 }, { concurrency: 1, leaseMs: 20_000 })
    await tick()
    await tick(13_001)
    run.air[0]?.answer(APPLIED)
    await tick(4_998)
    expect(run.isOver).toBe(false)
    await tick(101)
    expect([run.isOver, run.claims.length]).toEqual([true, 2])
  })

  test('a late answer is written, also when the lease is lost', async () => {
    const run = startExternalRun({ toOrd: 1 })
    await tick()
    run.held.lost = true
    run.held.wake()
    await tick()
    expect(run.isOver).toBe(false)
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['0 applied applied'])
  })

  test('a gate that nobody wakes the run for is seen within a second', async () => {
    const run = startExternalRun({ toOrd: 3 }, { concurrency: 1 })
    await tick()
    expect(run.claims).toHaveLength(2)
    run.held.giveBack = true
    await tick(999)
    expect(run.outcomes()).toEqual([])
    await tick(1)
    expect(run.outcomes()).toEqual(['1 absent null'])
  })
})

describe('a call that waits before its first byte', () => {
  /** One call in the air, begun at 0 with 5 s, under a lease that ends at 18,000. */
  const startWaiting = async (due?: ReturnType<typeof dueRetry>) => {
    const run = startExternalRun({ toOrd: 1, cursor: due ? 1 : 0 }, { leaseMs: 20_000 })
    if (due) run.due.push(due)
    await tick()
    const call = run.air[0]?.call
    if (!call) throw new Error('nothing was sent')
    return { run, mayStart: () => call.mayStart() }
  }

  test('may begin as long as its time is not over', async () => {
    const { mayStart } = await startWaiting()
    expect(mayStart()).toBe(true)
    await tick(4_999)
    expect(mayStart()).toBe(true)
    await tick(1)
    expect(mayStart()).toBe(false)
  })

  test.each<[string, (held: ReturnType<typeof startExternalRun>['held']) => unknown]>([
    ['a cancel', (held) => held.stopped('cancel')],
    ['a pause', (held) => held.stopped('pause')],
    ['the loss of the lease', (held) => Object.assign(held, { lost: true })],
    ['a give-back', (held) => Object.assign(held, { giveBack: true })],
    ['the end of the lease', (held) => Object.assign(held, { leaseEndsMs: performance.now() })],
    ['a lease that ends before its time', (held) => Object.assign(held, { leaseEndsMs: 4_999 })],
  ])('may not begin after %s', async (_name, close) => {
    const { run, mayStart } = await startWaiting()
    close(run.held)
    expect(mayStart()).toBe(false)
  })

  test('unsent, it goes back uncharged and is no call of the type', async () => {
    const { run } = await startWaiting()
    run.held.stopped('cancel')
    run.air[0]?.answer({ state: 'unsent' })
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['0 absent null'])
    expect(run.written[0]).toMatchObject([{ retry: { afterMs: 0, reason: 'unsent' } }])
    expect(run.noted.calls).toEqual([])
  })

  test('an unsent resend goes back to what it was', async () => {
    const { run } = await startWaiting(dueRetry(0, { resend: true }))
    run.held.stopped('cancel')
    run.air[0]?.answer({ state: 'unsent' })
    await tick()
    expect(run.outcomes()).toEqual(['0 uncertain null'])
  })
})

describe('a call that a restore of the database may have forgotten', () => {
  const DOUBT = { restoredMsAgo: 60_000, predates: true }
  /** A provider that is asked for the effect of one item, whose claim has just come. */
  const startDoubted = async (
    found: LookupOutcome,
    whileAsked: (held: HeldShard) => void = () => {},
    type: Partial<OperationType> = {},
  ) => {
    const asked: EffectCall[] = []
    const lookup: EffectLookup = {
      afterMs: 0,
      timeoutMs: 1_000,
      find: async (call) => {
        asked.push(call)
        whileAsked(run.held)
        return found
      },
    }
    const executor = { kind: 'external' as const, callTimeoutMs: 5_000, send: neverSent, lookup }
    const run = startExternalRun({ toOrd: 1, doubt: DOUBT }, { ...type, executor })
    await tick()
    return { run, asked }
  }
  const neverSent = () => Promise.reject(new Error('not run here'))

  test('is not sent when its provider knows the effect', async () => {
    const { run, asked } = await startDoubted({ state: 'applied', effectRef: 'r9', evidenceRef: 'v9' })
    expect(asked).toMatchObject([{ effectKey: 'e0', itemKey: 'k0', attempt: 1 }])
    expect([run.isOver, run.sent()]).toEqual([true, []])
    expect(run.written).toMatchObject([
      [{ ord: 0, effect: 'applied', item: 'applied', reasonCode: 'FOUND_AFTER_RESTORE', effectRef: 'r9' }],
    ])
    expect(run.noted.calls).toEqual([])
  })

  test('is sent when its provider does not', async () => {
    const { run, asked } = await startDoubted({ state: 'absent', evidenceRef: 'v9' })
    expect([asked.length, run.sent()]).toEqual([1, [0]])
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(run.outcomes()).toEqual(['0 applied applied'])
  })

  test('is a case for a person when nobody can tell', async () => {
    const { run } = await startDoubted({ state: 'unknown', reasonCode: 'AWAY' })
    expect([run.sent(), run.outcomes()]).toEqual([[], ['0 uncertain uncertain']])
  })

  test('goes back unsent when the gate closes while its provider is asked', async () => {
    const { run } = await startDoubted({ state: 'absent', evidenceRef: 'v9' }, (held) => held.stopped('cancel'))
    expect([run.isOver, run.sent(), run.outcomes()]).toEqual([true, [], ['0 absent null']])
  })

  test('is a step of the run with each answer of its provider', async () => {
    const slowly = () => void vi.advanceTimersByTime(1_500)
    const patient = { stallMs: 1_000, leaseMs: 600_000 }
    const { run } = await startDoubted({ state: 'absent', evidenceRef: 'v9' }, slowly, patient)
    expect([run.sent(), run.held.isStalled]).toEqual([[0], false])
  })
})

describe('a run that a fault test holds', () => {
  afterEach(ignorePoints)

  test('stands behind each of its commits and calls, before anything else is begun', async () => {
    const run = startExternalRun({ toOrd: 1 })
    const { points, operations } = notePoints(({ itemKey }) => [
      itemKey,
      [run.claims.length, run.air.length, run.written.length],
    ])
    await tick()
    expect(points).toEqual([
      ['window-read', undefined, [0, 0, 0]],
      ['intents-committed', undefined, [1, 0, 0]],
      ['send-allowed', 'k0', [1, 0, 0]],
      ['send-begun', 'k0', [1, 1, 0]],
    ])
    run.air[0]?.answer(APPLIED)
    await tick()
    expect(points.slice(4)).toEqual([
      ['send-answered', 'k0', [1, 1, 0]],
      ['outcome-committed', undefined, [1, 1, 1]],
    ])
    expect([...operations]).toEqual([OPERATION_ID])
  })

  test('stands behind a claim of waiting items, too', async () => {
    const run = startExternalRun({ cursor: 10 })
    run.due.push(dueRetry(4))
    const { points } = notePoints(() => [run.due.length, run.air.length])
    await tick()
    expect(points.slice(0, 2)).toEqual([
      ['intents-committed', 0, 0],
      ['send-allowed', 0, 0],
    ])
  })
})

describe('the fence', () => {
  test('a window that it refuses ends the claims, and what is in the air is awaited', async () => {
    const run = startExternalRun({ toOrd: 9 }, { concurrency: 1 })
    await tick()
    vi.mocked(claimIntents).mockResolvedValue(null)
    run.air[0]?.answer(APPLIED)
    await tick()
    const asked = vi.mocked(claimIntents).mock.calls.length
    run.air[1]?.answer(APPLIED)
    await tick(5_000)
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([0, 1])
    expect(vi.mocked(claimIntents).mock.calls.length).toBe(asked)
    // it answered: what it left behind is known
    expect([run.noted.log, vi.mocked(readOwnIntents).mock.calls]).toEqual([[], []])
  })
})

describe('a write that throws', () => {
  test('ends the run and nothing else: no claim follows, what is in the air is brought home, then the run throws', async () => {
    const run = startExternalRun({ toOrd: 9 }, { concurrency: 2 })
    await tick()
    const bug = new Error('a bug')
    const items = vi.spyOn(run.meter, 'items').mockImplementationOnce(() => {
      throw bug
    })
    run.air[0]?.answer(APPLIED)
    await tick()
    const asked = run.claims.length
    expect([run.isOver, run.error]).toEqual([false, null])
    for (let n = 1; n < 9; n++) {
      run.air[n]?.answer(APPLIED)
      await tick()
    }
    expect(run.error).toBe(bug)
    expect(run.written.flat()).toHaveLength(run.air.length)
    expect(items.mock.calls.length).toBeGreaterThan(1)
    expect(run.claims).toHaveLength(asked)
  })
})

describe('a claim without an answer', () => {
  test('what it may have claimed goes back unsent, and nothing else does', async () => {
    const run = startExternalRun({ toOrd: 9 }, { concurrency: 2 })
    vi.mocked(claimIntents).mockRejectedValueOnce(away())
    vi.mocked(readOwnIntents).mockResolvedValue([
      { ord: 1, effectKey: 'e1', send: 1, resend: false },
      { ord: 5, effectKey: 'e5', send: 1, resend: false },
    ])
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.sent()).toEqual([])
    expect(run.outcomes()).toEqual(['1 absent null'])
    expect(run.noted.log).toEqual(['claiming a window failed'])
  })

  test('what an earlier claim won and this run has sent never counts as unsent', async () => {
    const run = startExternalRun({ toOrd: 2 }, { concurrency: 1 })
    await tick()
    vi.mocked(readDueRetries).mockRejectedValue(away())
    run.air[0]?.answer(APPLIED)
    await tick()
    expect([run.sent(), run.noted.log]).toEqual([[0, 1], ['claiming a window failed']])
    // its outcome cannot be written, so its intent stays behind, for a takeover to call it uncertain
    vi.mocked(convergeEvidence).mockRejectedValueOnce(refusal())
    vi.mocked(readOwnIntents).mockResolvedValue([{ ord: 1, effectKey: 'e1', send: 1, resend: false }])
    run.air[1]?.answer(APPLIED)
    await tick()
    expect(run.isOver).toBe(true)
    expect(run.outcomes()).toEqual(['0 applied applied'])
  })

  test('a claim that failed before it was asked leaves nothing to look for', async () => {
    const run = startExternalRun({ toOrd: 2 })
    vi.mocked(readDueRetries).mockRejectedValueOnce(away())
    await tick()
    expect(run.isOver).toBe(true)
    expect(readOwnIntents).not.toHaveBeenCalled()
  })
})

describe('the rate of a type', () => {
  test('a window takes half a second of it at most, and waits for its turn', async () => {
    vi.mocked(reserveCalls).mockResolvedValue(0)
    const run = startExternalRun({ toOrd: 20 }, { concurrency: 16, ratePerSecond: 9 })
    vi.mocked(reserveCalls).mockResolvedValueOnce(0).mockResolvedValueOnce(2_500).mockResolvedValue(60_000)
    await tick()
    expect(run.sent()).toEqual([0, 1, 2, 3, 4])
    expect(vi.mocked(reserveCalls).mock.calls.map(([, ...asked]) => asked)).toEqual([
      ['grant', 9, 5],
      ['grant', 9, 5],
    ])
    await tick(2_499)
    expect(run.sent()).toHaveLength(5)
    await tick(1)
    expect(run.sent()).toHaveLength(10)
  })

  test('a rate below two a second still lets one call through', async () => {
    vi.mocked(reserveCalls).mockResolvedValue(0)
    const run = startExternalRun({ toOrd: 2 }, { ratePerSecond: 1 })
    await tick()
    expect(run.claims.map(({ ords }) => ords)).toEqual([[0], [1]])
  })

  test('waiting for it is no stall', async () => {
    const run = startExternalRun({ toOrd: 1 }, { ratePerSecond: 1, stallMs: 1_500, leaseMs: 600_000 })
    vi.mocked(reserveCalls).mockResolvedValue(60_000)
    await tick()
    await tick(10_000)
    expect(run.held.isStalled).toBe(false)
    expect(run.sent()).toEqual([])
  })

  test('a stop ends the wait, and nothing is claimed after it', async () => {
    const run = startExternalRun({ toOrd: 1 }, { ratePerSecond: 1 })
    vi.mocked(reserveCalls).mockResolvedValue(3_600_000)
    await tick()
    run.held.stopped('cancel')
    await tick()
    expect(run.isOver).toBe(true)
    expect(claimIntents).not.toHaveBeenCalled()
  })

  test('a gate that closed while the rate was asked for is seen, also without a wait', async () => {
    const run = startExternalRun({ toOrd: 1 }, { ratePerSecond: 1 })
    vi.mocked(reserveCalls).mockImplementation(async () => {
      run.held.stopped('pause')
      return 0
    })
    await tick()
    expect(run.isOver).toBe(true)
    expect(claimIntents).not.toHaveBeenCalled()
  })

  test('a type without one asks for nothing', async () => {
    const run = startExternalRun({ toOrd: 1 })
    run.due.push(dueRetry(0))
    await tick()
    expect(reserveCalls).not.toHaveBeenCalled()
  })
})
