import type fc from 'fast-check'
import { compare } from './compare.ts'
import type { System } from './system.ts'
import type { World } from './world.ts'

export type Command = fc.AsyncCommand<World, System>

/** What a command does, to both; answers with what it was in words. */
interface Step {
  /** As it is written, so that a counterexample can be put into past.ts. */
  written: readonly [name: string, ...parameters: unknown[]]
  /** Whether it can be done now. */
  check(world: World): boolean
  run(world: World, system: System): Promise<string>
}

/** One step, and the comparison behind it. A counterexample lists the commands, and what each of them did. */
export const command = ({ written: [name, ...parameters], check, run }: Step): Command => {
  let told: string | null = null
  return {
    check,
    async run(world, system) {
      told = 'fails'
      told = await run(world, system)
      told += ', and then they differ'
      await compare(world, system)
      told = told.replace(/, and then they differ$/, '')
    },
    toString: () => `${name}(${parameters.map((one) => JSON.stringify(one)).join(', ')})${told ? ` // ${told}` : ''}\n`,
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
