import { setTimeout as sleep } from 'node:timers/promises'
import { CHUNK_BYTES_MAX, chunkObject, formatChunkRef } from '../domain/artifact.ts'
import { sanitiseText } from '../domain/failure.ts'
import type { EffectCall, Executor, SendOutcome, SendReport } from '../domain/operation-type.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import { readOnlyQuery } from '../storage/read-only-query.ts'
import type { Sender } from './calls.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'
import { MeasuredBytes, TimeIsUp, withDeadline } from './measured-bytes.ts'
import { runSuspected, workerCrash } from './suspects.ts'

const MESSAGE_MAX = 500
/** A handler may give out line by line; the store is written in larger pieces. */
const PIECE_BYTES = 64 * 1024
/** Between tries while the database or the store is away: that is no failure of the chunk. */
const AWAY_WAIT_MS = 250

class ChunkTooLarge extends Error {
  override readonly name = 'ChunkTooLarge'
}

/** What the type's own handler threw: its message may be shown, that of a store may not. */
class HandlerFailed extends Error {
  override readonly name = 'HandlerFailed'
}

interface ChunkWriter extends Sender {
  /** Nothing leaves for the outside world: a chunk that is begun after a stop is one that nobody asks for. */
  send(call: EffectCall, claimed: { ord: number; send: number }): Promise<SendReport>
}

/**
 * Writes chunks to temporary objects. Nothing here is ever uncertain: an object that was not reported as written is not
 * named by anything, and is written again under another name.
 */
export const chunkWriter = (
  context: RunContext,
  held: HeldShard,
  executor: Extract<Executor, { kind: 'artifact' }>,
): ChunkWriter => {
  const { objects, database, log } = context
  const { lease, type } = held
  const query = readOnlyQuery(database)

  const source = (call: EffectCall, signal: AbortSignal): AsyncIterable<Uint8Array | string> =>
    executor.writeChunk(
      { key: call.itemKey, input: call.input },
      { tenantId: lease.tenantId, operationId: call.operationId, query, signal },
    )

  async function* pieces(call: EffectCall, measured: MeasuredBytes, signal: AbortSignal) {
    const iterator = await ofHandler(async () => source(call, signal)[Symbol.asyncIterator]())
    let gathered: Uint8Array[] = []
    let gatheredBytes = 0
    const take = (): Uint8Array => {
      const bytes = Buffer.concat(gathered)
      gathered = []
      gatheredBytes = 0
      measured.add(bytes)
      if (measured.sizeBytes > CHUNK_BYTES_MAX) throw new ChunkTooLarge()
      return bytes
    }
    try {
      for (;;) {
        const next = await ofHandler(() => iterator.next())
        signal.throwIfAborted()
        if (held.isOver) throw new Error('the lease ran out')
        held.step()
        if (next.done) break
        const bytes = typeof next.value === 'string' ? Buffer.from(next.value) : next.value
        gathered.push(bytes)
        gatheredBytes += bytes.byteLength
        if (gatheredBytes >= PIECE_BYTES) yield take()
      }
      if (gatheredBytes > 0) yield take()
    } finally {
      await iterator.return?.().catch(() => {})
    }
  }

  const write = (call: EffectCall, object: string): Promise<SendReport> =>
    withDeadline(executor.chunkTimeoutMs, async ({ signal }) => {
      for (;;) {
        const measured = new MeasuredBytes()
        try {
          const bytes = pieces(call, measured, signal)
          await objects.put(object, bytes, { contentType: 'application/octet-stream', sizeBytes: null })
          const { sizeBytes } = measured
          return applied(formatChunkRef({ object, sizeBytes, sha256: measured.digest() }))
        } catch (error) {
          if (!abortsBatch(error) || signal.aborted || !held.mayGoOn) throw error
          log.warn(
            { err: error, operation_id: lease.operationId },
            'a chunk is written again once what it needs is back',
          )
          await sleep(AWAY_WAIT_MS)
        }
      }
    })

  return {
    // a write that outlives its lease hurts nobody: it is not held back for the time that it may take
    callTimeoutMs: 0,
    send: async (call, { ord, send }) => {
      const object = chunkObject(lease, ord, send)
      try {
        const written = await runSuspected(context, held, ord, () => write(call, object))
        if (written === 'used-up') return failed(workerCrash(type.retry.maxAttempts))
        return written === 'lost' ? failed(transient('LEASE_LOST', 'the lease was lost')) : written
      } catch (error) {
        log.warn({ err: error, operation_id: lease.operationId, item_key: call.itemKey }, 'writing a chunk failed')
        objects.delete(object).catch(() => {}) // the janitor removes what this could not
        return failure(error)
      }
    },
  }
}

const ofHandler = async <T>(work: () => Promise<T>): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    if (abortsBatch(error)) throw error
    throw new HandlerFailed(error instanceof Error ? error.message : String(error), { cause: error })
  }
}

const applied = (effectRef: string): SendReport => ({
  outcome: { state: 'applied', effectRef },
  downstreamError: false,
})

const failed = (outcome: SendOutcome): SendReport => ({ outcome, downstreamError: false })

const transient = (reasonCode: string, message: string): SendOutcome => ({
  state: 'failed',
  failureClass: 'transient',
  reasonCode,
  message,
})

const failure = (error: unknown): SendReport => {
  // flydrive wraps what its sources throw
  for (let e = error; e instanceof Error; e = e.cause) {
    if (e instanceof ChunkTooLarge) {
      const message = `a chunk has at most ${CHUNK_BYTES_MAX} bytes`
      return failed({ state: 'failed', failureClass: 'conflict', reasonCode: 'CHUNK_TOO_LARGE', message })
    }
    if (e instanceof HandlerFailed) return failed(transient('HANDLER_ERROR', sanitiseText(e.message, MESSAGE_MAX)))
    if (e instanceof TimeIsUp) return { outcome: transient('TIMEOUT', e.message), downstreamError: true }
  }
  return { outcome: transient('STORAGE_ERROR', 'the chunk could not be stored'), downstreamError: true }
}
