import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { formatId } from '../../../src/domain/ids.ts'
import type { Executor, OperationType } from '../../../src/domain/operation-type.ts'
import { executeBatch } from '../../../src/engine/batch-handler.ts'
import { runTransactional } from '../../../src/engine/transactional.ts'
import { explainKnownKeys } from '../../../src/storage/run/claim-retries.ts'
import { lockUndone, markCompensated } from '../../../src/storage/run/compensation.ts'
import type { ClaimedShard } from '../../../src/storage/run/lease.ts'
import { KeyKnown, takeNewEffects } from '../../../src/storage/run/plain-batch.ts'
import { type BatchOutcome, commitBatch, takeBatchEffects } from '../../../src/storage/run/transactional.ts'
import {
  chargeSuspect,
  readDueRetries,
  readItems,
  readPosition,
  readRetryAttempts,
  readWindow,
  unchargeSuspect,
} from '../../../src/storage/run/window.ts'
import {
  away,
  holdShard,
  ignorePoints,
  notePoints,
  noteSpans,
  notingContext,
  OPERATION_ID,
  refusal,
  runnableItem,
  useTestClock,
  WORKER_ID,
} from '../../support/held-run.ts'

vi.mock('../../../src/engine/batch-handler.ts', () => ({ executeBatch: vi.fn() }))
vi.mock('../../../src/storage/run/claim-retries.ts', () => ({ claimRetries: vi.fn(), explainKnownKeys: vi.fn() }))
vi.mock('../../../src/storage/run/compensation.ts', async (original) => ({
  ...(await original<typeof import('../../../src/storage/run/compensation.ts')>()),
  lockUndone: vi.fn(),
  markCompensated: vi.fn(),
}))
vi.mock('../../../src/storage/run/plain-batch.ts', async (original) => ({
  ...(await original<typeof import('../../../src/storage/run/plain-batch.ts')>()),
  takeNewEffects: vi.fn(),
}))
vi.mock('../../../src/storage/run/transactional.ts', () => ({ commitBatch: vi.fn(), takeBatchEffects: vi.fn() }))
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

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const EXECUTOR: Extract<Executor, { kind: 'transactional' }> = {
  kind: 'transactional',
  runBatch: async () => undefined,
}
const applied = (ord: number): BatchOutcome => ({
  ord,
  item: 'applied',
  failureClass: null,
  reasonCode: null,
  message: null,
  effectRef: null,
  retryMs: null,
  fingerprint: null,
})

/** A run whose batches all succeed, and for which nothing waits, until the test says otherwise. */
const start = (shard: Partial<ClaimedShard> = {}, type: Partial<OperationType> = {}) => {
  const held = holdShard(shard, { executor: EXECUTOR, effect: 'transactional', compensator: EXECUTOR, ...type })
  const { context, noted } = notingContext()
  /** Ords of each batch, and how long its handler takes. */
  const ran: number[][] = []
  const took: number[] = []
  vi.mocked(readWindow).mockImplementation(async (_connection, _lease, from, to) =>
    Array.from({ length: to - from }, (_, n) => runnableItem(from + n)),
  )
  vi.mocked(readDueRetries).mockResolvedValue([])
  vi.mocked(readItems).mockImplementation(async (_connection, _lease, ords) => ords.map((ord) => runnableItem(ord)))
  vi.mocked(takeNewEffects).mockResolvedValue(new Set())
  vi.mocked(takeBatchEffects).mockResolvedValue(new Set())
  vi.mocked(executeBatch).mockImplementation(async ({ items }) => {
    ran.push(items.map(({ ord }) => ord))
    vi.advanceTimersByTime(took.shift() ?? 0)
    return items.map(({ ord }) => applied(ord))
  })
  vi.mocked(commitBatch).mockResolvedValue(true)
  vi.mocked(lockUndone).mockResolvedValue()
  vi.mocked(markCompensated).mockResolvedValue()
  vi.mocked(unchargeSuspect).mockResolvedValue()
  const run: {
    held: typeof held
    noted: typeof noted
    ran: number[][]
    took: number[]
    over: boolean
    error: unknown
  } = {
    held,
    noted,
    ran,
    took,
    over: false,
    error: null,
  }
  void Promise.resolve()
    .then(() => runTransactional(context, held, EXECUTOR))
    .catch((error: unknown) => {
      run.error = error
    })
    .finally(() => {
      run.over = true
    })
  return run
}
const ranges = () => vi.mocked(commitBatch).mock.calls.map(([, , { range }]) => range)

describe('batches', () => {
  test('follow each other through the shard, each one commit of effects, handler, outcomes and cursor', async () => {
    const run = start({ toOrd: 5 }, { batch: { maxItems: 2, maxMs: 1_000 }, codeVersion: 'c9' })
    await tick()
    expect([run.over, run.error]).toEqual([true, null])
    expect(run.ran).toEqual([[0, 1], [2, 3], [4]])
    expect(ranges()).toEqual([
      { from: 0, to: 2 },
      { from: 2, to: 4 },
      { from: 4, to: 5 },
    ])
    expect(vi.mocked(executeBatch).mock.calls[0]?.[0]).toMatchObject({
      type: { name: 'grant' },
      items: [
        { ord: 0, attempt: 1 },
        { ord: 1, attempt: 1 },
      ],
      run: { tenantId: 7, operationId: formatId('op', OPERATION_ID) },
    })
    expect(vi.mocked(commitBatch).mock.calls[0]?.[2]).toMatchObject({
      items: [{ ord: 0 }, { ord: 1 }],
      outcomes: [applied(0), applied(1)],
      lost: new Set(),
      codeVersion: 'c9',
    })
    expect(vi.mocked(takeNewEffects).mock.calls.map(([, , range]) => range)).toEqual(ranges())
    expect(takeBatchEffects).not.toHaveBeenCalled()
    expect(run.noted.items).toEqual([
      ['grant', 2, 0],
      ['grant', 2, 0],
      ['grant', 1, 0],
    ])
    expect(run.noted.wakeUps).toEqual(['change', 'change', 'change'])
    expect(markCompensated).not.toHaveBeenCalled()
    expect(lockUndone).not.toHaveBeenCalled()
    expect(unchargeSuspect).not.toHaveBeenCalled()
  })

  test('are read four at a time', async () => {
    const run = start({ cursor: 10, toOrd: 21 }, { batch: { maxItems: 2, maxMs: 1_000 } })
    await tick()
    expect(run.ran.flat()).toEqual([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20])
    expect(vi.mocked(readWindow).mock.calls.map(([, , from, to]) => [from, to])).toEqual([
      [10, 18],
      [18, 21],
    ])
  })

  test('of which keys are lost run without these, and the commit names them', async () => {
    const run = start({ toOrd: 3 })
    vi.mocked(takeNewEffects).mockRejectedValueOnce(new KeyKnown())
    vi.mocked(takeBatchEffects).mockResolvedValueOnce(new Set([1]))
    await tick()
    expect(run.ran).toEqual([[0, 2]])
    expect(vi.mocked(commitBatch).mock.calls[0]?.[2]).toMatchObject({
      lost: new Set([1]),
      range: { from: 0, to: 3 },
      outcomes: [applied(0), applied(2)],
    })
  })

  test('take their keys for new ones until one is known: that batch is repeated, and those after it look at each', async () => {
    const run = start({ toOrd: 4 }, { batch: { maxItems: 1, maxMs: 9_000 } })
    vi.mocked(takeNewEffects).mockResolvedValueOnce(new Set()).mockRejectedValueOnce(new KeyKnown())
    await tick()
    expect([run.over, run.error, run.ran]).toEqual([true, null, [[0], [1], [2], [3]]])
    expect(vi.mocked(takeNewEffects).mock.calls.map(([, , { from }]) => from)).toEqual([0, 1])
    expect(vi.mocked(takeBatchEffects).mock.calls.map(([, , { range }]) => range?.from)).toEqual([1, 2, 3])
  })

  test('that cannot take their keys for another reason are treated as any that failed', async () => {
    const run = start({ toOrd: 1 })
    vi.mocked(takeNewEffects).mockRejectedValueOnce(refusal())
    await tick()
    expect([run.over, run.error, run.ran]).toEqual([true, expect.objectContaining({ message: refusal().message }), []])
    expect(takeBatchEffects).not.toHaveBeenCalled()
  })

  test('become smaller when they take too long, and larger again when they do not', async () => {
    const run = start({ toOrd: 25 }, { batch: { maxItems: 8, maxMs: 1_000 } })
    run.took.push(1_001, 1_001, 1_001, 1_001, 1_000, 0, 0)
    await tick()
    expect(run.ran.map(({ length }) => length)).toEqual([8, 4, 2, 1, 1, 2, 4, 3])
    expect(run.noted.calls[0]).toEqual({ type: 'grant', durationMs: 1_001, downstreamError: false })
  })

  test('count their rejects', async () => {
    const run = start({ toOrd: 2 })
    vi.mocked(executeBatch).mockResolvedValueOnce([
      { ...applied(0), item: 'failed', failureClass: 'validation_rejected' },
      { ...applied(1), item: 'failed', failureClass: 'conflict' },
    ])
    await tick()
    expect(run.noted.items).toEqual([['grant', 2, 1]])
  })

  test('are steps of the run: a shard that moves is not stalled', async () => {
    const run = start({ toOrd: 3 }, { batch: { maxItems: 1, maxMs: 9_000 }, stallMs: 1_500, leaseMs: 600_000 })
    run.took.push(1_000, 1_000, 1_000)
    await tick()
    expect([run.ran.length, run.held.isStalled]).toEqual([3, false])
  })

  test('end with a stop, at the next boundary', async () => {
    const run = start({ toOrd: 5 }, { batch: { maxItems: 2, maxMs: 1_000 } })
    vi.mocked(commitBatch).mockImplementationOnce(async () => {
      run.held.stopped('pause')
      return true
    })
    await tick()
    expect([run.over, run.ran]).toEqual([true, [[0, 1]]])
  })

  test('items that are missing end the run: the cursor may not pass over them', async () => {
    const run = start({ toOrd: 5 })
    vi.mocked(readWindow).mockResolvedValue([runnableItem(1)])
    await tick()
    expect(run.error).toMatchObject({ message: expect.stringContaining('items are missing at ord 0') })
    expect(run.ran).toEqual([])
  })
})

test.each([
  ['that went well', async () => true, 'ok'],
  ['that did not', () => Promise.reject(refusal()), 'error'],
])('a batch %s is a span of the run, and says so', async (_how, commit, status) => {
  const run = start({ toOrd: 2 })
  vi.mocked(commitBatch).mockImplementationOnce(commit)
  const told = noteSpans(run.held)
  await tick()
  expect(run.over).toBe(true)
  expect(told).toEqual(['batch', { 'opledger.type': 'grant', 'opledger.items': 2 }, status])
})

describe('a run that a fault test holds', () => {
  afterEach(ignorePoints)

  test('stands behind each part of a batch, before the next one is begun', async () => {
    start({ toOrd: 2 })
    const statements = [takeNewEffects, executeBatch, commitBatch]
    const { points, operations } = notePoints(() => [
      statements.map((statement) => vi.mocked(statement).mock.calls.length),
    ])
    await tick()
    expect(points).toEqual([
      ['batch-effects-taken', [1, 0, 0]],
      ['batch-handled', [1, 1, 0]],
      ['batch-committed', [1, 1, 1]],
    ])
    expect([...operations]).toEqual([OPERATION_ID])
  })
})

describe('waiting items', () => {
  test('are a batch of their own, with their attempts, and move no cursor', async () => {
    const run = start({ toOrd: 1 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([6, 7, 8, 9])
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(
      new Map([
        [6, 3],
        [7, 2],
        [9, 1],
      ]),
    )
    await tick()
    expect(run.ran).toEqual([[6, 7, 9], [0]])
    expect(vi.mocked(commitBatch).mock.calls[0]?.[2]).toMatchObject({
      range: null,
      items: [
        { ord: 6, attempt: 3 },
        { ord: 7, attempt: 2 },
        { ord: 9, attempt: 1 },
      ],
    })
    expect(vi.mocked(explainKnownKeys).mock.calls.map(([, , ords, code]) => [ords, code])).toEqual([
      [[6, 7, 8, 9], 'c1'],
    ])
    expect(run.noted.retries).toEqual([['grant', 2]])
    expect(vi.mocked(takeBatchEffects).mock.calls.map(([, , { items }]) => items.map(({ ord }) => ord))).toEqual([
      [6, 7, 9],
    ])
    expect(vi.mocked(readDueRetries).mock.calls[0]?.[2]).toBe(100)
  })

  test('of which none is free leave the turn to new ones', async () => {
    const run = start({ toOrd: 1 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([7])
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(new Map())
    await tick()
    expect(run.ran).toEqual([[0]])
  })

  test('are looked for first, then every 500 ms, and at the end until there are none', async () => {
    const run = start({ toOrd: 4 }, { batch: { maxItems: 1, maxMs: 9_000 } })
    run.took.push(499, 1, 0, 0)
    const looks: number[] = []
    vi.mocked(readDueRetries).mockImplementation(async () => {
      looks.push(run.ran.length)
      return []
    })
    await tick()
    expect([run.over, looks]).toEqual([true, [0, 2, 4]])
  })

  test('that are due at the end are run before the shard is given back', async () => {
    const run = start({ toOrd: 1 })
    vi.mocked(readDueRetries).mockResolvedValueOnce([]).mockResolvedValueOnce([3])
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(new Map([[3, 2]]))
    await tick()
    expect([run.over, run.ran]).toEqual([true, [[0], [3]]])
    // what was read ahead stays in step with the cursor
    expect(ranges()).toEqual([{ from: 0, to: 1 }, null])
  })
})

describe('the fence', () => {
  test.each([
    ['the lease is lost', null, { lost: true, stop: null }],
    ['a stop came first', { cursor: 0, stopRequested: 'cancel' as const }, { lost: false, stop: 'cancel' }],
    ['both are over again', { cursor: 0, stopRequested: null }, { lost: false, stop: null }],
  ])('that does not hold ends the run: %s', async (_why, position, shard) => {
    const run = start({ toOrd: 5 })
    vi.mocked(commitBatch).mockResolvedValueOnce(false)
    vi.mocked(readPosition).mockResolvedValue(position)
    await tick()
    expect([run.over, run.error, run.ran.length]).toEqual([true, null, 1])
    expect(run.held).toMatchObject(shard)
    expect(run.noted.items).toEqual([])
  })

  test('that did not hold, and holds again, opens no gate: the heartbeat does', async () => {
    const run = start({ toOrd: 5 })
    vi.mocked(commitBatch).mockImplementationOnce(async () => {
      run.held.stopped('pause')
      return false
    })
    vi.mocked(readPosition).mockResolvedValue({ cursor: 0, stopRequested: null })
    await tick()
    expect([run.over, run.held.stop]).toEqual([true, 'pause'])
  })

  test('that does not hold, and of which the database says no more: another may have the shard', async () => {
    const run = start({ toOrd: 5 })
    vi.mocked(commitBatch).mockResolvedValueOnce(false)
    vi.mocked(readPosition).mockRejectedValue(away())
    await tick()
    expect([run.over, run.held.lost]).toEqual([true, true])
  })
})

describe('faults of the database', () => {
  test('abort a batch, which is run again where the database says the cursor is', async () => {
    const run = start({ toOrd: 4 }, { batch: { maxItems: 2, maxMs: 1_000 } })
    vi.mocked(commitBatch).mockRejectedValueOnce(away()).mockRejectedValueOnce(away())
    vi.mocked(readPosition)
      .mockResolvedValueOnce({ cursor: 0, stopRequested: null })
      .mockResolvedValueOnce({ cursor: 2, stopRequested: null })
    await tick(249)
    expect(run.ran).toEqual([[0, 1]])
    await tick(1)
    // rolled back: the same batch again. The second commit was made, though its reply was lost
    expect(run.ran).toEqual([
      [0, 1],
      [0, 1],
    ])
    await tick(250)
    expect(run.ran.slice(2)).toEqual([[2, 3]])
    expect([run.over, run.error, run.noted.log]).toEqual([true, null, Array(2).fill('a batch was rolled back')])
    // what had been read ahead was of another cursor
    expect(vi.mocked(readWindow).mock.calls.map(([, , from]) => from)).toEqual([0, 2])
  })

  test('that go on until the position can be read change nothing', async () => {
    const run = start({ toOrd: 2 })
    vi.mocked(commitBatch).mockRejectedValueOnce(away())
    vi.mocked(readPosition).mockRejectedValueOnce(away())
    await tick(250)
    expect([run.over, run.held.lost, run.ran]).toEqual([
      true,
      false,
      [
        [0, 1],
        [0, 1],
      ],
    ])
  })

  test('behind which another worker has the shard end the run', async () => {
    const run = start({ toOrd: 2 })
    vi.mocked(commitBatch).mockRejectedValueOnce(away())
    vi.mocked(readPosition).mockResolvedValueOnce(null)
    await tick(250)
    expect([run.over, run.error, run.held.lost, run.ran.length]).toEqual([true, null, true, 1])
  })

  test('are borne forty times in a row, and the count begins anew with a batch that went well', async () => {
    const run = start({ toOrd: 2 }, { batch: { maxItems: 1, maxMs: 1_000 }, leaseMs: 600_000 })
    vi.mocked(readPosition).mockResolvedValue({ cursor: 0, stopRequested: null })
    for (let n = 0; n < 40; n++) vi.mocked(commitBatch).mockRejectedValueOnce(away())
    vi.mocked(commitBatch).mockResolvedValueOnce(true)
    await tick(40 * 250)
    expect([run.over, run.error, run.ran.length]).toEqual([true, null, 42])

    const worse = start({ toOrd: 2 }, { batch: { maxItems: 1, maxMs: 1_000 }, leaseMs: 600_000 })
    vi.mocked(readPosition).mockResolvedValue({ cursor: 1, stopRequested: null })
    for (let n = 0; n < 41; n++) vi.mocked(commitBatch).mockRejectedValueOnce(away())
    await tick(41 * 250)
    expect(worse.error).toMatchObject({ code: '57P01' })
    expect(worse.ran.length).toBe(41)
  })

  test('of another kind end the run at once', async () => {
    const run = start({ toOrd: 2 })
    const error = refusal()
    vi.mocked(commitBatch).mockRejectedValueOnce(error)
    await tick()
    expect([run.over, run.error]).toEqual([true, error])
    expect(readPosition).not.toHaveBeenCalled()
  })
})

describe('isolation', () => {
  const SUSPECTED = { claims: 2, isolateUntil: 2 }

  test('one item at a time, each charged before it runs, until the suspects are behind it', async () => {
    const run = start({ ...SUSPECTED, toOrd: 5 })
    vi.mocked(chargeSuspect).mockResolvedValue(1)
    await tick()
    expect([run.over, run.error]).toEqual([true, null])
    expect(run.ran).toEqual([[0], [1], [2, 3, 4]])
    expect(vi.mocked(chargeSuspect).mock.calls.map(([, , ord]) => ord)).toEqual([0, 1])
    expect(vi.mocked(readDueRetries).mock.calls.map(([, , limit]) => limit)).toEqual([1, 1, 1, 100])
    expect(run.held.isIsolated).toBe(false)
  })

  test('without suspects at the cursor ends with the first look', async () => {
    const run = start({ claims: 2, isolateUntil: null, toOrd: 3 })
    await tick()
    expect(run.ran).toEqual([[0, 1, 2]])
    expect(chargeSuspect).not.toHaveBeenCalled()
  })

  test('waiting suspects come first', async () => {
    const run = start({ ...SUSPECTED, toOrd: 2 })
    vi.mocked(chargeSuspect).mockResolvedValue(1)
    vi.mocked(readDueRetries).mockResolvedValueOnce([6])
    vi.mocked(readRetryAttempts).mockResolvedValueOnce(new Map([[6, 2]]))
    await tick()
    expect(run.ran).toEqual([[6], [0], [1]])
  })

  test('an item that killed as many as it has attempts becomes a dead letter without running again', async () => {
    const run = start({ ...SUSPECTED, toOrd: 1 }, { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } })
    vi.mocked(chargeSuspect).mockResolvedValueOnce(4)
    await tick()
    expect(run.ran).toEqual([])
    expect(vi.mocked(commitBatch).mock.calls[0]?.[2]).toMatchObject({
      range: { from: 0, to: 1 },
      items: [{ ord: 0, attempt: 3 }],
      outcomes: [
        {
          ord: 0,
          item: 'failed',
          failureClass: 'bug_suspected',
          reasonCode: 'WORKER_CRASH',
          message: 'the worker process died 3 times while it ran this item alone',
          effectRef: null,
          retryMs: null,
          fingerprint: expect.stringMatching(/^[0-9a-f]{32}$/),
        },
      ],
    })
  })

  test('as many as it has attempts are allowed', async () => {
    const run = start({ ...SUSPECTED, toOrd: 1 }, { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } })
    vi.mocked(chargeSuspect).mockResolvedValueOnce(3)
    await tick()
    expect(run.ran).toEqual([[0]])
    expect(takeNewEffects).not.toHaveBeenCalled()
  })

  test('a lease that is lost runs nothing', async () => {
    const run = start({ ...SUSPECTED, toOrd: 1 })
    vi.mocked(chargeSuspect).mockResolvedValueOnce(null)
    await tick()
    expect([run.over, run.error, run.ran]).toEqual([true, null, []])
    expect(commitBatch).not.toHaveBeenCalled()
  })

  test('a batch that failed without killing anybody takes its charge back', async () => {
    const run = start({ ...SUSPECTED, toOrd: 1 })
    vi.mocked(chargeSuspect).mockResolvedValue(1)
    vi.mocked(commitBatch).mockRejectedValueOnce(away())
    vi.mocked(readPosition).mockResolvedValueOnce({ cursor: 0, stopRequested: null })
    await tick()
    // at once: it may die of something else before the next try
    expect([run.ran, vi.mocked(unchargeSuspect).mock.calls.length]).toEqual([[[0]], 1])
    await tick(250)
    expect(run.ran).toEqual([[0], [0]])
    expect(unchargeSuspect).toHaveBeenCalledTimes(1)
  })
})

describe('a compensation', () => {
  const undoing = (ord: number) => ({ ...runnableItem(ord), effectKey: `compensate:1:e${ord}` })
  const UNDONE = (ord: number) => ({ effectKey: `e${ord}`, step: '', send: 1, compensationKey: `compensate:1:e${ord}` })

  test('locks what it undoes before its handler runs, and marks what was undone in the same commit', async () => {
    const run = start({ toOrd: 3, compensating: true }, { codeVersion: 'c4' })
    const locked: unknown[] = []
    const marked: unknown[] = []
    vi.mocked(readWindow).mockResolvedValue([undoing(0), undoing(1), undoing(2)])
    vi.mocked(takeNewEffects).mockRejectedValueOnce(new KeyKnown())
    vi.mocked(takeBatchEffects).mockResolvedValueOnce(new Set([2]))
    vi.mocked(executeBatch).mockImplementationOnce(async () => {
      locked.push(...vi.mocked(lockUndone).mock.calls.map(([, tenant, undoings]) => [tenant, undoings]))
      return [applied(0), { ...applied(1), item: 'failed', failureClass: 'conflict' }]
    })
    vi.mocked(commitBatch).mockImplementationOnce(async () => {
      marked.push(...vi.mocked(markCompensated).mock.calls.map(([, , undoings, evidence]) => [undoings, evidence]))
      return true
    })
    await tick()
    expect([run.over, run.error]).toEqual([true, null])
    expect(locked).toEqual([[7, [UNDONE(0), UNDONE(1)]]])
    expect(marked).toEqual([
      [
        [UNDONE(0)],
        expect.objectContaining({ source: 'worker', actor: null, codeVersion: 'c4', workerId: WORKER_ID, epoch: 3 }),
      ],
    ])
    expect(commitBatch).toHaveBeenCalledTimes(1)
    expect(markCompensated).toHaveBeenCalledTimes(1)
  })

  test('of which nothing was won locks and marks nothing', async () => {
    const run = start({ toOrd: 1, compensating: true })
    vi.mocked(readWindow).mockResolvedValue([undoing(0)])
    vi.mocked(takeNewEffects).mockRejectedValueOnce(new KeyKnown())
    vi.mocked(takeBatchEffects).mockResolvedValueOnce(new Set([0]))
    await tick()
    expect([run.error, vi.mocked(commitBatch).mock.calls.length]).toEqual([null, 1])
    expect(lockUndone).not.toHaveBeenCalled()
    expect(markCompensated).not.toHaveBeenCalled()
  })

  test('keys that look like those of a compensation are none in an ordinary run', async () => {
    start({ toOrd: 1 })
    vi.mocked(readWindow).mockResolvedValue([undoing(0)])
    await tick()
    expect(lockUndone).not.toHaveBeenCalled()
    expect(markCompensated).not.toHaveBeenCalled()
  })
})
