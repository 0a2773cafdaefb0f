/**
 * Breadth first over every state that can be reached, so the first counterexample is one of the shortest. What is kept of
 * a state is its key and how it was reached; the state itself is made again from the path.
 */

import { type Action, describeAction } from './actions.ts'
import { type Violation, violationOfEnd, violationOfState, violationOfStep } from './invariants.ts'
import { act, enabledActions } from './protocol.ts'
import { initialState, keyOf, type State, type World } from './state.ts'

/** A search that outgrows this has lost a bound of its world. */
const STATES_MAX = 3_000_000

export interface Counterexample {
  violation: Violation
  /** Readable, in order; the last one is the step that breaks the invariant. */
  steps: string[]
}

export interface Searched {
  states: number
  transitions: number
  /** States in which nothing more can happen. */
  ends: number
  /** States from which no end can be reached. */
  trapped: number
  counterexample: Counterexample | null
  pathTo(state: number): Action[]
}

export interface Observer {
  onState?(state: State, id: number): void
  onStep?(before: State, action: Action, after: State, from: number): void
}

/** A list of numbers that grows, without an object for each. */
class Numbers {
  length = 0
  private room = new Int32Array(1 << 16)

  push(value: number): void {
    if (this.length === this.room.length) {
      const larger = new Int32Array(this.room.length * 2)
      larger.set(this.room)
      this.room = larger
    }
    this.room[this.length++] = value
  }

  at(index: number): number {
    return this.room[index] as number
  }
}

/** All of a world, or, with `enough`, what of it is nearest to its beginning: about so many states. */
export const search = (world: World, observer: Observer = {}, enough = Number.POSITIVE_INFINITY): Searched => {
  const ids = new Map<string, number>()
  const parents = new Numbers()
  const actions: Action[] = []
  const from = new Numbers()
  const to = new Numbers()
  const ends: number[] = []
  let layer: { id: number; state: State }[] = []
  let counterexample: Counterexample | null = null

  const pathTo = (id: number): Action[] => {
    const path: Action[] = []
    for (let at = id; at > 0; at = parents.at(at)) path.push(actions[at] as Action)
    return path.reverse()
  }
  const fail = (violation: Violation, path: readonly Action[]): void => {
    counterexample ??= { violation, steps: path.map(describeAction) }
  }
  const add = (state: State, parent: number, action: Action | null): { id: number; fresh: boolean } => {
    const key = keyOf(state)
    const known = ids.get(key)
    if (known !== undefined) return { id: known, fresh: false }
    const id = ids.size
    if (id >= STATES_MAX) throw new Error(`more than ${STATES_MAX} states in ${world.name}`)
    ids.set(key, id)
    parents.push(parent)
    if (action) actions[id] = action
    observer.onState?.(state, id)
    return { id, fresh: true }
  }

  const first = initialState()
  layer.push({ id: add(first, 0, null).id, state: first })
  while (layer.length > 0 && counterexample === null && ids.size < enough) {
    const next: typeof layer = []
    for (const { id, state } of layer) {
      if (ids.size >= enough) break
      const possible = enabledActions(state, world)
      let moved = false
      for (const action of possible) {
        const after = act(state, world, action)
        const { id: reached, fresh } = add(after, id, action)
        if (reached !== id) {
          moved = true
          from.push(id)
          to.push(reached)
        }
        observer.onStep?.(state, action, after, id)
        const violation = violationOfStep(state, after, action) ?? (fresh ? violationOfState(after, world) : null)
        if (violation) {
          fail(violation, [...pathTo(id), action])
          break
        }
        if (fresh) next.push({ id: reached, state: after })
      }
      if (counterexample) break
      if (moved) continue
      ends.push(id)
      const violation = violationOfEnd(state)
      if (violation) fail(violation, pathTo(id))
      if (counterexample) break
    }
    layer = next
  }

  const trapped = counterexample || ids.size >= enough ? [] : statesWithoutEnd(ids.size, from, to, ends)
  if (trapped[0] !== undefined) {
    fail({ invariant: 'I8', what: 'no end can be reached any more' }, pathTo(trapped[0]))
  }
  return {
    states: ids.size,
    transitions: from.length,
    ends: ends.length,
    trapped: trapped.length,
    counterexample,
    pathTo,
  }
}

/** Walks back from the ends; what is not met can go round for ever, but never end. */
const statesWithoutEnd = (states: number, from: Numbers, to: Numbers, ends: readonly number[]): number[] => {
  const offsets = new Int32Array(states + 1)
  for (let edge = 0; edge < to.length; edge++) offsets[to.at(edge) + 1] = (offsets[to.at(edge) + 1] ?? 0) + 1
  for (let id = 0; id < states; id++) offsets[id + 1] = (offsets[id + 1] ?? 0) + (offsets[id] ?? 0)
  const sources = new Int32Array(to.length)
  const filled = offsets.slice()
  for (let edge = 0; edge < to.length; edge++) {
    const target = to.at(edge)
    const place = filled[target] ?? 0
    filled[target] = place + 1
    sources[place] = from.at(edge)
  }
  const met = new Uint8Array(states)
  const open = [...ends]
  for (const end of ends) met[end] = 1
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (let edge = offsets[at] ?? 0; edge < (offsets[at + 1] ?? 0); edge++) {
      const source = sources[edge] ?? 0
      if (met[source] === 1) continue
      met[source] = 1
      open.push(source)
    }
  }
  const missing: number[] = []
  for (let id = 0; id < states; id++) if (met[id] === 0) missing.push(id)
  return missing
}

export const tellCounterexample = ({ violation, steps }: Counterexample): string =>
  [
    `${violation.invariant}: ${violation.what}, after ${steps.length} steps:`,
    ...steps.map((step, n) => `${n + 1}. ${step}`),
  ].join('\n  ')
