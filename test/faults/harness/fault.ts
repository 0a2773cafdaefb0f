/**
 * A test of the suite: one fault, tried so many times. Every try has a seed of its own, which is printed when it fails, and is
 * counted for the table in README.md: `runs` tries, of which `failures` broke a promise. With 0 failures in n runs the rate
 * is below 3/n (95 %, "rule of three").
 */
import fs from 'node:fs'
import { type TestContext, test } from 'vitest'
import { type Random, seededRandom } from '../../support/random.ts'

export type FaultName = `F${number}`

/** How much of the suite runs: `short` in CI, `long` before a release. */
export const isLong = process.env.FAULT_FORM === 'long'

/** What a test file says of its fault: a line of the results file, summed up by ../record.ts. */
export interface FaultResult {
  fault: FaultName
  says: string
  runs: number
  failures: number
  seed: number
  skipped: string | null
}

export interface Fault {
  seed: number
  /** Tries of this form. */
  runs: number
  random: Random
  /** Tries one after the other; all are made, unless too many fail. */
  each(attempt: (run: { index: number; seed: number; random: Random }) => Promise<void>): Promise<void>
  /** For tries that are made side by side, or within one another. */
  count(runs: number): void
  /** A promise was broken in one of the tries counted. */
  fail(error: unknown, seed?: number): void
  /** Ends the test as skipped, with the reason. Never returns. */
  skip(reason: string): never
}

export interface FaultOptions {
  /** Null: the short form leaves it out. */
  short: number | null
  long: number
  /** For all tries of one form. */
  timeoutMs?: { short?: number; long: number }
}

const FAILURES_MAX = 5
const SHORT_MS = 240_000
const LONG_MS = 3_600_000
const SEEDS = 1_000_000

const readSeed = (): number => {
  const given = process.env.FAULT_SEED
  return given === undefined ? Date.now() % SEEDS : Number(given)
}

const tell = (result: FaultResult): void => {
  const file = process.env.FAULT_RESULTS
  if (file !== undefined) fs.appendFileSync(file, `${JSON.stringify(result)}\n`)
}

/** `says` is the promise, as one reads it in the table. */
export const faultTest = (
  fault: FaultName,
  says: string,
  options: FaultOptions,
  body: (fault: Fault) => Promise<void>,
): void => {
  const runs = isLong ? options.long : options.short
  if (runs === null) {
    test.skip(`${fault}: ${says} (in the long form)`)
    return
  }
  const timeout = (isLong ? options.timeoutMs?.long : options.timeoutMs?.short) ?? (isLong ? LONG_MS : SHORT_MS)
  test(`${fault}: ${says}`, { timeout }, async (context: TestContext) => {
    const seed = readSeed()
    const failed: unknown[] = []
    let counted = 0
    let skipped: string | null = null
    const fail = (error: unknown, at = seed): void => {
      failed.push(error)
      console.error(`${fault}, seed ${at}:`, error) // with its causes
    }
    const self: Fault = {
      seed,
      runs,
      random: seededRandom(seed),
      async each(attempt) {
        for (let index = 0; index < runs && failed.length < FAILURES_MAX; index++) {
          const own = seed + index
          counted++
          await attempt({ index, seed: own, random: seededRandom(own) }).catch((error: unknown) => fail(error, own))
        }
      },
      count(more) {
        counted += more
      },
      fail,
      skip(reason) {
        skipped = reason
        return context.skip(reason)
      },
    }
    try {
      await body(self)
    } catch (error) {
      if (skipped === null) fail(error)
      else throw error
    } finally {
      tell({ fault, says, runs: counted, failures: Math.min(failed.length, Math.max(counted, 1)), seed, skipped })
    }
    if (failed.length === 1) throw failed[0]
    if (failed.length > 1) throw new AggregateError(failed, `${failed.length} of ${counted} tries failed`)
    if (counted === 0) throw new Error('nothing was tried')
  })
}
