/** What a sequence may be made of, and the property that holds for each. */
import fc from 'fast-check'
import type { Command } from './command.ts'
import {
  ask,
  doubts,
  lookup,
  preflight,
  replay,
  replayAnew,
  resolveBy,
  settleSweep,
  submit,
  timePasses,
} from './commands-requests.ts'
import { expire, freeze, heartbeat, kill, type Turn, thaw, work } from './commands-work.ts'
import { BEHAVIOURS, LOOKUPS, openProvider } from './provider.ts'
import type { Bench } from './system.ts'
import { count, type Tally } from './tally.ts'
import { makeTypes, type Script } from './types.ts'
import { FLAVOURS, type World } from './world.ts'

const COMMANDS_MAX = 60
const TURNS_MAX = 6
/** Shards in the hands of workers at a time. */
const SLOTS = 2
/** Few: items want each other's effect keys. */
const TARGETS = 5

const anything = fc.nat(1_000)
const slot = fc.nat(SLOTS - 1)
const behaviour = fc.constantFrom(...BEHAVIOURS, 'does it', 'does it', 'is busy')
const turn: fc.Arbitrary<Turn> = fc.record({
  choice: anything,
  room: fc.integer({ min: 1, max: 2 }),
  behaviour,
})
const submitted = fc.tuple(
  fc.constantFrom(...FLAVOURS),
  fc.array(fc.nat(TARGETS - 1), { minLength: 3, maxLength: 6, size: 'max' }),
)
const verdict = fc.record({
  resolution: fc.constantFrom('applied' as const, 'not_applied' as const, 'not_applied' as const),
  retry: fc.constantFrom(true, true, false),
})

/** What happens often stands here often. */
const often = (times: number, commands: fc.Arbitrary<Command>): fc.Arbitrary<Command>[] =>
  Array.from({ length: times }, () => commands)

const commands = (replayPath: string | undefined): fc.Arbitrary<Iterable<Command>> =>
  fc.commands(
    [
      ...often(
        16,
        fc
          .tuple(slot, fc.array(turn, { minLength: 1, maxLength: TURNS_MAX, size: 'max' }))
          .map((args) => work(...args)),
      ),
      ...often(
        1,
        submitted.map((args) => submit(...args)),
      ),
      ...often(1, slot.map(kill)),
      ...often(1, slot.map(heartbeat)),
      ...often(
        3,
        fc.tuple(slot, behaviour).map((args) => freeze(...args)),
      ),
      ...often(
        3,
        fc.tuple(anything, fc.array(turn, { minLength: 1, maxLength: 3, size: 'max' })).map((args) => thaw(...args)),
      ),
      ...often(2, anything.map(expire)),
      ...often(
        2,
        fc
          .tuple(fc.constantFrom('cancel', 'pause', 'resume', 'resume'), anything)
          .map(([what, choice]) => ask(what, choice)),
      ),
      ...often(
        1,
        fc.tuple(anything, fc.boolean()).map((args) => preflight(...args)),
      ),
      ...often(
        1,
        fc.tuple(fc.nat(2), fc.boolean()).map((args) => replay(...args)),
      ),
      ...often(
        2,
        fc.tuple(anything, fc.boolean(), fc.boolean()).map((args) => replayAnew(...args)),
      ),
      ...often(
        3,
        fc.tuple(anything, fc.constantFrom(...LOOKUPS, 'truth', 'truth')).map((args) => lookup(...args)),
      ),
      ...often(
        3,
        fc.tuple(anything, verdict).map((args) => resolveBy(...args)),
      ),
      ...often(1, fc.constant(null).map(doubts)),
      ...often(1, fc.constant(null).map(settleSweep)),
      ...often(2, fc.constant(null).map(timePasses)),
    ],
    { maxCommands: COMMANDS_MAX, size: 'max', ...(replayPath !== undefined && { replayPath }) },
  )

let sequences = 0

/** `replayPath` is what fast-check prints behind the commands of a counterexample. */
export const agreement = (bench: Bench, tally: Tally, replayPath?: string) =>
  fc.asyncProperty(submitted, commands(replayPath), async (first, rest) => {
    const name = `s${sequences++}`
    const provider = openProvider()
    const script: Script = { lookup: 'unknown' }
    const real = await bench.begin([...makeTypes(name, provider, script).values()], script)
    const model: World = {
      name,
      operations: [],
      effects: new Map(),
      deadLetters: [],
      preflights: [],
      runs: Array.from({ length: SLOTS }, () => null),
      frozen: [],
      provider,
    }
    const begin = submit(...first)
    await begin.run(model, real)
    await fc.asyncModelRun(() => ({ model, real }), rest)
    count(tally, model, [...rest].map(String))
  })
