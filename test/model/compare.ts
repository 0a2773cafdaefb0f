/** After every command: what the database says is what the model says, and the promises hold that need no model. */
import { describe, readSnapshot } from './snapshot.ts'
import type { System } from './system.ts'
import type { World } from './world.ts'

/** What the caller of the api sees of an operation; cases have no part in its version. */
const visible = (facts: readonly string[], name: string): string =>
  facts
    .filter((fact) => fact.startsWith(`${name} `) && !/has an open case|was resolved|dead letter/.test(fact))
    .join('\n')

const difference = (real: readonly string[], model: readonly string[]): string =>
  [
    ...real.filter((fact) => !model.includes(fact)).map((fact) => `  the database: ${fact}`),
    ...model.filter((fact) => !real.includes(fact)).map((fact) => `  the model:    ${fact}`),
  ].join('\n')

export const compare = async (world: World, system: System): Promise<void> => {
  const ids = world.operations.map((operation) => operation.id)
  const real = await readSnapshot(system.database, ids)
  const model = describe(world)
  if (real.facts.join('\n') !== model.join('\n')) {
    throw new Error(`the database and the model differ:\n${difference(real.facts, model)}`)
  }
  for (const [index, operation] of world.operations.entries()) {
    const version = real.versions.get(operation.id) ?? 0
    const now = visible(real.facts, `op${index}`)
    const changed = now !== operation.seen
    if (version < operation.version || (changed && version === operation.version)) {
      throw new Error(`op${index} has changed, and its version went from ${operation.version} to ${version}`)
    }
    operation.version = version
    operation.seen = now
    for (const item of operation.items) {
      if (item.open) item.open.id = real.caseIds.get(`${operation.id}/${item.ord}`) ?? null
    }
  }
  const doubles = world.provider.doubles()
  if (doubles.length > 0) throw new Error(`these effects happened twice without evidence: ${doubles.join(', ')}`)
  for (const effect of world.effects.values()) {
    if (effect.state === 'applied' && !world.provider.supports(effect.key)) {
      throw new Error(`${effect.key} is called applied, and nothing speaks for it`)
    }
  }
}
