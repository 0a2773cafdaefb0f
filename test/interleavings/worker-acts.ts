/** What a worker may do: one statement, one look at its memory, or one event at its sockets; and what comes of it. */
import { maySend } from '../../src/domain/lease.ts'
import { retryDecision } from '../../src/domain/retry.ts'
import { type Action, type CallStep, ORDS, type WorkerStep } from './actions.ts'
import { ATTEMPTS_MAX, type Call, ITEMS, type RetryReason, type Run, type State, type World } from './state.ts'
import {
  acknowledge,
  claimRetry,
  claimShard,
  claimWindow,
  converge,
  effectOf,
  endLease,
  explainKnown,
  explanationOf,
  finishShard,
  isMine,
  isOver,
  takeOver,
} from './statements.ts'

export const isFrozen = (run: Run | null): boolean => run?.calls.some((call) => call?.at === 'stalled') === true

const mayGoOn = (run: Run): boolean => run.stop === null && !run.lost

const LATER_MS = 1_000
const CALL_MS = 100

/** The production check, with the facts turned into instants. */
const maySendCall = (state: State, world: World, run: Run, ord: number, call: Call): boolean => {
  const { rules } = world
  const effect = effectOf(state, world, ord)
  const isDue = effect?.ord === ord && effect.send === call.send && !effect.stable
  const inTime = maySend({
    nowMs: 0,
    leaseEndsMs: run.over && rules.sendNeedsLease ? 0 : LATER_MS,
    sendByMs: isDue || !rules.sendNeedsSendBy ? LATER_MS : -1,
    callTimeoutMs: CALL_MS,
  })
  return inTime && (mayGoOn(run) || !rules.sendNeedsOpenGate)
}

export const offerRun = (state: State, world: World, worker: number, run: Run, actions: Action[]): void => {
  const { shard } = state
  const offer = (step: WorkerStep) => actions.push({ kind: 'worker', step, worker })
  const offerCall = (step: CallStep, ord: number) => actions.push({ kind: 'call', step, worker, ord })
  const frozen = run.calls.findIndex((call) => call?.at === 'stalled')
  if (state.spent.crashes < world.crashes && !isOver(state)) offer('crashes')
  if (frozen < 0 && state.spent.faults < world.faults) offer('ends in a fault')
  if (frozen >= 0) {
    offerCall('thaws, and sends', frozen)
    return
  }
  if (!run.lost && shard.epoch !== run.epoch) offer('hears of the shard')
  else if (isMine(state, run) && run.stop !== shard.stop && run.stop !== 'cancel') offer('hears of the shard')
  if (isMine(state, run) && shard.expired && !run.lost) offer('renews its lease')
  if (mayAcknowledge(state, world, run)) offer('acknowledges the stop')
  if (!run.looked) {
    offer('looks for orphans')
    return
  }
  if (run.calls.some((call) => call?.at === 'orphan')) {
    for (const ord of ORDS) if (run.calls[ord]?.at === 'orphan') offerCall('calls the orphan uncertain', ord)
    return
  }
  const claims = mayGoOn(run) && !run.closed
  if (claims && run.cursor < ITEMS) offer('claims a window')
  let hasWork = run.cursor < ITEMS
  for (const ord of ORDS) {
    const call = run.calls[ord] ?? null
    if (call !== null) {
      offerAnswer(state, world, run, ord, call, offerCall)
      continue
    }
    if (state.items[ord]?.retry === null) continue
    const effect = effectOf(state, world, ord)
    const explained = explanationOf(state, world, ord) !== null
    if (effect?.state !== 'intent' || !world.rules.retryNeedsFreeKey) hasWork = true
    if (!claims) continue
    if (explained) offerCall('explains the known key', ord)
    if (!explained && (effect?.state !== 'intent' || !world.rules.retryNeedsFreeKey)) offerCall('claims the retry', ord)
  }
  if (run.calls.every((call) => call === null) && (!claims || run.over || !hasWork)) offer('finishes')
}

const offerAnswer = (
  state: State,
  world: World,
  run: Run,
  ord: number,
  call: Call,
  offer: (step: CallStep, ord: number) => void,
): void => {
  switch (call.at) {
    case 'queued':
      offer('checks and sends', ord)
      if (state.spent.stalls < world.stalls && maySendCall(state, world, run, ord, call)) {
        offer('checks, and is frozen before the socket', ord)
      }
      return
    case 'air':
      // no reply comes to a request that has arrived in vain, or not at all: without this it would hang for ever
      if (state.spent.losses < world.losses || state.pending[ord]?.includes(call.send) !== true) {
        offer('gives the call up', ord)
      }
      return
    case 'applied':
    case 'refused':
    case 'lost':
    case 'unsent':
      offer('writes the answer', ord)
      return
    case 'stalled':
    case 'orphan':
      return
  }
}

const mayAcknowledge = (state: State, { rules }: World, run: Run): boolean => {
  if (!isMine(state, run) || state.shard.stop === null || state.shard.seen || run.lost) return false
  return run.stop === state.shard.stop || !rules.gateClosesBeforeAcknowledgement
}

export const workerActs = (state: State, world: World, step: WorkerStep, worker: number): void => {
  if (step === 'claims the shard') {
    claimShard(state, worker)
    return
  }
  if (step === 'takes the shard over') {
    takeOver(state, worker, world.rules)
    return
  }
  const run = state.runs[worker]
  if (!run) return
  switch (step) {
    case 'looks for orphans':
      run.looked = true
      for (const effect of state.effects) {
        if (effect?.state !== 'intent' || effect.epoch >= run.epoch) continue
        run.calls[effect.ord] = { at: 'orphan', send: effect.send, attempt: effect.attempt, resend: effect.resend }
      }
      return
    case 'claims a window':
      claimWindow(state, world, run)
      return
    case 'hears of the shard':
      if (!isMine(state, run)) run.lost = true
      else if (run.stop !== 'cancel') run.stop = state.shard.stop
      return
    case 'renews its lease':
      state.shard.expired = false
      run.over = false
      return
    case 'acknowledges the stop':
      acknowledge(state)
      return
    case 'finishes':
      finishShard(state, world.rules, run)
      state.runs[worker] = null
      return
    case 'ends in a fault':
      endLease(state, world.rules, run)
      state.runs[worker] = null
      state.spent.faults++
      return
    case 'crashes':
      state.runs[worker] = null
      state.spent.crashes++
  }
}

export const callActs = (state: State, world: World, run: Run, step: CallStep, ord: number): void => {
  const call = run.calls[ord] ?? null
  if (step === 'claims the retry') {
    claimRetry(state, world, run, ord)
    return
  }
  if (step === 'explains the known key') {
    explainKnown(state, world, run, ord)
    return
  }
  if (call === null) return
  switch (step) {
    case 'calls the orphan uncertain': {
      const to = world.rules.orphansAreUncertain
        ? ({ to: 'uncertain', item: 'uncertain', retry: null } as const)
        : ({ to: 'absent', item: null, retry: 'unsent' } as const)
      converge(state, world, { ord, send: call.send, source: 'recovery', ...to })
      run.calls[ord] = null
      return
    }
    case 'checks and sends':
      if (!maySendCall(state, world, run, ord, call)) call.at = 'unsent'
      else putOnTheWire(state, call, ord)
      return
    case 'checks, and is frozen before the socket':
      call.at = 'stalled'
      state.spent.stalls++
      return
    case 'thaws, and sends': {
      const effect = effectOf(state, world, ord)
      const expected = effect?.ord === ord && effect.send === call.send && !effect.stable
      if (!expected) state.ghost.escaped[ord] = true
      putOnTheWire(state, call, ord)
      return
    }
    case 'gives the call up':
      state.spent.losses++
      call.at = 'lost'
      return
    case 'writes the answer':
      write(state, world, run, ord, call)
  }
}

const putOnTheWire = (state: State, call: Call, ord: number): void => {
  call.at = 'air'
  state.pending[ord]?.push(call.send)
  state.pending[ord]?.sort()
}

/** What the answer makes of effect and item: sentReport and unsentReport (services/outcome-reports.ts). */
const write = (state: State, world: World, run: Run, ord: number, call: Call): void => {
  const about = { ord, send: call.send, source: 'worker' } as const
  const mine = isMine(state, run)
  if (call.at === 'applied') converge(state, world, { ...about, to: 'applied', item: 'applied', retry: null })
  else if (call.at === 'unsent' && call.resend)
    converge(state, world, { ...about, to: 'uncertain', item: null, retry: null })
  else if (call.at === 'unsent') converge(state, world, { ...about, to: 'absent', item: null, retry: 'unsent' })
  else if (call.resend || (call.at === 'lost' && world.rules.lostIsUncertain)) {
    converge(state, world, { ...about, to: 'uncertain', item: 'uncertain', retry: null })
  } else converge(state, world, { ...about, to: 'absent', item: 'failed', retry: fateOf(call.attempt) })
  run.calls[ord] = null
  if (!mine) run.lost = true
  if (state.shard.stop !== null && run.stop !== 'cancel') run.stop = state.shard.stop
}

const fateOf = (attempt: number): RetryReason | null => {
  const facts = { attempt, maxAttempts: ATTEMPTS_MAX, baseMs: 1, maxMs: 1, random: 0 }
  return retryDecision({ failureClass: 'transient', ...facts }).kind === 'retry' ? 'failed' : null
}
