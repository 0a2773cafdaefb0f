/**
 * What becomes of one item outside of its worker: its request arrives, the provider is asked or calls back, a person looks.
 * Evidence is true: it is read from what the provider did. It is found at one instant and brought home at another.
 */
import { decideLookup, decideResolution, mayResend } from '../../src/domain/reconciliation.ts'
import { type Action, type ItemStep, ORDS } from './actions.ts'
import { ATTEMPTS_MAX, type Effect, type Found, type State, type World } from './state.ts'
import { closeDoubt, converge, effectOf, isExplained, queueResend } from './statements.ts'

/** Longer than anything takes. */
const LATER_MS = 1_000

export const offerItem = (state: State, world: World, ord: number, actions: Action[]): void => {
  const offer = (step: ItemStep) => actions.push({ kind: 'item', step, ord })
  for (const send of state.pending[ord] ?? []) {
    actions.push({ kind: 'arrival', step: 'applied', ord, send })
    if (state.spent.refusals < world.refusals) actions.push({ kind: 'arrival', step: 'refused', ord, send })
  }
  const item = state.items[ord]
  const effect = effectOf(state, world, ord)
  if (isExplained(state, world, ord)) offer('the doubt is closed')
  if (effect === null || effect.ord !== ord || item === undefined) return
  const delayed = effect.state === 'intent' && effect.epoch === state.shard.epoch
  const open =
    effect.state === 'uncertain' || (effect.state === 'intent' && (!delayed || state.spent.delays < world.delays))
  if (open && !effect.stable && !isCallOut(state, ord, effect.send)) offer('nothing can arrive any more')
  if (state.found !== null) return
  const happened = hasHappened(state, world, ord)
  if (effect.state !== 'applied' && effect.state !== 'compensated' && happened && world.callbacks)
    offer('a callback says applied')
  if (effect.state !== 'uncertain' || item.cause !== 'held') return
  if (findByLookup(state, world, ord) !== null) offer('the provider is asked')
  if (world.people && !happened && mayDeny(effect, world)) offer('a person looks')
  if (mayQueueResend(state, world, ord)) offer('a resend is queued')
}

/** A call in the hands of a living worker ends before the time is over in which its request may arrive. */
const isCallOut = (state: State, ord: number, send: number): boolean =>
  state.runs.some((run) => run?.calls[ord]?.at === 'air' && run.calls[ord]?.send === send)

const hasHappened = (state: State, world: World, ord: number): boolean =>
  ORDS.some((other) => world.keys[other] === world.keys[ord] && (state.done[other] ?? 0) > 0)

const mayDeny = (effect: Effect, { rules }: World): boolean => effect.stable || !rules.absenceNeedsStability

const mayQueueResend = (state: State, world: World, ord: number): boolean => {
  const item = state.items[ord]
  const effect = effectOf(state, world, ord)
  if (!world.idempotent || item === undefined || item.retry !== null || state.shard.stop !== null || !effect)
    return false
  return mayResend({
    providerIdempotentMs: LATER_MS,
    ageMs: 0,
    attempt: effect.attempt,
    maxAttempts: ATTEMPTS_MAX,
    cancelled: false,
  })
}

/** What a lookup finds, and what is decided by it; null: nothing that moves anything. */
const findByLookup = (state: State, world: World, ord: number): Found | null => {
  const effect = effectOf(state, world, ord)
  if (effect === null) return null
  const decision = decideLookup({
    outcome: hasHappened(state, world, ord) ? 'applied' : 'absent',
    stable: mayDeny(effect, world),
    onAbsent: 'retry',
    attempt: effect.attempt,
    maxAttempts: ATTEMPTS_MAX,
    cancelled: state.shard.stop === 'cancel',
    lookups: 1,
  })
  const found = { ord, send: effect.send, source: 'lookup' } as const
  switch (decision.kind) {
    case 'applied':
      return { ...found, said: 'applied', retry: false }
    case 'absent-retry':
      return { ...found, said: 'absent', retry: true }
    case 'absent-failed':
      return { ...found, said: 'absent', retry: false }
    case 'wait':
    case 'by-hand':
      return null
  }
}

export const bringHome = (state: State, world: World): void => {
  const { found } = state
  state.found = null
  if (found === null) return
  const { ord, send, source, said, retry } = found
  const moved =
    said === 'applied'
      ? converge(state, world, { ord, send, source, to: 'applied', item: 'applied', retry: null })
      : converge(state, world, {
          ord,
          send,
          source,
          to: 'absent',
          item: 'failed',
          retry: retry ? 'confirmed_absent' : null,
        })
  if (moved && said === 'absent' && isInTheHole(state, ord, send)) state.ghost.denied[ord] = true
}

/** The send is frozen before the socket, or has left it too late. */
const isInTheHole = (state: State, ord: number, send: number): boolean =>
  state.ghost.escaped[ord] === true ||
  state.runs.some((run) => run?.calls[ord]?.at === 'stalled' && run.calls[ord]?.send === send)

export const itemActs = (state: State, world: World, step: ItemStep, ord: number): void => {
  const effect = effectOf(state, world, ord)
  if (effect === null) return
  switch (step) {
    case 'the provider is asked':
      state.found = findByLookup(state, world, ord)
      return
    case 'a person looks': {
      const decision = decideResolution({
        resolution: 'not_applied',
        retry: false,
        cancelled: state.shard.stop === 'cancel',
      })
      state.found = {
        ord,
        send: effect.send,
        said: 'absent',
        retry: decision.kind === 'absent-retry',
        source: 'operator',
      }
      return
    }
    case 'a callback says applied':
      state.found = { ord, send: effect.send, said: 'applied', retry: false, source: 'callback' }
      return
    case 'a resend is queued':
      queueResend(state, ord, effect.attempt)
      return
    case 'nothing can arrive any more':
      if (effect.state === 'intent' && effect.epoch === state.shard.epoch) state.spent.delays++
      effect.stable = true
      // nor any earlier send of it, whose time was over before; but for one that left after its time
      state.pending[ord] = (state.pending[ord] ?? []).filter((send) => send < effect.send && state.ghost.escaped[ord])
      return
    case 'the doubt is closed':
      closeDoubt(state, world, ord)
      return
  }
}

/** The provider has the request. Its answer reaches the worker if that still waits for it. */
export const arrive = (state: State, world: World, ord: number, send: number, answer: 'applied' | 'refused'): void => {
  state.pending[ord] = (state.pending[ord] ?? []).filter((pending) => pending !== send)
  const known = world.idempotent && hasHappened(state, world, ord)
  if (answer === 'refused') state.spent.refusals++
  if (answer === 'applied' && !known) state.done[ord] = (state.done[ord] ?? 0) + 1
  for (const run of state.runs) {
    const call = run?.calls[ord]
    if (call?.at === 'air' && call.send === send) call.at = known ? 'applied' : answer
  }
}
