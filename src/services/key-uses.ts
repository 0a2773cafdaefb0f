/**
 * When keys were last used, written beside the requests: a use is put into a short list, and the list is written together, in
 * the background, every FLUSH_MS. A key is in it once. What does not fit, or cannot be written, is forgotten: the next use
 * of the key is noted then.
 */
import { type ApiKeyId, noteKeysUsed } from '../storage/api-keys.ts'
import type { ServiceContext } from './context.ts'

const FLUSH_MS = 2_000
/** Keys that wait to be written. */
const WAITING_MAX = 1_000

export interface KeyUses {
  /** Costs the request nothing. */
  note(key: ApiKeyId): void
  /** Writes what waits. */
  close(): Promise<void>
}

export const openKeyUses = (
  { database }: Pick<ServiceContext, 'database'>,
  { flushMs = FLUSH_MS, waitingMax = WAITING_MAX } = {},
): KeyUses => {
  let waiting = new Map<string, ApiKeyId>()
  let timer: NodeJS.Timeout | null = null
  let writing: Promise<void> | null = null

  const flush = (): void => {
    timer = null
    // a database that is slow to answer gets one such statement at a time
    if (writing !== null) {
      schedule()
      return
    }
    const keys = [...waiting.values()]
    waiting = new Map()
    if (keys.length === 0) return
    writing = database
      .query((connection) => noteKeysUsed(connection, keys))
      .catch(() => {})
      .finally(() => {
        writing = null
      })
  }

  const schedule = (): void => {
    timer ??= setTimeout(flush, flushMs).unref()
  }

  return {
    note(key) {
      if (waiting.size >= waitingMax) return
      waiting.set(key.id, key)
      schedule()
    },
    async close() {
      if (timer !== null) clearTimeout(timer)
      await writing
      flush()
      await writing
    },
  }
}
