/**
 * What has to hold in every state and over every step, in the numbers of the invariants of the fault suite. Where a request
 * left a frozen worker after its time was over, the hole that fencing cannot close, I3 and I6 are held to what is promised
 * then: see `escaped`.
 */
import { isFinal } from '../../src/domain/operation.ts'
import type { Action } from './actions.ts'
import { type Effect, ITEMS, type State, type World } from './state.ts'
import { countsOf, effectOf, inFlight } from './statements.ts'
import { isFrozen } from './worker-acts.ts'

export interface Violation {
  invariant: 'I2' | 'I3' | 'I4' | 'I5' | 'I6' | 'I8'
  what: string
}

const ORDS = Array.from({ length: ITEMS }, (_, ord) => ord)

const owned = (effect: Effect | null, ord: number): effect is Effect => effect?.ord === ord

/** Of one state. */
export const violationOfState = (state: State, world: World): Violation | null => {
  for (const ord of ORDS) {
    const violation = placeOf(state, world, ord) ?? truthOf(state, world, ord)
    if (violation) return violation
  }
  const { shard } = state
  if (inFlight(state) > 0 && shard.state !== 'leased') {
    return { invariant: 'I2', what: 'something is in flight in a shard that nobody holds' }
  }
  if (isFinal(state.status)) {
    if (shard.state !== 'done' || inFlight(state) > 0) return { invariant: 'I5', what: 'final, and still at work' }
    if (countsOf(state).uncertain > 0) return { invariant: 'I5', what: 'final, and something is uncertain' }
  }
  return null
}

/** Every item below the cursor is in exactly one place (invariant B of lease.ts), and a doubt has its case. */
const placeOf = (state: State, world: World, ord: number): Violation | null => {
  const item = state.items[ord]
  const effect = effectOf(state, world, ord)
  if (!item) return null
  const flies = owned(effect, ord) && effect.state === 'intent'
  const places = Number(flies) + Number(item.retry !== null)
  const below = ord < state.shard.cursor
  if (!below && (places > 0 || item.outcome !== null))
    return { invariant: 'I2', what: `item ${ord} is above the cursor` }
  if (places > 1) return { invariant: 'I2', what: `item ${ord} is in two places` }
  if (below && places === 0 && item.outcome === null) return { invariant: 'I2', what: `item ${ord} is lost` }
  const holds = item.cause === 'held' || item.cause === 'elsewhere'
  if (holds !== (item.outcome === 'uncertain'))
    return { invariant: 'I8', what: `the doubt of item ${ord} and its case disagree` }
  return null
}

/** What the ledger says of an item against what the provider did (I3). */
const truthOf = (state: State, world: World, ord: number): Violation | null => {
  const item = state.items[ord]
  if (!item) return null
  const effect = effectOf(state, world, ord)
  const done = state.done[ord] ?? 0
  const ofKey = ORDS.filter((other) => world.keys[other] === world.keys[ord])
  const doneOfKey = ofKey.reduce((sum, other) => sum + (state.done[other] ?? 0), 0)
  const excused = ofKey.some((other) => state.ghost.escaped[other])
  if ((item.outcome === 'applied' || item.outcome === 'skipped') && doneOfKey === 0) {
    return { invariant: 'I3', what: `item ${ord} is ${item.outcome}, and nothing happened` }
  }
  if (doneOfKey > 1) {
    // the one way to two effects: a send was in the hole while evidence denied it
    const denied = ofKey.some((other) => state.ghost.denied[other])
    if (!excused || !denied) return { invariant: 'I3', what: `the effect of item ${ord} happened twice` }
  }
  const flies = owned(effect, ord) && effect.state === 'intent'
  if (done > 0 && item.outcome !== 'applied' && item.outcome !== 'uncertain' && !flies) {
    if (excused && state.ghost.denied[ord]) return null
    return { invariant: 'I3', what: `item ${ord} is ${item.outcome ?? 'unprocessed'}, and its effect happened` }
  }
  return null
}

/** Of one step, which leads from `before` to `after`. */
export const violationOfStep = (before: State, after: State, action: Action): Violation | null => {
  if (isFinal(before.status) && after.status !== before.status)
    return { invariant: 'I5', what: 'a final state was left' }
  if (action.kind === 'worker' || action.kind === 'call') {
    const violation = fenceOf(before, after, action) ?? stopOf(before, after, action)
    if (violation) return violation
  }
  for (const [key, effect] of before.effects.entries()) {
    const now = after.effects[key] ?? null
    if (effect?.state === 'applied' && now?.state !== 'applied') {
      return { invariant: 'I5', what: 'what was known to be applied is not any more' }
    }
  }
  return null
}

const fenceOf = (before: State, after: State, action: Extract<Action, { worker: number }>): Violation | null => {
  const claims = action.step === 'claims the shard' || action.step === 'takes the shard over'
  if (claims) {
    return after.shard.epoch > before.shard.epoch ? null : { invariant: 'I4', what: 'a claim is no new epoch' }
  }
  const run = before.runs[action.worker]
  if (!run || run.epoch === before.shard.epoch) return null
  const { shard } = before
  const now = after.shard
  if (now.cursor !== shard.cursor) return { invariant: 'I4', what: 'a cursor moved below the newest epoch' }
  if (shard.state === 'leased' && now.state !== 'leased') {
    return { invariant: 'I4', what: 'a shard was finished below the newest epoch' }
  }
  const claimed = after.effects.some((effect, key) => effect && effect.send > (before.effects[key]?.send ?? 0))
  return claimed ? { invariant: 'I4', what: 'an intent was claimed below the newest epoch' } : null
}

const stopOf = (before: State, after: State, action: Extract<Action, { worker: number }>): Violation | null => {
  const { shard } = before
  if (shard.stop === 'cancel') {
    const claimed = after.effects.some((effect, key) => effect && effect.send > (before.effects[key]?.send ?? 0))
    if (claimed) return { invariant: 'I6', what: 'an intent was claimed after the cancel' }
  }
  if (shard.stop !== 'cancel' || !shard.seen) return null
  const sent = after.pending.some((sends, ord) => sends.length > (before.pending[ord]?.length ?? 0))
  // what a frozen worker had begun before is in flight, not begun: it is counted by the test of the hole
  const thawed = isFrozen(before.runs[action.worker] ?? null)
  return sent && !thawed ? { invariant: 'I6', what: 'an effect was begun after the cancel was acknowledged' } : null
}

/** A state in which nothing more can happen is one in which everything is settled (I8). */
export const violationOfEnd = (state: State): Violation | null => {
  if (!isFinal(state.status)) return { invariant: 'I8', what: `nothing can happen any more, and it is ${state.status}` }
  const open = state.items.findIndex((item) => item.cause === 'held' || item.cause === 'elsewhere')
  return open < 0 ? null : { invariant: 'I8', what: `the case of item ${open} is open for ever` }
}
