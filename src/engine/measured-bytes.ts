import { createHash } from 'node:crypto'

/** Bytes on their way into the object store: counted and hashed as they pass. */
export class MeasuredBytes {
  private readonly hash = createHash('sha256')
  sizeBytes = 0

  add(bytes: Uint8Array): void {
    this.sizeBytes += bytes.byteLength
    this.hash.update(bytes)
  }

  /** Hex; the end of it: nothing can be added any more. */
  digest(): string {
    return this.hash.digest('hex')
  }
}

/** Nothing moved for so long. */
export class TimeIsUp extends Error {
  override readonly name = 'TimeIsUp'
}

/**
 * Runs work that has to end within `ms`, or to touch the clock again before; `signal` tells it when that is over. What it
 * does later is nobody's any more.
 */
export const withDeadline = <T>(
  ms: number,
  work: (clock: { signal: AbortSignal; touch(): void }) => Promise<T>,
): Promise<T> =>
  new Promise((resolve, reject) => {
    const controller = new AbortController()
    const timer = setTimeout(() => {
      const late = new TimeIsUp(`it did not end within ${ms} ms`)
      reject(late)
      controller.abort(late)
    }, ms)
    work({ signal: controller.signal, touch: () => void timer.refresh() })
      .finally(() => clearTimeout(timer))
      .then(resolve, reject)
  })
