import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { runStorm } from '../support/storm.ts'

/** Two storms at once, each in a database of its own: a round mostly waits. */
const ROUNDS_EACH = 125
const PATIENCE_MS = 420_000

let databases: TestDatabase[] = []

beforeAll(async () => {
  databases = await Promise.all([createTestDatabase(), createTestDatabase()])
})
afterAll(async () => {
  await Promise.all(databases.map((database) => database.drop()))
})

test(
  `case 47: ${2 * ROUNDS_EACH} rounds of storm: counters are the ledger, each item is in one place, no deadlock`,
  async () => {
    const seed = Date.now() % 1_000_000
    console.log(`storms with the seeds ${seed} and ${seed + 1}`)
    const storms = await Promise.all(databases.map(({ url }, index) => runStorm(url, ROUNDS_EACH, seed + index)))
    console.log(storms)
    for (const storm of storms) {
      expect(storm).toMatchObject({ rounds: ROUNDS_EACH, deadlocks: 0 })
      // a storm in which something never happens proves less than it says
      for (const [name, count] of Object.entries(storm))
        if (name !== 'deadlocks') expect(count, name).toBeGreaterThan(0)
    }
  },
  PATIENCE_MS,
)
