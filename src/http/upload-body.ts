import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { AppError } from '../domain/errors.ts'
import { DISCARD_MS, MAX_UPLOAD_BYTES, UPLOAD_BYTES_PER_SECOND_MIN, UPLOAD_PATIENCE_MS } from './limits.ts'

/** A body that is read as a stream: no more of it is in memory than the chunk at hand. */
export interface UploadBody {
  bytes: AsyncGenerator<Buffer>
  /** Reads what is left. SHA-256 of the whole body, and of `readAs`, as base64url. */
  hash(): Promise<string>
}

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf])

/** `readAs`: the same bytes, read in another way, are another upload. */
export const openUploadBody = (source: Readable, readAs: string, maxBytes = MAX_UPLOAD_BYTES): UploadBody => {
  const hash = createHash('sha256').update(`${readAs}\n`)
  const bytes = withoutMark(checked(source, maxBytes, (chunk) => hash.update(chunk)))
  return {
    bytes,
    async hash() {
      for (;;) if ((await bytes.next()).done) break
      return hash.digest('base64url')
    },
  }
}

async function* checked(
  source: Readable,
  maxBytes: number,
  look: (chunk: Buffer) => void,
): AsyncGenerator<Buffer, void, void> {
  let size = 0
  let waitedMs = 0
  let isWaiting = false
  // Left half-read, the stream must live on: destroying it would cut the connection that the refusal goes out on.
  const chunks = source.iterator({ destroyOnReturn: false })
  try {
    for (;;) {
      const askedAt = performance.now()
      isWaiting = true
      const { done, value } = await inTime(nextChunk(chunks), patienceMs(size) - waitedMs)
      isWaiting = false
      if (done) return
      waitedMs += performance.now() - askedAt
      size += value.length
      if (size > maxBytes) throw tooLarge(maxBytes)
      look(value)
      yield value
    }
  } finally {
    const ended = chunks.return?.()
    // while a chunk is asked for, it would wait for that one
    if (isWaiting) ended?.catch(() => {})
    else await ended
  }
}

/** For how long a client may have kept us waiting that has sent so much. What we take to store it is our own time. */
const patienceMs = (size: number): number => UPLOAD_PATIENCE_MS + (size / UPLOAD_BYTES_PER_SECOND_MIN) * 1_000

/** A few that send a byte now and then would otherwise hold all places for uploads. */
const inTime = async <T>(chunk: Promise<T>, ms: number): Promise<T> => {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const least = `${UPLOAD_BYTES_PER_SECOND_MIN} bytes a second`
    const slow = () => new AppError('request-timeout', `The upload brings less than ${least}; nothing was added`)
    timer = setTimeout(() => reject(slow()), Math.max(0, ms))
  })
  // whichever comes second is nobody's any more
  chunk.catch(() => {})
  try {
    return await Promise.race([chunk, late])
  } finally {
    clearTimeout(timer)
  }
}

const nextChunk = async (chunks: AsyncIterator<Buffer>): Promise<IteratorResult<Buffer>> => {
  try {
    return await chunks.next()
  } catch (cause) {
    throw new AppError('malformed-request', 'The body ended before it was complete; nothing was added', { cause })
  }
}

async function* withoutMark(chunks: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  let head: Buffer | null = Buffer.alloc(0)
  for await (const chunk of chunks) {
    if (head === null) {
      yield chunk
      continue
    }
    head = Buffer.concat([head, chunk])
    if (head.length < BYTE_ORDER_MARK.length) continue
    yield head.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK)
      ? head.subarray(BYTE_ORDER_MARK.length)
      : head
    head = null
  }
  if (head !== null && head.length > 0) yield head
}

/**
 * After a refusal: what the client still sends is thrown away, so that it reads our answer and its connection can be used
 * again. Node does so by itself only for bodies that nobody began to read. A client that does not stop is cut off.
 */
export const discardRest = (source: Readable): void => {
  if (source.readableEnded || source.destroyed) return
  const cutOff = setTimeout(() => source.destroy(), DISCARD_MS)
  for (const event of ['end', 'close']) source.once(event, () => clearTimeout(cutOff))
  source.resume()
}

export const tooLarge = (maxBytes: number): AppError =>
  new AppError('body-too-large', `The body exceeds ${maxBytes} bytes: send the items in several uploads`)
