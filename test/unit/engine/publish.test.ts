import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { ARTIFACT_BYTES_MAX, formatChunkRef } from '../../../src/domain/artifact.ts'
import { formatId } from '../../../src/domain/ids.ts'
import type { Executor, OperationType } from '../../../src/domain/operation-type.ts'
import { publish } from '../../../src/engine/publish.ts'
import { ObjectMissing, type ObjectStore } from '../../../src/objects/object-store.ts'
import { convergeEvidence } from '../../../src/services/converge.ts'
import { publishArtifact } from '../../../src/services/publish-artifact.ts'
import type { ClaimedShard } from '../../../src/storage/run/lease.ts'
import { readChunkRefs } from '../../../src/storage/run/publish.ts'
import { chargeSuspect, readPosition } from '../../../src/storage/run/window.ts'
import {
  away,
  holdShard,
  notingContext,
  OPERATION_ID,
  refusal,
  runnableItem,
  useTestClock,
} from '../../support/held-run.ts'

vi.mock('../../../src/services/converge.ts', () => ({ convergeEvidence: vi.fn() }))
vi.mock('../../../src/services/publish-artifact.ts', () => ({ publishArtifact: vi.fn() }))
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

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')
const refOf = (object: string, text: string): string =>
  formatChunkRef({ object, sizeBytes: Buffer.byteLength(text), sha256: sha256(text) })

const EXECUTOR: Extract<Executor, { kind: 'artifact' }> = {
  kind: 'artifact',
  chunkTimeoutMs: 1_000,
  plan: async () => ({ chunks: [] }),
  writeChunk: async function* () {},
  file: (input) => ({ name: `${JSON.stringify(input)}.csv`, contentType: 'text/csv' }),
  artifactKey: () => null,
}

/** A publish of two chunks that stand in a store in memory. */
const start = (
  shard: Partial<ClaimedShard> = {},
  type: Partial<OperationType> = {},
  executor: Partial<typeof EXECUTOR> = {},
) => {
  const stored = new Map<string, string>([
    ['c0', 'one, '],
    ['c1', 'two'],
  ])
  const deleted: string[] = []
  const puts: { name: string; options: object }[] = []
  const store: ObjectStore = {
    async put(name, bytes, options) {
      puts.push({ name, options })
      const pieces: Uint8Array[] = []
      try {
        for await (const piece of bytes) pieces.push(piece)
      } catch (cause) {
        throw new Error('the store wraps what its source throws', { cause })
      }
      stored.set(name, Buffer.concat(pieces).toString())
    },
    async *read(name) {
      const text = stored.get(name)
      if (text === undefined) throw new ObjectMissing(name)
      yield Buffer.from(text)
    },
    delete: async (name) => void deleted.push(name),
    list: async () => [],
    deleteFolder: async () => {},
    close: async () => {},
  }
  const held = holdShard(shard, { effect: 'artifact', executor: EXECUTOR, stallMs: 10_000, ...type })
  const { context, noted } = notingContext(store)
  vi.mocked(readChunkRefs).mockResolvedValue([refOf('c0', 'one, '), refOf('c1', 'two')])
  vi.mocked(publishArtifact).mockResolvedValue(true)
  vi.mocked(convergeEvidence).mockResolvedValue({ moved: new Set([3]), mine: true, stopRequested: null, done: false })
  const run = { held, noted, stored, deleted, puts, store, over: false }
  void Promise.resolve()
    .then(() => publish(context, held, { ...EXECUTOR, ...executor }, { ...runnableItem(3), send: 2, attempt: 1 }))
    .then(() => {
      run.over = true
    })
  return run
}
/** What was reported instead of an artifact. */
const reports = () => vi.mocked(convergeEvidence).mock.calls.flatMap(([, , evidence]) => evidence.reports)

describe('a publish', () => {
  test('puts the chunks together, in their order, and publishes what came of it', async () => {
    const run = start({}, { retention: { itemsDays: 1, ledgerDays: 33 }, codeVersion: 'c8' })
    await tick()
    expect(run.over).toBe(true)
    const [context, lease, evidence, artifact] = vi.mocked(publishArtifact).mock.calls[0] ?? []
    const name = `artifacts/7/${OPERATION_ID}/${artifact?.id}`
    expect(run.stored.get(name)).toBe('one, two')
    expect(run.puts).toEqual([{ name, options: { contentType: 'text/csv', sizeBytes: 8 } }])
    expect(artifact).toEqual({
      id: expect.any(String),
      type: 'grant',
      artifactKey: OPERATION_ID,
      name: '{"n":3}.csv',
      contentType: 'text/csv',
      object: name,
      sizeBytes: 8,
      sha256: sha256('one, two'),
      keepDays: 33,
    })
    expect(evidence).toMatchObject({
      source: 'worker',
      codeVersion: 'c8',
      reports: [
        { ord: 3, send: 2, effect: 'applied', item: 'applied', effectRef: formatId('art', artifact?.id as string) },
      ],
    })
    expect([context?.wakeUps !== undefined, lease]).toEqual([true, run.held.lease])
    expect(run.noted.items).toEqual([['grant', 1, 0]])
    expect(run.noted.calls).toEqual([{ type: 'grant', durationMs: 0, downstreamError: false }])
    expect([run.deleted, reports()]).toEqual([[], []])
  })

  test('takes the place of those with the key that its type makes', async () => {
    start({}, {}, { artifactKey: () => 'monthly' })
    await tick()
    expect(vi.mocked(publishArtifact).mock.calls[0]?.[3].artifactKey).toBe('monthly')
  })

  test.each([
    [[null, refOf('c1', 'two')], '1 of 2 chunks were not written'],
    [['not a reference', null], '2 of 2 chunks were not written'],
  ])('without all chunks fails, and nothing is put: %o', async (refs, message) => {
    const run = start()
    vi.mocked(readChunkRefs).mockResolvedValue(refs)
    await tick()
    expect(reports()).toMatchObject([
      {
        ord: 3,
        send: 2,
        effect: 'absent',
        item: 'failed',
        failureClass: 'conflict',
        reasonCode: 'CHUNKS_MISSING',
        message,
      },
    ])
    expect([run.puts, vi.mocked(publishArtifact).mock.calls]).toEqual([[], []])
  })

  test('of more bytes than one object holds fails; of as many it does not', async () => {
    const half = ARTIFACT_BYTES_MAX / 2
    const ref = (sizeBytes: number) => formatChunkRef({ object: 'c0', sizeBytes, sha256: sha256('one, ') })
    const run = start()
    vi.mocked(readChunkRefs).mockResolvedValue([ref(half), ref(half + 1)])
    await tick()
    expect(reports()).toMatchObject([
      {
        failureClass: 'conflict',
        reasonCode: 'ARTIFACT_TOO_LARGE',
        message: `it has ${ARTIFACT_BYTES_MAX + 1} bytes; at most ${ARTIFACT_BYTES_MAX} are stored as one object`,
      },
    ])
    expect(run.puts).toEqual([])
    const whole = start()
    vi.mocked(readChunkRefs).mockResolvedValue([ref(half), ref(half)])
    await tick()
    expect(whole.puts).toHaveLength(1)
  })

  test.each([
    ['of another length', formatChunkRef({ object: 'c1', sizeBytes: 4, sha256: sha256('two') })],
    ['of other bytes', refOf('c1', 'owt')],
    ['that is gone', refOf('c9', 'two')],
  ])('with a chunk %s fails, and what was put is deleted', async (_how, ref) => {
    const run = start()
    vi.mocked(readChunkRefs).mockResolvedValue([refOf('c0', 'one, '), ref])
    await tick()
    expect(reports()).toMatchObject([
      {
        failureClass: 'conflict',
        reasonCode: 'CHUNKS_DAMAGED',
        message: 'a chunk is not what was written: a replay writes all of them again',
      },
    ])
    expect(run.deleted).toEqual([run.puts[0]?.name])
    expect(run.noted.log).toEqual(['assembling an artifact failed'])
    expect(publishArtifact).not.toHaveBeenCalled()
  })

  test('that the store refuses is tried again', async () => {
    const run = start()
    vi.spyOn(run.store, 'put').mockRejectedValue('full')
    await tick()
    expect(reports()).toMatchObject([
      {
        item: 'failed',
        failureClass: 'transient',
        reasonCode: 'ASSEMBLY_FAILED',
        message: 'the artifact could not be put together',
        retry: { reason: 'failed' },
      },
    ])
    expect(run.deleted).toHaveLength(1)
  })

  test('whose leftovers cannot be deleted leaves them to the janitor', async () => {
    const run = start()
    vi.spyOn(run.store, 'put').mockRejectedValue(new Error('full'))
    vi.spyOn(run.store, 'delete').mockRejectedValue(new Error('away'))
    await tick()
    expect(run.over).toBe(true)
    expect(run.noted.log.sort()).toEqual(['an object is left to the janitor', 'assembling an artifact failed'])
  })
})

describe('an assembly', () => {
  /** The store gives a chunk out piece by piece, `pauseMs` after each other. */
  const slowly = (run: ReturnType<typeof start>, pauseMs: number, onPiece: (n: number) => void = () => {}) => {
    vi.spyOn(run.store, 'read').mockImplementation(async function* (name) {
      for (const [n, byte] of Buffer.from(run.stored.get(name) ?? '').entries()) {
        await new Promise((resolve) => setTimeout(resolve, pauseMs))
        onPiece(n)
        yield Buffer.from([byte])
      }
    })
  }

  test('may take its time as long as bytes move, and is no stall', async () => {
    await tick(7_000)
    const run = start({}, { stallMs: 1_000, leaseMs: 600_000 })
    slowly(run, 900)
    await tick(900 * 8)
    expect(run.over).toBe(true)
    expect([run.held.isStalled, vi.mocked(publishArtifact).mock.calls.length]).toEqual([false, 1])
    expect(run.noted.calls).toEqual([{ type: 'grant', durationMs: 7_200, downstreamError: false }])
  })

  test('ends when the store goes silent', async () => {
    const run = start({}, { stallMs: 1_000, leaseMs: 600_000 })
    slowly(run, 1_001)
    await tick(1_000)
    expect(run.over).toBe(true)
    expect(reports()).toMatchObject([{ failureClass: 'transient', reasonCode: 'ASSEMBLY_FAILED' }])
    // the read that is still under way is of no use to anybody
    await tick(60_000)
    expect(publishArtifact).not.toHaveBeenCalled()
  })

  test.each(['pause', 'cancel'] as const)(
    'ends with a %s: nothing is published, and nothing has failed',
    async (stop) => {
      const run = start()
      vi.mocked(readPosition).mockResolvedValue({ cursor: 4, stopRequested: stop })
      slowly(run, 1, (n) => n === 1 && run.held.stopped(stop))
      await tick(100)
      expect(run.over).toBe(true)
      expect(reports()).toMatchObject([{ ord: 3, send: 2, effect: 'absent', item: null, retry: { reason: 'unsent' } }])
      expect([run.deleted, run.noted.log]).toEqual([[run.puts[0]?.name], []])
    },
  )

  test('that a pause ended does not go on because the pause was taken back meanwhile: its run begins anew', async () => {
    const run = start()
    vi.mocked(readPosition).mockResolvedValue({ cursor: 4, stopRequested: null })
    slowly(run, 1, (n) => n === 1 && run.held.stopped('pause'))
    await tick(100)
    expect([run.over, run.held.stop, run.held.mayGoOn]).toEqual([true, 'pause', false])
    expect(reports()).toMatchObject([{ ord: 3, effect: 'absent', item: null }])
  })

  test('ends with the lease', async () => {
    const run = start({}, { leaseMs: 10_000, stallMs: 600_000 })
    vi.mocked(readPosition).mockResolvedValue(null)
    slowly(run, 5_000)
    await tick(10_000)
    expect([run.over, run.held.lost, reports()]).toEqual([true, true, []])
  })

  test('is not begun anew because others wait', async () => {
    const run = start()
    slowly(run, 1, (n) => {
      if (n === 1) run.held.giveBack = true
    })
    await tick(100)
    expect(publishArtifact).toHaveBeenCalledTimes(1)
  })
})

describe('a publish that the database', () => {
  test('did not take, as a stop came first, goes back unsent, and the stop is told', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockResolvedValue(false)
    vi.mocked(readPosition).mockResolvedValue({ cursor: 4, stopRequested: 'cancel' })
    await tick()
    expect([run.over, run.held.stop, run.deleted]).toEqual([true, 'cancel', [run.puts[0]?.name]])
    expect(reports()).toMatchObject([{ effect: 'absent', item: null }])
    expect(run.noted.items.filter(([, ended]) => ended > 0)).toEqual([])
  })

  test('did not take, and of which nobody knows why, goes back unsent', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockResolvedValue(false)
    vi.mocked(readPosition).mockResolvedValue({ cursor: 4, stopRequested: null })
    await tick()
    expect([run.held.stop, run.held.lost, reports().length]).toEqual([null, false, 1])
  })

  test('did not take, as another worker has the shard, is left to that one', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockResolvedValue(false)
    vi.mocked(readPosition).mockResolvedValue(null)
    await tick()
    expect([run.held.lost, reports()]).toEqual([true, []])
  })

  test('did not take, and that cannot be asked, is left to the next holder', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockResolvedValue(false)
    vi.mocked(readPosition).mockRejectedValue(refusal())
    await tick()
    expect([run.held.lost, reports()]).toEqual([true, []])
  })

  test('refused has failed, and is tried again', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockRejectedValue(refusal())
    await tick()
    expect(reports()).toMatchObject([
      { failureClass: 'transient', reasonCode: 'PUBLISH_REFUSED', message: 'the artifact could not be recorded' },
    ])
    expect(run.deleted).toEqual([run.puts[0]?.name])
  })

  test('may or may not have taken keeps its object: the row, if it is there, names it', async () => {
    const run = start()
    vi.mocked(publishArtifact).mockRejectedValue(away())
    await tick(121_000)
    expect([run.over, run.deleted, reports(), run.noted.items]).toEqual([true, [], [], []])
  })

  test.each([
    ['did not answer for', away],
    ['refused to read for', refusal],
  ])('%s is found out by a takeover', async (_what, error) => {
    const run = start()
    vi.mocked(readChunkRefs).mockRejectedValue(error())
    await tick(121_000)
    expect([run.over, run.puts, reports()]).toEqual([true, [], []])
  })
})

describe('a publish that may have killed its workers', () => {
  test('fails without being tried once more', async () => {
    const run = start({ claims: 2 }, { retry: { maxAttempts: 2, baseMs: 1, maxMs: 1 } })
    vi.mocked(chargeSuspect).mockResolvedValue(3)
    await tick()
    expect(reports()).toMatchObject([
      { failureClass: 'bug_suspected', reasonCode: 'WORKER_CRASH', message: expect.stringContaining('died 2 times') },
    ])
    expect([run.over, run.puts]).toEqual([true, []])
  })

  test('is left alone where the lease is lost', async () => {
    const run = start({ claims: 2 })
    vi.mocked(chargeSuspect).mockResolvedValue(null)
    await tick()
    expect([run.over, run.puts, reports()]).toEqual([true, [], []])
  })
})
