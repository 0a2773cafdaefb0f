/** One step of the protocol of a worker, and the steps that all kinds of runs have. */
import { agree } from './command.ts'
import type { Behaviour } from './provider.ts'
import { finishShard } from './rules-claim.ts'
import type { System } from './system.ts'
import * as real from './system-worker.ts'
import type { Run, World } from './world.ts'

export interface Choice {
  room: number
  behaviour: Behaviour
  /** The worker dies before the commit of a batch. */
  dies: boolean
}

export interface WorkerStep {
  take(world: World, system: System, run: Run, choice: Choice): Promise<string>
  /** The worker holds nothing after it. */
  ends?: boolean
}

/**
 * Whether the worker may ask for more. Its own clock is no bar here: it may have been frozen behind its look at the clock, and
 * then only the fence keeps it from claiming.
 */
export const mayClaim = (run: Run): boolean => run.stop === null && !run.lost && !run.closed

/** The gate of engine/held-shard.ts. What freezes between this and the socket is the stated limit, and not tried here. */
export const maySend = (run: Run): boolean => run.stop === null && !run.lost && !run.over

export const finishes: WorkerStep = {
  ends: true,
  async take(world, system, run) {
    if (run.lost) return 'lets go of a shard that it has lost'
    const finished = await real.finish(system, run)
    agree('a shard is finished', finished, finishShard(world, run))
    return `finishes: ${finished ?? 'refused'}`
  },
}
