/**
 * Sequences of what can happen to operations, against the real services and statements and against a model of them
 * (world.ts, rules-*.ts). After every step the whole database is compared with the model.
 *
 * A failure prints its seed and path, and behind its commands a replayPath. The same sequence again:
 *   MODEL_SEED=<seed> MODEL_PATH=<path> MODEL_COMMANDS=<replayPath> npx vitest run test/model
 * More of them: MODEL_RUNS=5000
 */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { agreement } from './sequences.ts'
import { type Bench, openBench } from './system.ts'
import { printed, type Tally } from './tally.ts'

const RUNS = Number(process.env.MODEL_RUNS ?? 200)
/** Sequences at a time, each in a database of its own: one waits for PostgreSQL while the other thinks. */
const LANES = 2
const PATIENCE_MS = 60_000 + RUNS * 1_500

/**
 * Sequences that have found something once, whatever else a run draws. With another generator a seed is another sequence: what
 * is to stay for ever is written down in words, in a test of its own.
 */
const PAST = [{ seed: 4000, path: '109', found: 'evidence that counts for a later send (planted)' }]

let databases: TestDatabase[] = []
let benches: Bench[] = []

beforeAll(async () => {
  databases = await Promise.all(Array.from({ length: LANES }, createTestDatabase))
  benches = databases.map(({ url }) => openBench(url))
})
afterAll(async () => {
  await Promise.all(benches.map((bench) => bench.close()))
  await Promise.all(databases.map((database) => database.drop()))
})

test(
  `${RUNS} sequences: the database and the model agree after every step`,
  async () => {
    const { MODEL_SEED, MODEL_PATH: path, MODEL_COMMANDS } = process.env
    const seed = Number(MODEL_SEED ?? Date.now() % 1_000_000_000)
    const lanes = path === undefined ? benches : benches.slice(0, 1)
    const tally: Tally = new Map()
    console.log(`the model runs with the seeds ${lanes.map((_, lane) => seed + lane).join(' and ')}`)
    const startedAt = performance.now()
    await Promise.all(
      lanes.map((bench, lane) =>
        fc.assert(agreement(bench, tally, MODEL_COMMANDS), {
          seed: seed + lane,
          numRuns: Math.ceil(RUNS / lanes.length),
          ...(path !== undefined && { path }),
        }),
      ),
    )
    const sequences = tally.get('sequences') ?? 0
    console.log(`${printed(tally)}\n${Math.round((performance.now() - startedAt) / sequences)} ms a sequence`)
    expect(sequences).toBeGreaterThan(0)
  },
  PATIENCE_MS,
)

test.each(PAST)('seed $seed, path $path, which found $found', async ({ seed, path }) => {
  for (const bench of benches.slice(0, 1)) {
    await fc.assert(agreement(bench, new Map()), { seed, path, numRuns: 1 })
  }
})
