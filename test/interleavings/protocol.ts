/**
 * Who may do what in a state, and what comes of it. Between any two steps anything else may happen. A worker that is frozen is
 * one whose steps come later, and a statement that it had sent before is one that its memory would not send any more: so claims
 * are tried as long as the worker does not know better, whatever its clock says. Only the check of a send reads that clock.
 */
import { type Action, ORDS, WORKERS, type WorldStep } from './actions.ts'
import { arrive, bringHome, itemActs, offerItem } from './item-acts.ts'
import { copyOf, type State, type World } from './state.ts'
import { isOver, requestStop, resume, settledStatus, settleOperation } from './statements.ts'
import { callActs, offerRun, workerActs } from './worker-acts.ts'

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

/** Whether nobody alive believes to hold the shard. */
const isAbandoned = (state: State): boolean => !state.runs.some((run) => run?.epoch === state.shard.epoch)

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
