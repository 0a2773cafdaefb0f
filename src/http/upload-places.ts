import { AppError } from '../domain/errors.ts'
import { MAX_TENANT_UPLOADS, MAX_UPLOADS } from './limits.ts'

/** The uploads that are under way in this process. One tenant holds half of the places at most. */
export class UploadPlaces {
  /** By tenant; who has none is not in it. */
  readonly #taken = new Map<number, number>()

  /** Answers with what gives the place back, once. @throws AppError `overloaded` */
  take(tenantId: number): () => void {
    const own = this.#taken.get(tenantId) ?? 0
    if (own >= MAX_TENANT_UPLOADS) throw full(`${MAX_TENANT_UPLOADS} uploads of this tenant`)
    if (this.#all() >= MAX_UPLOADS) throw full(`${MAX_UPLOADS} uploads`)
    this.#taken.set(tenantId, own + 1)
    return () => {
      const left = (this.#taken.get(tenantId) ?? 0) - 1
      if (left > 0) this.#taken.set(tenantId, left)
      else this.#taken.delete(tenantId)
    }
  }

  #all(): number {
    let all = 0
    for (const taken of this.#taken.values()) all += taken
    return all
  }
}

const full = (what: string): AppError => new AppError('overloaded', `${what} are under way here; try again shortly`)
