/** The protocol that test/interleavings searches is the one that the statements keep: the same steps, the same rows. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/storage/database.ts'
import { describeAction } from '../interleavings/actions.ts'
import { coverOf } from '../interleavings/cover.ts'
import { act } from '../interleavings/protocol.ts'
import { rowsOf, startReplay } from '../interleavings/replay.ts'
import { initialState } from '../interleavings/state.ts'
import { ANSWERS, DEATHS, FAULTS, ONE_KEY, PAUSED, RESENT } from '../interleavings/worlds.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { wipe } from '../support/races.ts'
import { findViolations } from '../support/storm-audit.ts'

const REPLAY_MS = 300_000
/** Of each world: a world whose items share a key has a thousand, and each costs a database that is wiped. */
const PATHS_MAX = 60

let testDatabase: TestDatabase
let database: Database

beforeAll(async () => {
  testDatabase = await createTestDatabase()
  database = openDatabase({ url: testDatabase.url, size: 2, name: 'interleavings' })
})
afterAll(async () => {
  await database.close()
  await testDatabase.drop()
})
beforeEach(() => wipe(database))

test.each([ANSWERS, ONE_KEY, DEATHS, FAULTS, PAUSED, RESENT])('$name', { timeout: REPLAY_MS }, async (world) => {
  const { paths, covered, classes } = coverOf(world, PATHS_MAX)
  expect(paths.length).toBeGreaterThan(10)
  let steps = 0
  for (const path of paths) {
    await wipe(database)
    const replay = await startReplay(database, world)
    let state = initialState()
    const told: string[] = []
    for (const action of path) {
      const after = act(state, world, action)
      told.push(describeAction(action))
      const where = `${world.name}:\n  ${told.join('\n  ')}`
      await replay.perform(state, action, after).catch((error: unknown) => {
        throw new Error(where, { cause: error })
      })
      expect(await replay.read(), where).toEqual(rowsOf(after))
      state = after
      steps++
    }
    expect(await findViolations(database), told.join('\n  ')).toEqual([])
  }
  console.log(`${world.name}: ${covered} of ${classes} kinds of steps in ${paths.length} paths, ${steps} steps`)
})
