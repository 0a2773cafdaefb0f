import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { Executor } from '../../../src/domain/operation-type.ts'
import { runArtifact } from '../../../src/engine/artifact.ts'
import { chunkWriter } from '../../../src/engine/chunk-writer.ts'
import { runExternal } from '../../../src/engine/external.ts'
import { returnUnclear } from '../../../src/engine/outcomes.ts'
import { publish } from '../../../src/engine/publish.ts'
import { claimIntents } from '../../../src/storage/run/claim-intents.ts'
import { claimRetries } from '../../../src/storage/run/claim-retries.ts'
import { openWorkspace, readPublishPosition } from '../../../src/storage/run/publish.ts'
import { readDueRetries, readItems } from '../../../src/storage/run/window.ts'
import { away, holdShard, notingContext, runnableItem } from '../../support/held-run.ts'

vi.mock('../../../src/engine/chunk-writer.ts', () => ({ chunkWriter: vi.fn() }))
vi.mock('../../../src/engine/external.ts', () => ({ runExternal: vi.fn() }))
vi.mock('../../../src/engine/outcomes.ts', () => ({
  patiently: vi.fn(),
  returnUnclear: vi.fn(),
  writePatiently: vi.fn(),
}))
vi.mock('../../../src/engine/publish.ts', () => ({ publish: vi.fn() }))
vi.mock('../../../src/storage/run/claim-intents.ts', () => ({ claimIntents: vi.fn() }))
vi.mock('../../../src/storage/run/claim-retries.ts', () => ({ claimRetries: vi.fn(), explainKnownKeys: vi.fn() }))
vi.mock('../../../src/storage/run/publish.ts', () => ({
  openWorkspace: vi.fn(),
  readChunkRefs: vi.fn(),
  readPublishPosition: vi.fn(),
}))
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

const EXECUTOR: Extract<Executor, { kind: 'artifact' }> = {
  kind: 'artifact',
  chunkTimeoutMs: 1_000,
  plan: async () => ({ chunks: [] }),
  writeChunk: async function* () {},
  file: () => ({ name: 'f', contentType: 'text/plain' }),
  artifactKey: () => null,
}
/** Three chunks, all written, and the publish not claimed yet. */
const READY = { unclaimed: 0, inFlight: 0, waiting: 0, claimed: false }
const WRITER = { callTimeoutMs: 0, send: () => Promise.reject(new Error('not run here')) }

beforeEach(() => {
  vi.resetAllMocks()
  vi.mocked(chunkWriter).mockReturnValue(WRITER)
  vi.mocked(readPublishPosition).mockResolvedValue(READY)
  vi.mocked(readItems).mockResolvedValue([runnableItem(3)])
  vi.mocked(claimIntents).mockResolvedValue(new Set([3]))
})

const run = async (held = holdShard({ toOrd: 4 }, { effect: 'artifact', executor: EXECUTOR, leaseMs: 40_000 })) => {
  const { context, noted } = notingContext()
  await runArtifact(context, held, EXECUTOR)
  return { held, context, noted }
}

describe('an artifact', () => {
  test('is made of all items but the last, which publishes it', async () => {
    vi.mocked(runExternal).mockImplementation(async () => {
      expect(openWorkspace).toHaveBeenCalledTimes(1)
      expect(publish).not.toHaveBeenCalled()
    })
    const { held, context } = await run()
    expect(runExternal).toHaveBeenCalledExactlyOnceWith(context, held, WRITER, 3)
    expect(vi.mocked(readItems).mock.calls[0]?.[2]).toEqual([3])
    expect(vi.mocked(claimIntents).mock.calls[0]?.[2]).toEqual({
      from: 3,
      to: 4,
      sendByMs: 40_000,
    })
    expect(publish).toHaveBeenCalledExactlyOnceWith(context, held, EXECUTOR, {
      ...runnableItem(3),
      send: 1,
      attempt: 1,
    })
  })

  test('is not published after a stop', async () => {
    const held = holdShard({ toOrd: 4 }, { effect: 'artifact', executor: EXECUTOR })
    vi.mocked(runExternal).mockImplementation(async () => held.stopped('cancel'))
    await run(held)
    expect(readPublishPosition).not.toHaveBeenCalled()
    expect(publish).not.toHaveBeenCalled()
  })

  test.each([{ unclaimed: 1 }, { inFlight: 1 }, { waiting: 1 }])('waits for its chunks: %o', async (open) => {
    vi.mocked(readPublishPosition).mockResolvedValue({ ...READY, ...open })
    const { held } = await run()
    expect([held.lost, vi.mocked(claimIntents).mock.calls.length, vi.mocked(publish).mock.calls.length]).toEqual([
      false,
      0,
      0,
    ])
  })

  test('is left alone when the lease is lost', async () => {
    vi.mocked(readPublishPosition).mockResolvedValue(null)
    const { held } = await run()
    expect(held.lost).toBe(true)
    expect(claimIntents).not.toHaveBeenCalled()
  })

  test.each([[[]], [[runnableItem(2)]]])('without its last item ends the run: %o', async (items) => {
    vi.mocked(readItems).mockResolvedValue(items)
    await expect(run()).rejects.toThrow('missing')
    expect(claimIntents).not.toHaveBeenCalled()
  })

  test.each([[null], [new Set<number>()]])('is not published where the claim did not win: %o', async (won) => {
    vi.mocked(claimIntents).mockResolvedValue(won)
    const { noted } = await run()
    expect(publish).not.toHaveBeenCalled()
    // it answered: what it left behind is known
    expect(returnUnclear).not.toHaveBeenCalled()
    expect(noted.log).toEqual([])
  })

  test('whose claim has no answer is published by the next holder; what it claimed goes back', async () => {
    vi.mocked(claimIntents).mockRejectedValue(away())
    const { context, held, noted } = await run()
    expect(publish).not.toHaveBeenCalled()
    expect(returnUnclear).toHaveBeenCalledExactlyOnceWith(context, held, new Set([3]))
    expect(noted.log).toEqual(['claiming a publish failed'])
  })
})

describe('a publish that was claimed before', () => {
  const retry = { ord: 3, step: '', effectKey: 'e3', send: 2, attempt: 2, resend: false, explained: false }
  beforeEach(() => {
    vi.mocked(readPublishPosition).mockResolvedValue({ ...READY, claimed: true })
    vi.mocked(readDueRetries).mockResolvedValue([3])
    vi.mocked(claimRetries).mockResolvedValue([retry])
  })

  test('is tried again when it is due', async () => {
    const { noted } = await run()
    expect(claimIntents).not.toHaveBeenCalled()
    expect(vi.mocked(readDueRetries).mock.calls[0]?.[2]).toBe(1)
    expect(vi.mocked(claimRetries).mock.calls[0]?.slice(2)).toEqual([[3], { sendByMs: 40_000, resendWithinMs: 0 }])
    expect(vi.mocked(publish).mock.calls[0]?.[3]).toEqual({ ...runnableItem(3), send: 2, attempt: 2 })
    expect(noted.retries).toEqual([['grant', 1]])
  })

  test('and went back unsent is no repetition', async () => {
    vi.mocked(claimRetries).mockResolvedValue([{ ...retry, attempt: 1 }])
    const { noted } = await run()
    expect(vi.mocked(publish).mock.calls[0]?.[3]).toMatchObject({ send: 2, attempt: 1 })
    expect(noted.retries).toEqual([])
  })

  test('and is not due, or has its outcome, is left alone', async () => {
    vi.mocked(readDueRetries).mockResolvedValue([])
    await run()
    expect(claimRetries).not.toHaveBeenCalled()
    expect(publish).not.toHaveBeenCalled()
  })

  test.each([[null], [[]]])('and is not won is left alone: %o', async (won) => {
    vi.mocked(claimRetries).mockResolvedValue(won)
    const { noted } = await run()
    expect(publish).not.toHaveBeenCalled()
    expect(noted.log).toEqual([])
  })
})
