import { AppError } from '../domain/errors.ts'
import { MAX_WAITERS } from './limits.ts'

/**
 * Long polls and event streams: bounded in number, ended when their client goes and when the server closes, so that a
 * shutdown never waits for them.
 */
export class Waiters {
  readonly #active = new Set<AbortController>()

  get isFull(): boolean {
    return this.#active.size >= MAX_WAITERS
  }

  /** A place that must be given back with `leave`. */
  enter(): AbortController {
    if (this.isFull) throw new AppError('overloaded', `${MAX_WAITERS} clients are waiting already`)
    const controller = new AbortController()
    this.#active.add(controller)
    return controller
  }

  leave(controller: AbortController): void {
    this.#active.delete(controller)
    controller.abort()
  }

  endAll(): void {
    for (const controller of this.#active) controller.abort()
  }
}
