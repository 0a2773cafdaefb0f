/**
 * Sequences of what can happen to operations, against the real services and statements and against a model of them
 * (world.ts, rules-*.ts). After every command the whole database is compared with the model.
 *
 * Again with the seed and path that a failure prints: MODEL_SEED=… MODEL_PATH=… ; longer: MODEL_RUNS=5000.
 */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import type { Command } from './command.ts'
import {
  ask,
  doubts,
  lookup,
  preflight,
  replay,
  resolveBy,
  settleSweep,
  submit,
  timePasses,
} from './commands-requests.ts'
import { expire, heartbeat, kill, type Turn, work } from './commands-work.ts'
import { BEHAVIOURS, LOOKUPS, openProvider } from './provider.ts'
import { type Bench, openBench } from './system.ts'
import { count, printed, type Tally } from './tally.ts'
import { makeTypes, type Script } from './types.ts'
import { FLAVOURS, type World } from './world.ts'

const RUNS = Number(process.env.MODEL_RUNS ?? 240)
const LANES = 2
const COMMANDS_MAX = 60
const SLOTS = 2
const PATIENCE_MS = 60_000 + RUNS * 1_000

/** Seed and path of sequences that were counterexamples once. */
const PAST: { seed: number; path: string }[] = []

const anything = fc.nat(1_000)
const slot = fc.nat(SLOTS - 1)
const turn: fc.Arbitrary<Turn> = fc.record({
  choice: anything,
  room: fc.integer({ min: 1, max: 2 }),
  behaviour: fc.constantFrom(...BEHAVIOURS, 'does it', 'does it', 'is busy'),
})
const worked = fc.tuple(slot, fc.array(turn, { minLength: 1, maxLength: 6, size: 'max' }))
const submitted = fc.tuple(
  fc.constantFrom(...FLAVOURS),
  fc.array(fc.nat(4), { minLength: 3, maxLength: 6, size: 'max' }),
)

const commands = (): fc.Arbitrary<Iterable<Command>> =>
  fc.commands(
    [
      ...Array.from({ length: 14 }, () => worked.map((args) => work(...args))),
      submitted.map((args) => submit(...args)),
      slot.map(kill),
      slot.map(heartbeat),
      anything.map(expire),
      anything.map(expire),
      fc
        .tuple(fc.constantFrom('cancel', 'pause', 'resume', 'resume'), anything)
        .map(([what, choice]) => ask(what, choice)),
      fc.tuple(anything, fc.boolean()).map((args) => preflight(...args)),
      fc.tuple(fc.nat(2), fc.boolean()).map((args) => replay(...args)),
      fc.tuple(anything, fc.constantFrom(...LOOKUPS, 'truth')).map((args) => lookup(...args)),
      fc
        .tuple(anything, fc.constantFrom('applied', 'not_applied'), fc.boolean())
        .map(([choice, resolution, retry]) => resolveBy(choice, { resolution, retry })),
      fc.constant(null).map(doubts),
      fc.constant(null).map(settleSweep),
      fc.constant(null).map(timePasses),
    ],
    { maxCommands: COMMANDS_MAX, size: 'max', replayPath: process.env.MODEL_COMMANDS ?? '' },
  )

let databases: TestDatabase[] = []
let benches: Bench[] = []
let sequences = 0
const tally: Tally = new Map()

beforeAll(async () => {
  databases = await Promise.all(Array.from({ length: LANES }, createTestDatabase))
  benches = databases.map(({ url }) => openBench(url))
})
afterAll(async () => {
  await Promise.all(benches.map((bench) => bench.close()))
  await Promise.all(databases.map((database) => database.drop()))
})

const property = (bench: Bench) =>
  fc.asyncProperty(submitted, commands(), async (first, rest) => {
    const sequence = [submit(...first), ...rest]
    const name = `s${sequences++}`
    const provider = openProvider()
    const script: Script = { lookup: 'unknown' }
    const types = [...makeTypes(name, provider, script).values()]
    const real = await bench.begin(types, script)
    const model: World = {
      name,
      operations: [],
      effects: new Map(),
      deadLetters: [],
      preflights: [],
      runs: Array.from({ length: SLOTS }, () => null),
      provider,
    }
    await fc.asyncModelRun(() => ({ model, real }), sequence)
    count(
      tally,
      model,
      [...sequence].map(String).filter((told) => told !== 'not run'),
    )
  })

test(
  `${RUNS} sequences: the database and the model agree after every command`,
  async () => {
    const seed = Number(process.env.MODEL_SEED ?? Date.now() % 1_000_000_000)
    const path = process.env.MODEL_PATH
    const lanes = path === undefined ? benches : benches.slice(0, 1)
    console.log(`the model runs with the seeds ${lanes.map((_, lane) => seed + lane).join(' and ')}`)
    const startedAt = performance.now()
    await Promise.all(
      lanes.map((bench, lane) =>
        fc.assert(property(bench), {
          seed: seed + lane,
          numRuns: Math.ceil(RUNS / lanes.length),
          ...(path !== undefined && { path }),
        }),
      ),
    )
    const tookMs = performance.now() - startedAt
    console.log(`${printed(tally)}\n${(tookMs / sequences).toFixed(1)} ms a sequence`)
    expect(sequences).toBeGreaterThan(0)
  },
  PATIENCE_MS,
)

test.each(PAST)('the counterexample of seed $seed and path $path holds now', async ({ seed, path }) => {
  const [bench] = benches
  if (bench) await fc.assert(property(bench), { seed, path, numRuns: 1 })
})
