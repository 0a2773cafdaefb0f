import { AppError } from '../domain/errors.ts'
import { MAX_STREAMS, MAX_WAITERS } from './limits.ts'

type Kind = 'poll' | 'stream'

/**
 * Long polls and event streams: bounded in number, ended when their client goes and when the server closes, so that a
 * shutdown never waits for them. Streams hold their places for long, so they can have a part of them only: what is polled
 * is always answered.
 */
export class Waiters {
  readonly #active = new Map<AbortController, Kind>()
  #streams = 0
  #ended = false

  get isFull(): boolean {
    return this.#active.size >= MAX_WAITERS
  }

  /** A place that must be given back with `leave`. */
  enter(kind: Kind): AbortController {
    if (this.isFull) throw new AppError('overloaded', `${MAX_WAITERS} clients are waiting already`)
    if (kind === 'stream' && this.#streams >= MAX_STREAMS) {
      throw new AppError('overloaded', `${MAX_STREAMS} event streams are open already: poll, or try again shortly`)
    }
    const controller = new AbortController()
    this.#active.set(controller, kind)
    if (kind === 'stream') this.#streams++
    // what still arrives on open connections while the server closes is answered, and waits for nothing
    if (this.#ended) controller.abort()
    return controller
  }

  /** May be called again. */
  leave(controller: AbortController): void {
    if (this.#active.get(controller) === 'stream') this.#streams--
    this.#active.delete(controller)
    controller.abort()
  }

  endAll(): void {
    this.#ended = true
    for (const controller of this.#active.keys()) controller.abort()
  }
}
