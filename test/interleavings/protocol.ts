/**
 * Who may do what in a state, and what comes of it. A step of a worker is one statement, one look at its memory, or one
 * event at its sockets; between any two of them anything else may happen. A worker that is frozen is one whose steps come
 * later, and a statement that it had sent before is one that its memory would not send any more: so claims are tried as long
 * as the worker does not know better, whatever its clock says. Only the check of a send reads that clock.
 *
 * Evidence is true: it is read from what the provider did. It is found at one instant and brought home at another.
 */
import { maySend } from '../../src/domain/lease.ts'
import { decideLookup, decideResolution, mayResend } from '../../src/domain/reconciliation.ts'
import { retryDecision } from '../../src/domain/retry.ts'
import {
  ATTEMPTS_MAX,
  type Call,
  copyOf,
  type Effect,
  type Found,
  ITEMS,
  type RetryReason,
  type Run,
  type State,
  type World,
} from './state.ts'
import {
  acknowledge,
  claimRetry,
  claimShard,
  claimWindow,
  closeDoubt,
  converge,
  effectOf,
  explainKnown,
  explanationOf,
  finishShard,
  isExplained,
  isMine,
  isOver,
  queueResend,
  requestStop,
  resume,
  settledStatus,
  settleOperation,
  takeOver,
} from './statements.ts'

const WORKERS = [0, 1]
const ORDS = Array.from({ length: ITEMS }, (_, ord) => ord)

export type WorkerStep =
  | 'claims the shard'
  | 'takes the shard over'
  | 'looks for orphans'
  | 'claims a window'
  | 'hears of the shard'
  | 'renews its lease'
  | 'acknowledges the stop'
  | 'finishes'
  | 'crashes'
export type CallStep =
  | 'calls the orphan uncertain'
  | 'claims the retry'
  | 'explains the known key'
  | 'checks and sends'
  | 'checks, and is frozen before the socket'
  | 'thaws, and sends'
  | 'gives the call up'
  | 'writes the answer'
export type WorldStep =
  | 'the lease runs out'
  | 'a cancel is stored'
  | 'a pause is stored'
  | 'the pause is taken back'
  | 'the status is settled'
  | 'the evidence is brought home'
export type ItemStep =
  | 'the provider is asked'
  | 'a person looks'
  | 'a callback says applied'
  | 'a resend is queued'
  | 'nothing can arrive any more'
  | 'the doubt is closed'

export type Action =
  | { kind: 'worker'; step: WorkerStep; worker: number }
  | { kind: 'call'; step: CallStep; worker: number; ord: number }
  | { kind: 'world'; step: WorldStep }
  | { kind: 'item'; step: ItemStep; ord: number }
  | { kind: 'arrival'; step: 'applied' | 'refused'; ord: number; send: number }

const nameOf = (worker: number): string => 'AB'[worker] ?? '?'

export const describeAction = (action: Action): string => {
  switch (action.kind) {
    case 'worker':
      return `${nameOf(action.worker)} ${action.step}`
    case 'call':
      return `${nameOf(action.worker)} ${action.step} (item ${action.ord})`
    case 'world':
      return action.step
    case 'item':
      return `${action.step} (item ${action.ord})`
    case 'arrival':
      return `send ${action.send} of item ${action.ord} arrives and is ${action.step}`
  }
}

export const isFrozen = (run: Run | null): boolean => run?.calls.some((call) => call?.at === 'stalled') === true

/** Whether nobody alive believes to hold the shard. */
const isAbandoned = (state: State): boolean => !state.runs.some((run) => run?.epoch === state.shard.epoch)

export const mayGoOn = (run: Run): boolean => run.stop === null && !run.lost

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

/** Every action that is possible, and may change something. */
export const enabledActions = (state: State, world: World): Action[] => {
  const actions: Action[] = []
  for (const worker of WORKERS) {
    const run = state.runs[worker] ?? null
    if (run !== null) offerRun(state, world, worker, run, actions)
  }
  offerShard(state, world, actions)
  for (const ord of ORDS) offerItem(state, world, ord, actions)
  return actions
}

const offerRun = (state: State, world: World, worker: number, run: Run, actions: Action[]): void => {
  const { shard } = state
  const offer = (step: WorkerStep) => actions.push({ kind: 'worker', step, worker })
  const offerCall = (step: CallStep, ord: number) => actions.push({ kind: 'call', step, worker, ord })
  const frozen = run.calls.findIndex((call) => call?.at === 'stalled')
  if (state.spent.crashes < world.crashes && !isOver(state)) offer('crashes')
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

const offerShard = (state: State, world: World, actions: Action[]): void => {
  const { shard } = state
  const offer = (step: WorldStep) => actions.push({ kind: 'world', step })
  const idle = state.runs.indexOf(null)
  if (shard.state === 'ready' && idle >= 0) actions.push({ kind: 'worker', step: 'claims the shard', worker: idle })
  if (shard.state === 'leased' && shard.expired && idle >= 0) {
    actions.push({ kind: 'worker', step: 'takes the shard over', worker: idle })
  }
  if (shard.state === 'leased' && !shard.expired && (isAbandoned(state) || state.spent.expiries < world.expiries)) {
    offer('the lease runs out')
  }
  if (world.cancels && shard.stop !== 'cancel' && !isOver(state)) offer('a cancel is stored')
  if (state.status === 'pending' || state.status === 'running') {
    if (state.spent.pauses < world.pauses && shard.stop === null) offer('a pause is stored')
  }
  if (shard.stop === 'pause' && (state.status === 'pause_requested' || state.status === 'paused')) {
    offer('the pause is taken back')
  }
  if (settledStatus(state) !== state.status) offer('the status is settled')
  if (state.found !== null) offer('the evidence is brought home')
}

const offerItem = (state: State, world: World, ord: number, actions: Action[]): void => {
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

/** The state after an action. */
export const act = (before: State, world: World, action: Action): State => {
  const state = copyOf(before)
  switch (action.kind) {
    case 'worker':
      workerActs(state, world, action.step, action.worker)
      break
    case 'call': {
      const run = state.runs[action.worker]
      if (run) callActs(state, world, run, action.step, action.ord)
      break
    }
    case 'world':
      worldActs(state, world, action.step)
      break
    case 'item':
      itemActs(state, world, action.step, action.ord)
      break
    case 'arrival':
      arrive(state, world, action.ord, action.send, action.step)
  }
  return state
}

const workerActs = (state: State, world: World, step: WorkerStep, worker: number): void => {
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
    case 'crashes':
      state.runs[worker] = null
      state.spent.crashes++
  }
}

const callActs = (state: State, world: World, run: Run, step: CallStep, ord: number): void => {
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

/** What the answer makes of effect and item: sentReport and unsentReport (engine/reports.ts). */
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

const worldActs = (state: State, world: World, step: WorldStep): void => {
  switch (step) {
    case 'the lease runs out':
      if (!isAbandoned(state)) state.spent.expiries++
      state.shard.expired = true
      for (const run of state.runs) if (run?.epoch === state.shard.epoch) run.over = true
      return
    case 'a cancel is stored':
      requestStop(state, 'cancel', world.rules)
      return
    case 'a pause is stored':
      state.spent.pauses++
      requestStop(state, 'pause', world.rules)
      return
    case 'the pause is taken back':
      resume(state)
      return
    case 'the status is settled':
      settleOperation(state)
      return
    case 'the evidence is brought home':
      bringHome(state, world)
      return
  }
}

const bringHome = (state: State, world: World): void => {
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

const itemActs = (state: State, world: World, step: ItemStep, ord: number): void => {
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
const arrive = (state: State, world: World, ord: number, send: number, answer: 'applied' | 'refused'): void => {
  state.pending[ord] = (state.pending[ord] ?? []).filter((pending) => pending !== send)
  const known = world.idempotent && hasHappened(state, world, ord)
  if (answer === 'refused') state.spent.refusals++
  if (answer === 'applied' && !known) state.done[ord] = (state.done[ord] ?? 0) + 1
  for (const run of state.runs) {
    const call = run?.calls[ord]
    if (call?.at === 'air' && call.send === send) call.at = known ? 'applied' : answer
  }
}
