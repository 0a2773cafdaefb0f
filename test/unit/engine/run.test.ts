import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { formatId } from '../../../src/domain/ids.ts'
import type { Executor } from '../../../src/domain/operation-type.ts'
import { runArtifact } from '../../../src/engine/artifact.ts'
import { runExternal } from '../../../src/engine/external.ts'
import { runShard } from '../../../src/engine/run.ts'
import { runTransactional } from '../../../src/engine/transactional.ts'
import type { Log } from '../../../src/log.ts'
import { convergeEvidence } from '../../../src/services/converge.ts'
import { settleOperation } from '../../../src/services/settle.ts'
import { finishShard } from '../../../src/storage/run/finish.ts'
import { readOrphanedIntents } from '../../../src/storage/run/window.ts'
import { markStarted } from '../../../src/storage/settle.ts'
import type { Span, SpanOptions } from '../../../src/tracing.ts'
import { holdShard, ignorePoints, notePoints, notingContext, OPERATION_ID, WORKER_ID } from '../../support/held-run.ts'

vi.mock('../../../src/engine/external.ts', () => ({ runExternal: vi.fn() }))
vi.mock('../../../src/engine/transactional.ts', () => ({ runTransactional: vi.fn() }))
vi.mock('../../../src/engine/artifact.ts', () => ({ runArtifact: vi.fn() }))
vi.mock('../../../src/services/converge.ts', () => ({ convergeEvidence: vi.fn() }))
vi.mock('../../../src/services/settle.ts', () => ({ settleOperation: vi.fn() }))
vi.mock('../../../src/storage/run/finish.ts', () => ({ finishShard: vi.fn() }))
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
vi.mock('../../../src/storage/settle.ts', () => ({ markStarted: vi.fn() }))

beforeEach(() => {
  vi.resetAllMocks()
  vi.mocked(markStarted).mockResolvedValue(undefined)
  vi.mocked(finishShard).mockResolvedValue({ state: 'ready', dueInMs: 1_500 })
  vi.mocked(readOrphanedIntents).mockResolvedValue([])
})

const TRANSACTIONAL: Executor = { kind: 'transactional', runBatch: async () => undefined }
const ARTIFACT: Executor = {
  kind: 'artifact',
  chunkTimeoutMs: 1_000,
  plan: async () => ({ chunks: [] }),
  writeChunk: async function* () {},
  file: () => ({ name: 'f', contentType: 'text/plain' }),
  artifactKey: () => null,
}

describe('a run', () => {
  test('marks the operation as started, runs the shard its own way, and gives it back', async () => {
    const { context, noted } = notingContext()
    const held = holdShard({ epoch: 1 })
    expect(await runShard(context, held)).toBe(1_500)
    expect(vi.mocked(markStarted).mock.calls[0]?.slice(1)).toEqual([7, OPERATION_ID])
    expect(runExternal).toHaveBeenCalledExactlyOnceWith(context, held, held.executor)
    expect(runTransactional).not.toHaveBeenCalled()
    expect(runArtifact).not.toHaveBeenCalled()
    expect(finishShard).toHaveBeenCalledExactlyOnceWith(context.database, held.lease, { lastWaits: false })
    expect(settleOperation).not.toHaveBeenCalled()
    expect([held.finishing, noted.wakeUps]).toEqual([true, ['change', 'change']])
  })

  test('reads its first items while the operation becomes running, and ends in the fault if that was not stored', async () => {
    const held = holdShard()
    let fail = (_error: Error): void => {}
    vi.mocked(markStarted).mockReturnValue(
      new Promise((_, reject) => {
        fail = reject
      }),
    )
    vi.mocked(runExternal).mockImplementation(async () => fail(new Error('away')))
    await expect(runShard(notingContext().context, held)).rejects.toThrow('away')
    expect(runExternal).toHaveBeenCalledTimes(1)
    expect(finishShard).not.toHaveBeenCalled()
  })

  test.each([
    ['a transactional', runTransactional, { executor: TRANSACTIONAL, effect: 'transactional' as const }],
    ['an artifact', runArtifact, { executor: ARTIFACT, effect: 'artifact' as const }],
  ])('of %s type does nothing before the operation is running', async (_name, work, type) => {
    vi.mocked(markStarted).mockRejectedValue(new Error('away'))
    await expect(runShard(notingContext().context, holdShard({}, type))).rejects.toThrow('away')
    expect(work).not.toHaveBeenCalled()
  })

  test('of a transactional type', async () => {
    const { context } = notingContext()
    const held = holdShard({}, { executor: TRANSACTIONAL, effect: 'transactional' })
    await runShard(context, held)
    expect(runTransactional).toHaveBeenCalledExactlyOnceWith(context, held, TRANSACTIONAL)
    expect(runExternal).not.toHaveBeenCalled()
  })

  test('of an artifact type, whose last item waits for all others', async () => {
    const { context } = notingContext()
    const held = holdShard({}, { executor: ARTIFACT, effect: 'artifact' })
    await runShard(context, held)
    expect(runArtifact).toHaveBeenCalledExactlyOnceWith(context, held, ARTIFACT)
    expect(runTransactional).not.toHaveBeenCalled()
    expect(vi.mocked(finishShard).mock.calls[0]?.[2]).toEqual({ lastWaits: true })
  })

  test('that was told to stop before it began starts no operation', async () => {
    const { context } = notingContext()
    const held = holdShard({ stopRequested: 'pause' })
    await runShard(context, held)
    expect(markStarted).not.toHaveBeenCalled()
    expect(runExternal).toHaveBeenCalledExactlyOnceWith(context, held, held.executor)
  })

  test('that was the last one settles the operation', async () => {
    const { context, noted } = notingContext()
    vi.mocked(finishShard).mockResolvedValue({ state: 'done', dueInMs: 0 })
    expect(await runShard(context, holdShard())).toBeNull()
    expect(settleOperation).toHaveBeenCalledExactlyOnceWith(context, 7, OPERATION_ID)
    expect(noted.wakeUps.at(-1)).toBe('change')
  })

  test('whose lease is lost finishes nothing', async () => {
    const held = holdShard()
    vi.mocked(runExternal).mockImplementation(async () => {
      held.lost = true
    })
    expect(await runShard(notingContext().context, held)).toBeNull()
    expect(finishShard).not.toHaveBeenCalled()
    expect(settleOperation).not.toHaveBeenCalled()
  })

  test('whose lease another worker has by now leaves everything to it', async () => {
    vi.mocked(finishShard).mockResolvedValue(null)
    expect(await runShard(notingContext().context, holdShard())).toBeNull()
    expect(settleOperation).not.toHaveBeenCalled()
  })
})

describe('the lines of a run', () => {
  test('name the trace of its submission', async () => {
    const { context } = notingContext()
    const named = { ...context.log }
    const child = vi.fn(() => named)
    const log = { ...context.log, child } as unknown as Log
    await runShard({ ...context, log }, holdShard({ traceparent: '00-0af7651916cd43dd-b7ad6b7169203331-01' }))
    expect(child).toHaveBeenCalledExactlyOnceWith({ trace_id: '0af7651916cd43dd' })
    expect(vi.mocked(runExternal).mock.calls[0]?.[0].log).toBe(named)
  })

  test('name none where the submission had none', async () => {
    const { context } = notingContext()
    const child = vi.spyOn(context.log, 'child')
    await runShard(context, holdShard({ traceparent: null }))
    expect(child).not.toHaveBeenCalled()
  })
})

describe('a run that a fault test holds', () => {
  afterEach(ignorePoints)

  test('stands between its steps', async () => {
    const steps = [readOrphanedIntents, markStarted, runTransactional, finishShard]
    const { points, operations } = notePoints(() => [steps.map((step) => vi.mocked(step).mock.calls.length)])
    const held = holdShard({ epoch: 2 }, { executor: TRANSACTIONAL, effect: 'transactional' })
    await runShard(notingContext().context, held)
    expect(points).toEqual([
      ['shard-claimed', [0, 0, 0, 0]],
      ['orphans-explained', [1, 0, 0, 0]],
      ['run-started', [1, 1, 0, 0]],
      ['run-ended', [1, 1, 1, 0]],
      ['shard-finished', [1, 1, 1, 1]],
    ])
    expect([...operations]).toEqual([OPERATION_ID])
  })
})

describe('what an earlier holder left behind', () => {
  const orphan = (ord: number) => ({ ord, effectKey: `e${ord}`, send: 1 })

  test('is uncertain, each piece of it before anything is run', async () => {
    const { context } = notingContext()
    const held = holdShard({ epoch: 2 }, { providerIdempotentMs: 9, codeVersion: 'c3' })
    vi.mocked(readOrphanedIntents)
      .mockResolvedValueOnce([orphan(1), orphan(2)])
      .mockResolvedValueOnce([orphan(3)])
    let explained = 0
    vi.mocked(runExternal).mockImplementation(async () => {
      explained = vi.mocked(convergeEvidence).mock.calls.length
    })
    await runShard(context, held)
    expect(explained).toBe(2)
    expect(vi.mocked(readOrphanedIntents).mock.calls[0]?.[2]).toBe(500)
    const uncertain = { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' }
    expect(convergeEvidence).toHaveBeenNthCalledWith(
      1,
      context,
      held.lease,
      {
        source: 'recovery',
        epoch: 2,
        workerId: WORKER_ID,
        actor: null,
        codeVersion: 'c3',
        lookupAfterMs: 0,
        reports: [expect.objectContaining({ ord: 1, ...uncertain }), expect.objectContaining({ ord: 2, ...uncertain })],
      },
      { doublesMatter: true },
    )
  })

  test('of an artifact is written again: what no row names is nothing', async () => {
    const held = holdShard({ epoch: 2 }, { executor: ARTIFACT, effect: 'artifact' })
    vi.mocked(readOrphanedIntents).mockResolvedValueOnce([orphan(1)])
    await runShard(notingContext().context, held)
    const [, , evidence, options] = vi.mocked(convergeEvidence).mock.calls[0] ?? []
    expect(evidence?.reports).toMatchObject([
      { ord: 1, effect: 'absent', item: null, retry: { afterMs: 0, reason: 'unsent' } },
    ])
    expect(options).toEqual({ doublesMatter: false })
  })

  test('is nothing where there was no earlier holder', async () => {
    await runShard(notingContext().context, holdShard({ epoch: 1 }))
    expect(readOrphanedIntents).not.toHaveBeenCalled()
  })

  test('is explained step by step, so that a long explanation is no stall', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout'] })
    try {
      const held = holdShard({ epoch: 2 }, { stallMs: 1_000 })
      vi.mocked(readOrphanedIntents).mockResolvedValueOnce([orphan(1)])
      vi.mocked(convergeEvidence).mockImplementation(async () => {
        vi.advanceTimersByTime(1_500)
        return { moved: new Set([1]), mine: true, stopRequested: null, done: false }
      })
      await runShard(notingContext().context, held)
      expect(held.isStalled).toBe(false)
    } finally {
      vi.useRealTimers()
    }
  })

  test('ends after a thousand steps, whatever comes: a run always begins', async () => {
    vi.mocked(readOrphanedIntents).mockResolvedValue([orphan(1)])
    await runShard(notingContext().context, holdShard({ epoch: 2 }))
    expect(readOrphanedIntents).toHaveBeenCalledTimes(1_000)
    expect(runExternal).toHaveBeenCalledTimes(1)
  })
})

describe('a run that is traced', () => {
  const tracing = () => {
    const begun: { name: string; options: SpanOptions; ended: string | null }[] = []
    return {
      begun,
      start(name: string, options: SpanOptions): Span {
        const span = { name, options, ended: null as string | null }
        begun.push(span)
        const end = (status: string): void => {
          span.ended = status
        }
        return { traceparent: `span ${begun.length}`, set: () => {}, end }
      },
      close: async () => {},
    }
  }

  test('is a span of its own, linked to the submission, and what it does is below it with the same link', async () => {
    const traced = tracing()
    vi.mocked(runExternal).mockImplementation(async (_context, held) => {
      held.trace('call', { 'opledger.type': 'grant' }).end('ok')
      held.trace('batch', {}).end('error')
    })
    await runShard({ ...notingContext().context, tracing: traced }, holdShard({ epoch: 4, shard: 2 }))
    expect(traced.begun).toEqual([
      {
        name: 'shard run',
        options: {
          kind: 'consumer',
          link: 'trace',
          attributes: {
            'opledger.operation_id': formatId('op', OPERATION_ID),
            'opledger.type': 'grant',
            'opledger.shard': 2,
            'opledger.epoch': 4,
          },
        },
        ended: 'ok',
      },
      {
        name: 'call',
        options: { kind: 'client', parent: 'span 1', link: 'trace', attributes: { 'opledger.type': 'grant' } },
        ended: 'ok',
      },
      { name: 'batch', options: { kind: 'internal', parent: 'span 1', link: 'trace', attributes: {} }, ended: 'error' },
    ])
  })

  test('and not recorded, as its caller did not sample it, begins no trace for what it does', async () => {
    const traced = tracing()
    const unrecorded = {
      ...traced,
      start: (name: string, options: SpanOptions): Span => ({ ...traced.start(name, options), traceparent: null }),
    }
    vi.mocked(runExternal).mockImplementation(async (_context, held) => held.trace('call', {}).end('ok'))
    await runShard({ ...notingContext().context, tracing: unrecorded }, holdShard())
    expect(traced.begun.map(({ name }) => name)).toEqual(['shard run'])
  })

  test('that throws says so', async () => {
    const traced = tracing()
    vi.mocked(runExternal).mockRejectedValue(new Error('a bug'))
    await expect(runShard({ ...notingContext().context, tracing: traced }, holdShard())).rejects.toThrow('a bug')
    expect(traced.begun.map(({ ended }) => ended)).toEqual(['error'])
  })
})
