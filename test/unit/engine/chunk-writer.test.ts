import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { CHUNK_BYTES_MAX, formatChunkRef } from '../../../src/domain/artifact.ts'
import { formatId } from '../../../src/domain/ids.ts'
import type {
  ChunkRun,
  EffectCall,
  Executor,
  OperationType,
  SendReport,
  TransactionSql,
} from '../../../src/domain/operation-type.ts'
import { chunkWriter } from '../../../src/engine/chunk-writer.ts'
import type { ObjectStore } from '../../../src/objects/object-store.ts'
import { readOnlyQuery } from '../../../src/storage/read-only-query.ts'
import type { ClaimedShard } from '../../../src/storage/run/lease.ts'
import { chargeSuspect, unchargeSuspect } from '../../../src/storage/run/window.ts'
import { away, holdShard, notingContext, OPERATION_ID, useTestClock } from '../../support/held-run.ts'

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
vi.mock('../../../src/storage/read-only-query.ts', () => ({ readOnlyQuery: vi.fn() }))
vi.mock('node:timers/promises', () => ({
  setTimeout: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms)),
}))

let tick: (ms?: number) => Promise<void>
beforeEach(() => {
  vi.resetAllMocks()
  tick = useTestClock().tick
})
afterEach(() => {
  vi.useRealTimers()
})

type Write = (chunk: { key: string; input: unknown }, run: ChunkRun) => AsyncIterable<Uint8Array | string>
const CALL: EffectCall = {
  effectKey: 'e2',
  step: '',
  itemKey: 'part-2',
  input: { n: 2 },
  operationId: formatId('op', OPERATION_ID),
  type: 'grant',
  attempt: 1,
  traceparent: null,
}
const QUERY: TransactionSql = async () => []
const OBJECT = `tmp/7/${OPERATION_ID}/2-5`
const TIMEOUT_MS = 5_000
const HELD_OBJECT = { contentType: 'application/octet-stream', sizeBytes: null }

/** Writes chunk 2, send 5, into a store in memory. */
const start = (writeChunk: Write, shard: Partial<ClaimedShard> = {}, type: Partial<OperationType> = {}) => {
  const pieces: number[][] = []
  const deleted: string[] = []
  const puts: [name: string, options: object][] = []
  const stored = new Map<string, Buffer>()
  const store = {
    async put(name: string, bytes: AsyncIterable<Uint8Array>, options: object) {
      puts.push([name, options])
      const sizes: number[] = []
      pieces.push(sizes)
      const all: Uint8Array[] = []
      try {
        for await (const piece of bytes) {
          sizes.push(piece.byteLength)
          all.push(piece)
        }
      } catch (cause) {
        throw new Error('the store wraps what its source throws', { cause })
      }
      stored.set(name, Buffer.concat(all))
    },
    async *read() {},
    delete: async (name: string) => void deleted.push(name),
    list: async () => [],
    deleteFolder: async () => {},
    close: async () => {},
  } satisfies ObjectStore
  vi.mocked(readOnlyQuery).mockReturnValue(QUERY)
  vi.mocked(unchargeSuspect).mockResolvedValue()
  const executor: Extract<Executor, { kind: 'artifact' }> = {
    kind: 'artifact',
    chunkTimeoutMs: TIMEOUT_MS,
    plan: async () => ({ chunks: [] }),
    writeChunk,
    file: () => ({ name: 'f', contentType: 'text/plain' }),
    artifactKey: () => null,
  }
  const held = holdShard(shard, { effect: 'artifact', executor, leaseMs: 600_000, stallMs: 600_000, ...type })
  const { context, noted } = notingContext(store)
  const sender = chunkWriter(context, held, executor)
  const run = { held, noted, pieces, deleted, puts, stored, store, sender, report: null as SendReport | null }
  void Promise.resolve()
    .then(() => sender.send(CALL, { ord: 2, send: 5 }))
    .then((report) => {
      run.report = report
    })
  return run
}
const failed = (failureClass: string, reasonCode: string, message: string, downstreamError: boolean) => ({
  outcome: { state: 'failed', failureClass, reasonCode, message },
  downstreamError,
})
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

describe('a chunk', () => {
  test('is written to an object of its own send, and known by its size and hash', async () => {
    const seen: unknown[] = []
    const run = start(async function* (chunk, { signal, ...about }) {
      seen.push(chunk, about, signal.aborted)
      yield 'zwölf '
      yield Buffer.from('bytes')
    })
    await tick()
    expect(seen).toEqual([
      { key: 'part-2', input: { n: 2 } },
      { tenantId: 7, operationId: formatId('op', OPERATION_ID), query: QUERY },
      false,
    ])
    const text = 'zwölf bytes'
    expect(run.report).toEqual({
      outcome: {
        state: 'applied',
        effectRef: formatChunkRef({
          object: OBJECT,
          sizeBytes: 12,
          sha256: createHash('sha256').update(text).digest('hex'),
        }),
      },
      downstreamError: false,
    })
    expect(run.stored.get(OBJECT)?.toString()).toBe(text)
    expect(run.puts).toEqual([[OBJECT, HELD_OBJECT]])
    // small pieces are gathered, and the rest of them is not forgotten
    expect([run.pieces, run.deleted, run.noted.log]).toEqual([[[12]], [], []])
    expect(chargeSuspect).not.toHaveBeenCalled()
    // no call is held back for the time that a write may take: it hurts nobody
    expect(run.sender.callTimeoutMs).toBe(0)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('reaches the store in pieces of 64 KiB or more', async () => {
    const run = start(async function* () {
      for (const size of [30_000, 35_535, 1, 100_000, 65_536]) yield Buffer.alloc(size)
    })
    await tick()
    expect(run.pieces).toEqual([[65_536, 100_000, 65_536]])
  })

  test('may be empty', async () => {
    const run = start(async function* () {})
    await tick()
    expect([run.report?.outcome.state, run.pieces]).toEqual(['applied', [[]]])
  })

  test('may not have more bytes than a chunk has', async () => {
    // as large as memory allows it to be said, without having it
    const piece = (bytes: number): Uint8Array => {
      const one = Buffer.alloc(65_536)
      Object.defineProperty(one, 'byteLength', { value: bytes })
      return one
    }
    const concat = vi.spyOn(Buffer, 'concat').mockImplementation((list) => list[0] as Buffer<ArrayBuffer>)
    try {
      const run = start(async function* () {
        yield piece(CHUNK_BYTES_MAX)
        yield piece(1)
      })
      await tick()
      expect(run.report).toEqual(
        failed('conflict', 'CHUNK_TOO_LARGE', `a chunk has at most ${CHUNK_BYTES_MAX} bytes`, false),
      )
      const whole = start(async function* () {
        yield piece(CHUNK_BYTES_MAX)
      })
      concat.mockImplementation((list) => list[0] as Buffer<ArrayBuffer>)
      await tick()
      expect(whole.report?.outcome.state).toBe('applied')
    } finally {
      concat.mockRestore()
    }
  })

  test('that comes in time is no stall', async () => {
    const run = start(
      async function* () {
        for (let n = 0; n < 4; n++) {
          await pause(900)
          yield 'x'
        }
      },
      {},
      { stallMs: 1_000 },
    )
    await tick(3_600)
    expect([run.report?.outcome.state, run.held.isStalled]).toEqual(['applied', false])
  })
})

describe('a chunk that cannot be written', () => {
  test('as its handler fails: what it says is shown', async () => {
    const run = start(async function* () {
      yield 'x'
      throw new Error(`no such\u0000 table ${'x'.repeat(600)}`)
    })
    await tick()
    expect(run.report).toEqual(
      failed('transient', 'HANDLER_ERROR', `no such\ufffd table ${'x'.repeat(500 - 15)}`, false),
    )
    expect([run.deleted, run.noted.log]).toEqual([[OBJECT], ['writing a chunk failed']])
  })

  test.each([
    [
      'throws before it begins',
      () => {
        throw new Error('at once')
      },
      'at once',
    ],
    [
      'throws what is no error',
      () => ({ [Symbol.asyncIterator]: () => ({ next: () => Promise.reject('text') }) }),
      'text',
    ],
  ])('as its handler %s', async (_how, writeChunk, message) => {
    const run = start(writeChunk as unknown as Write)
    await tick()
    expect(run.report).toEqual(failed('transient', 'HANDLER_ERROR', message, false))
  })

  test('as the store fails: what that says is nobody’s business', async () => {
    const run = start(async function* () {})
    vi.spyOn(run.store, 'put').mockRejectedValue(new Error('secret-bucket is full'))
    await tick()
    expect(run.report).toEqual(failed('transient', 'STORAGE_ERROR', 'the chunk could not be stored', true))
    expect(run.deleted).toEqual([OBJECT])
  })

  test('and of which the store does not even delete a part is left to the janitor', async () => {
    const run = start(async function* () {})
    vi.spyOn(run.store, 'put').mockRejectedValue('no error')
    vi.spyOn(run.store, 'delete').mockRejectedValue(new Error('away'))
    await tick()
    expect(run.report).toMatchObject({ outcome: { reasonCode: 'STORAGE_ERROR' } })
  })

  test('in time: the handler is told, and its source is closed', async () => {
    let closed = false
    let aborted: AbortSignal | null = null
    const run = start(async function* (_chunk, { signal }) {
      aborted = signal
      try {
        yield 'x'
        await pause(TIMEOUT_MS + 500)
        yield 'y'
        yield 'z'
      } finally {
        closed = true
      }
    })
    await tick(TIMEOUT_MS - 1)
    expect(run.report).toBeNull()
    await tick(1)
    expect(run.report).toEqual(failed('transient', 'TIMEOUT', `it did not end within ${TIMEOUT_MS} ms`, true))
    expect(aborted).toMatchObject({ aborted: true })
    await tick(1_000)
    expect([closed, run.pieces]).toEqual([true, [[]]])
  })

  test('as the lease has run out meanwhile', async () => {
    const run = start(
      async function* () {
        await pause(4_000)
        yield 'x'
      },
      {},
      { leaseMs: 4_000 },
    )
    await tick(4_000)
    expect(run.report).toEqual(failed('transient', 'STORAGE_ERROR', 'the chunk could not be stored', true))
    expect(run.stored.size).toBe(0)
  })
})

describe('while the database or the store is away', () => {
  test('a chunk is written again, from its beginning, every quarter of a second: that is no failure', async () => {
    let tries = 0
    const run = start(async function* () {
      yield 'x'
      if (++tries < 3) throw away()
      yield 'y'
    })
    await tick(249)
    expect(tries).toBe(1)
    await tick(1)
    expect(tries).toBe(2)
    await tick(250)
    expect(run.report?.outcome).toMatchObject({ state: 'applied', effectRef: expect.stringContaining('size=2 ') })
    expect(run.stored.get(OBJECT)?.toString()).toBe('xy')
    expect([run.deleted, run.noted.log.length]).toEqual([[], 2])
  })

  test('until its time is up', async () => {
    const run = start(async function* () {
      yield* []
      throw away()
    })
    await tick(TIMEOUT_MS)
    expect(run.report).toMatchObject({ outcome: { reasonCode: 'TIMEOUT' } })
    await tick(10_000)
    const tries = run.puts.length
    await tick(10_000)
    expect(run.puts.length).toBe(tries)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('or until the run may not go on', async () => {
    const run = start(async function* () {
      yield* []
      throw away()
    })
    await tick(250)
    expect(run.puts).toHaveLength(2)
    run.held.giveBack = true
    await tick(250)
    expect(run.report).toMatchObject({ outcome: { failureClass: 'transient', reasonCode: 'STORAGE_ERROR' } })
  })
})

describe('a chunk that may have killed a worker', () => {
  test('is charged before it is written', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(1)
    const run = start(async function* () {}, { claims: 2 })
    await tick()
    expect(vi.mocked(chargeSuspect).mock.calls[0]?.[2]).toBe(2)
    expect(run.report?.outcome.state).toBe('applied')
  })

  test('is not written once it has killed as many as it has attempts', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(4)
    const run = start(async function* () {}, { claims: 2 })
    await tick()
    expect(run.report).toMatchObject({
      outcome: {
        failureClass: 'bug_suspected',
        reasonCode: 'WORKER_CRASH',
        message: expect.stringContaining('died 3 times'),
      },
      downstreamError: false,
    })
    expect(run.puts).toEqual([])
  })

  test('is not written under a lease that is lost', async () => {
    vi.mocked(chargeSuspect).mockResolvedValue(null)
    const run = start(async function* () {}, { claims: 2 })
    await tick()
    expect(run.report).toEqual(failed('transient', 'LEASE_LOST', 'the lease was lost', false))
  })
})
