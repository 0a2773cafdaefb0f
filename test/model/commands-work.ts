/** What happens to a worker: it claims, works, beats, is killed, and its lease runs out. */
import { expireLease } from '../support/races.ts'
import { agree, type Command, command, named, pick } from './command.ts'
import { compare } from './compare.ts'
import type { Behaviour } from './provider.ts'
import { beat, claimShard, expiredPlaces, type Place, placeOf, readyPlaces } from './rules-claim.ts'
import type { System } from './system.ts'
import * as real from './system-worker.ts'
import { maySend } from './worker-step.ts'
import { sendHeld, stepsOfRun } from './worker-steps.ts'
import { type Run, shardOf, type World } from './world.ts'

const claim = async (world: World, system: System, slot: number, from: 'expired' | 'ready'): Promise<string> => {
  const places = from === 'expired' ? expiredPlaces(world) : readyPlaces(world)
  const claimed = await real.claim(system, from)
  const place = places.find(
    ({ operation, shard }) => operation.id === claimed?.operationId && shard.index === claimed.shard,
  )
  if (!claimed || !place) {
    agree(
      `w${slot} claims one of ${places.length} shards`,
      claimed ? 'another one' : 'none',
      places.length ? 'one' : 'none',
    )
    return `w${slot} finds nothing ${from}`
  }
  const run = claimShard(place, claimed.workerId)
  const told = { epoch: claimed.epoch, cursor: claimed.cursor, stop: claimed.stopRequested }
  agree(`w${slot} claims`, told, { epoch: run.epoch, cursor: run.cursor, stop: run.stop })
  world.runs[slot] = run
  return `w${slot} claims ${name(world, place)}, which was ${from}`
}

const name = (world: World, { operation, shard }: Place): string => `${named(world, operation.id)}/${shard.index}`

export interface Turn {
  /** Which of the steps that can be taken. */
  choice: number
  /** Items claimed, at most. */
  room: number
  behaviour: Behaviour
}

const takeTurn = async (world: World, system: System, slot: number, { choice, ...turn }: Turn): Promise<string> => {
  const run = world.runs[slot]
  if (!run) return claim(world, system, slot, expiredPlaces(world).length > 0 && choice % 4 > 0 ? 'expired' : 'ready')
  const step = pick(stepsOfRun(world, run), choice)
  if (!step) throw new Error('a worker that holds a shard can always go on')
  const told = await step.take(world, system, run, { ...turn, dies: choice % 17 === 0 })
  if (step.ends) world.runs[slot] = null
  return `w${slot} ${told}`
}

/** Some protocol steps of one worker, each among those that it can take then, and each with its comparison. */
export const work = (slot: number, turns: readonly Turn[]): Command =>
  command({
    written: ['work', slot, turns],
    check: () => true,
    async run(world, system) {
      const told: string[] = []
      for (const [index, turn] of turns.entries()) {
        told.push(await takeTurn(world, system, slot, turn))
        if (index < turns.length - 1) await compare(world, system)
      }
      return told.join('; ')
    },
  })

/** What it had in memory is gone; its lease stays. */
export const kill = (slot: number): Command =>
  command({
    written: ['kill', slot],
    check: (world) => world.runs[slot] !== null,
    async run(world) {
      const held = world.runs[slot]?.held.length ?? 0
      world.runs[slot] = null
      return `w${slot} is killed, with ${held} in flight`
    },
  })

export const heartbeat = (slot: number): Command =>
  command({
    written: ['heartbeat', slot],
    check: (world) => world.runs[slot] != null && !world.runs[slot].lost,
    async run(world, system) {
      const run = world.runs[slot] as Run
      const lease = await real.beat(system, run)
      beat(world, run)
      agree(`w${slot} beats`, lease === null, run.lost)
      return `w${slot} beats: ${run.lost ? 'lost' : (run.stop ?? 'goes on')}`
    },
  })

const leasedPlaces = (world: World): Place[] =>
  world.operations.flatMap((operation) =>
    operation.shards
      .filter((shard) => shard.state === 'leased' && !shard.expired)
      .map((shard) => ({ operation, shard })),
  )

/** Its holder knows by its own clock; whether it is taken over is another matter. */
export const expire = (choice: number): Command =>
  command({
    written: ['expire', choice],
    check: (world) => leasedPlaces(world).length > 0,
    async run(world, system) {
      const place = pick(leasedPlaces(world), choice) as Place
      const { operation, shard } = place
      await expireLease(system.database, { tenantId: 1, operationId: operation.id, shard: shard.index })
      shardOf(operation, shard.index).expired = true
      for (const run of world.runs) {
        if (run?.operationId === operation.id && run.shard === shard.index && run.epoch === shard.epoch) run.over = true
      }
      return `the lease of ${name(world, place)} runs out`
    },
  })

/** What it has claimed is sent; then it stands still until its lease has run out, and knows all that it knew. */
export const freeze = (slot: number, behaviour: Behaviour): Command =>
  command({
    written: ['freeze', slot, behaviour],
    check: (world) => (world.runs[slot]?.held.length ?? 0) > 0,
    async run(world, system) {
      const run = world.runs[slot] as Run
      const { operation, shard } = placeOf(world, run)
      if (maySend(run)) for (const held of run.held) sendHeld(world, operation.flavour, held, behaviour)
      if (shard.state === 'leased' && shard.epoch === run.epoch) {
        await expireLease(system.database, { tenantId: 1, operationId: run.operationId, shard: run.shard })
        shard.expired = true
      }
      run.over = true
      world.frozen.push(run)
      world.runs[slot] = null
      return `w${slot} freezes, with ${run.held.length} in flight: the provider ${behaviour}`
    },
  })

/** A zombie: it goes on as if nothing had happened, with claims that the fence has to refuse and with evidence that counts. */
export const thaw = (choice: number, turns: readonly Turn[]): Command =>
  command({
    written: ['thaw', choice, turns],
    check: (world) => world.frozen.length > 0,
    async run(world, system) {
      const run = pick(world.frozen, choice) as Run
      const told: string[] = []
      for (const turn of turns) {
        if (!world.frozen.includes(run)) break
        if (told.length > 0) await compare(world, system)
        const step = pick(stepsOfRun(world, run), turn.choice)
        if (!step) throw new Error('a worker that holds a shard can always go on')
        told.push(await step.take(world, system, run, { ...turn, dies: false }))
        if (step.ends) world.frozen = world.frozen.filter((one) => one !== run)
      }
      return `a zombie ${told.join('; ')}`
    },
  })
