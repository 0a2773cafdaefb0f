import type fc from 'fast-check'
import { compare } from './compare.ts'
import type { System } from './system.ts'
import type { World } from './world.ts'

export type Command = fc.AsyncCommand<World, System>

/** What a command does, to both; answers with what it was in words. */
export interface Step {
  /** Whether it can be done now. */
  check(world: World): boolean
  run(world: World, system: System): Promise<string>
}

/** One step, and the comparison behind it. A counterexample lists the steps as they were done. */
export const command = (step: Step): Command => {
  let told = 'not run'
  return {
    check: (world) => step.check(world),
    async run(world, system) {
      told = 'failed'
      told = await step.run(world, system)
      await compare(world, system)
    },
    toString: () => told,
  }
}

/** One of several, by any number. */
export const pick = <T>(from: readonly T[], number: number): T | undefined => from[number % from.length]

export const named = (world: World, operationId: string): string =>
  `op${world.operations.findIndex((operation) => operation.id === operationId)}`

/** Both must come to the same. */
export const agree = (what: string, real: unknown, model: unknown): void => {
  const [told, expected] = [JSON.stringify(real), JSON.stringify(model)]
  if (told !== expected) throw new Error(`${what}: the system answers ${told}, the model ${expected}`)
}
