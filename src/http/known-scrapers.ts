import type { Services } from './deps.ts'
import { KNOWN_SCRAPER_MS, MAX_KNOWN_SCRAPERS } from './limits.ts'

type Caller = NonNullable<Awaited<ReturnType<Services['authenticate']>>>

/**
 * Keys that have read the metrics a moment ago. The database knows the keys; while it is away, a scrape must still show the
 * process, and this is how its caller is known. So a key that was revoked just then reads on for KNOWN_SCRAPER_MS.
 */
export class KnownScrapers {
  readonly #known = new Map<string, { caller: Caller; untilMs: number }>()

  remember(caller: Caller): void {
    if (this.#known.size >= MAX_KNOWN_SCRAPERS && !this.#known.has(caller.keyHash)) this.#known.clear()
    this.#known.set(caller.keyHash, { caller, untilMs: performance.now() + KNOWN_SCRAPER_MS })
  }

  find(keyHash: string): Caller | null {
    const known = this.#known.get(keyHash)
    return known !== undefined && performance.now() < known.untilMs ? known.caller : null
  }
}
