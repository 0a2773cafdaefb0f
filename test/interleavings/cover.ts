/** Few paths through a search that take every kind of step from every kind of situation at least once. */
import type { Action } from './actions.ts'
import { act } from './protocol.ts'
import { search } from './search.ts'
import { initialState, type State, type World } from './state.ts'
import { effectOf } from './statements.ts'

const ordOf = (state: State, action: Action): number | null => {
  if ('ord' in action) return action.ord
  if (action.kind === 'world') return state.found?.ord ?? null
  return action.step === 'claims a window' ? (state.runs[action.worker]?.cursor ?? null) : null
}

/** A step with what the statement behind it can see: the shard, the item, and whether the worker still holds the lease. */
const classOf = (state: State, world: World, action: Action): string => {
  const { shard } = state
  const ord = ordOf(state, action)
  const item = ord === null ? undefined : state.items[ord]
  const effect = ord === null ? null : effectOf(state, world, ord)
  const run = 'worker' in action ? state.runs[action.worker] : null
  const call = run && ord !== null ? run.calls[ord] : null
  return [
    `${action.kind} ${action.step}`,
    `${shard.state} ${shard.stop} ${shard.seen} ${shard.expired}`,
    item && `${item.outcome} ${item.retry?.reason} ${item.cause}`,
    effect && `${effect.state} ${effect.ord === ord} ${effect.stable}`,
    run && `${run.epoch === shard.epoch} ${call?.at} ${call && effect && call.send === effect.send} ${call?.resend}`,
    action.kind === 'world' ? `${state.status} ${state.found?.said} ${state.found?.source}` : '',
  ].join(' | ')
}

export interface Cover {
  paths: Action[][]
  /** Kinds of steps that the paths take, and that were found. */
  covered: number
  classes: number
}

/**
 * A large world has a million states and takes minutes; what is far from its beginning differs from what is near in little that
 * a statement can see.
 */
const STATES_ENOUGH = 40_000

/** At most `pathsMax` paths, each the one that adds most to those before. */
export const coverOf = (world: World, pathsMax: number): Cover => {
  const firsts = new Map<string, { from: number; action: Action }>()
  const found = search(
    world,
    {
      onStep: (before, action, _after, from) => {
        const name = classOf(before, world, action)
        if (!firsts.has(name)) firsts.set(name, { from, action })
      },
    },
    STATES_ENOUGH,
  )
  if (found.counterexample) throw new Error(`${world.name} is not sound`)
  const candidates = [...firsts.values()].map(({ from, action }) => {
    const path = [...found.pathTo(from), action]
    return { path, missing: classesOf(world, path) }
  })
  const covered = new Set<string>()
  const paths: Action[][] = []
  while (paths.length < pathsMax && covered.size < firsts.size) {
    for (const { missing } of candidates) for (const name of missing) if (covered.has(name)) missing.delete(name)
    const best = candidates.reduce((one, other) => (other.missing.size > one.missing.size ? other : one))
    paths.push(best.path)
    for (const name of best.missing) covered.add(name)
  }
  return { paths, covered: covered.size, classes: firsts.size }
}

const classesOf = (world: World, path: readonly Action[]): Set<string> => {
  const classes = new Set<string>()
  let state = initialState()
  for (const action of path) {
    classes.add(classOf(state, world, action))
    state = act(state, world, action)
  }
  return classes
}
