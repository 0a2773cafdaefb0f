/** What people and the maintenance ask for. */
import { isSettled } from '../../src/domain/operation.ts'
import { agree, type Command, command, named, pick } from './command.ts'
import type { LookupAnswer } from './provider.ts'
import {
  canBeLookedUp,
  closeExplainedDoubts,
  lookUp,
  type OpenDoubt,
  openCases,
  resolve,
  type Verdict,
} from './rules-reconcile.ts'
import * as rules from './rules-requests.ts'
import { sweep } from './rules-settle.ts'
import * as real from './system.ts'
import { type Flavour, type Operation, type Preflight, stepsOf, type World } from './world.ts'

const OPERATIONS_MAX = 4
const SUBMITTED_MAX = 3

const hasOperation = (world: World): boolean => world.operations.length > 0

/** Targets are few, so that items want each other's effect keys. */
export const submit = (flavour: Flavour, targets: readonly number[]): Command =>
  command({
    written: ['submit', flavour, targets],
    check: (world) => world.operations.length < SUBMITTED_MAX,
    async run(world, system) {
      const items = targets.map((target, ord) => ({ key: `i${ord}`, target: `${world.name}:${flavour}:${target}` }))
      const type = `${flavour}-${world.name}`
      const id = await real.submit(system, type, items)
      rules.accept(
        world,
        { id, flavour, type, replayOf: null },
        items.map(({ key, target }) => ({ key, effectKey: target })),
      )
      return `${named(world, id)} is submitted: ${flavour}, ${stepsOf(flavour).length} steps, targets ${targets.join(' ')}`
    },
  })

const ASKED = { cancel: rules.cancel, pause: rules.pause, resume: rules.resume }
const STATUS = { stored: [200, 202], receipt: [200, 202], refused: [] }

export const ask = (what: 'cancel' | 'pause' | 'resume', choice: number): Command =>
  command({
    written: ['ask', what, choice],
    check: hasOperation,
    async run(world, system) {
      const operation = pick(world.operations, choice) as Operation
      const expected = ASKED[what](world, operation)
      const answer = await real.askFor(system, what, operation.id)
      agree(`${what} of ${operation.id}`, typeof answer === 'number', STATUS[expected].length > 0)
      return `${what} ${named(world, operation.id)}: ${answer}`
    },
  })

const takePreflight = async (
  world: World,
  system: real.System,
  operation: Operation,
  wide: boolean,
): Promise<string> => {
  const view = await real.askPreflight(system, operation.id, wide)
  agree('a preflight is blocked by', view.blockedBy, rules.blockedBy(world, operation, wide))
  rules.recordPreflight(world, operation, wide, view.id)
  const what = view.blockedBy.join(', ') || 'allowed'
  return `preflight of ${named(world, operation.id)}${wide ? ', wide' : ''}: ${what}`
}

const useForReplay = async (
  world: World,
  system: real.System,
  recorded: Preflight,
  forced: boolean,
): Promise<string> => {
  const force = forced ? ['bug-suspected'] : []
  const expected = rules.replayAnswer(world, recorded, force)
  const made = await real.askReplay(system, recorded, force)
  const answer = typeof made === 'string' ? made : made.replayed ? `again ${made.id}` : 'made'
  agree('a replay', answer, expected)
  if (typeof made !== 'string' && !made.replayed) rules.replay(world, recorded, made.id)
  const what = typeof made === 'string' ? made : `${made.replayed ? 'again ' : ''}${named(world, made.id)}`
  return `replay of ${named(world, recorded.operationId)}: ${what}`
}

export const preflight = (choice: number, wide: boolean): Command =>
  command({
    written: ['preflight', choice, wide],
    check: hasOperation,
    run: (world, system) => takePreflight(world, system, pick(world.operations, choice) as Operation, wide),
  })

const mayReplay = (world: World): boolean => world.operations.length < OPERATIONS_MAX

export const replay = (choice: number, forced: boolean): Command =>
  command({
    written: ['replay', choice, forced],
    check: (world) => world.preflights.length > 0 && mayReplay(world),
    // the newest ones are asked for most: the facts of the others have changed
    run: (world, system) =>
      useForReplay(world, system, pick([...world.preflights].reverse(), choice) as Preflight, forced),
  })

const settledOnes = (world: World): Operation[] => world.operations.filter(({ status }) => isSettled(status))

/** A preflight, and its replay at once. */
export const replayAnew = (choice: number, wide: boolean, forced: boolean): Command =>
  command({
    written: ['replayAnew', choice, wide, forced],
    check: (world) => settledOnes(world).length > 0 && mayReplay(world),
    async run(world, system) {
      const told = await takePreflight(world, system, pick(settledOnes(world), choice) as Operation, wide)
      return `${told}; ${await useForReplay(world, system, world.preflights.at(-1) as Preflight, forced)}`
    },
  })

const hasCase = (world: World): boolean => openCases(world).length > 0

const nameOf = (world: World, { operation, item, open }: OpenDoubt): string =>
  `${named(world, operation.id)} item ${item.ord} (${open.cause})`

export const lookup = (choice: number, answer: LookupAnswer): Command =>
  command({
    written: ['lookup', choice, answer],
    check: hasCase,
    async run(world, system) {
      const doubt = pick(openCases(world), choice) as OpenDoubt
      system.script.lookup = answer
      const told = nameOf(world, doubt)
      const refusal = await real.askLookup(system, doubt.open.id ?? '')
      agree('a lookup', refusal ?? 'done', canBeLookedUp(doubt) ? 'done' : 'lookup-not-available')
      if (canBeLookedUp(doubt)) lookUp(world, doubt, system.typeOf(doubt.operation.type), answer)
      return `lookup of ${told}: ${refusal ?? answer}`
    },
  })

export const resolveBy = (choice: number, verdict: Verdict): Command =>
  command({
    written: ['resolveBy', choice, verdict],
    check: hasCase,
    async run(world, system) {
      const doubt = pick(openCases(world), choice) as OpenDoubt
      const told = nameOf(world, doubt)
      const refusal = await real.askResolve(system, doubt.open.id ?? '', verdict)
      agree('a resolution', refusal ?? 'done', resolve(world, doubt, verdict))
      return `a person says of ${told}: ${verdict.resolution}${verdict.retry ? ', again' : ''}${refusal ? `: ${refusal}` : ''}`
    },
  })

export const doubts = (): Command =>
  command({
    written: ['doubts'],
    check: hasOperation,
    async run(world, system) {
      await real.closeDoubts(system)
      closeExplainedDoubts(world)
      return 'the reconciler closes doubts'
    },
  })

export const settleSweep = (): Command =>
  command({
    written: ['settleSweep'],
    check: hasOperation,
    async run(world, system) {
      await real.sweep(system)
      sweep(world)
      return 'the settle sweep'
    },
  })

export const timePasses = (): Command =>
  command({
    written: ['timePasses'],
    check: hasOperation,
    async run(world, system) {
      await real.letTimePass(system)
      for (const { items, shards } of world.operations) {
        for (const { retry } of items) if (retry) retry.due = true
        for (const shard of shards) shard.due = true
      }
      for (const effect of world.effects.values()) effect.sendByPassed = true
      for (const run of [...world.runs, ...world.frozen]) for (const held of run?.held ?? []) held.sendByPassed = true
      return 'time passes'
    },
  })
