/**
 * The public state machine as one client after another may see it: the sequential specification that concurrent histories are
 * held against. Pure, and made of the domain's own tables.
 *
 * A state is what a client can know: whether the operation exists, its status, whether a cancel was asked for, and the lowest
 * version it can have. Workers, sweeps and evidence may move it between any two calls, along `TRANSITIONS`, as far as they
 * may without anybody's request; each such move costs a version. Of two states that differ in the version alone the lower one
 * allows more, so only that is kept.
 */
import {
  cancelDecision,
  canTransition,
  isFinal,
  OPERATION_STATUSES,
  type OperationStatus,
  pauseDecision,
  resumeDecision,
} from '../../src/domain/operation.ts'
import type { CallKind, Outcome } from './history.ts'

export interface State {
  /** Null: it does not exist. */
  status: OperationStatus | null
  cancelled: boolean
  /** Asked for, and not taken back. */
  paused: boolean
  version: number
}

export const NOTHING: State = { status: null, cancelled: false, paused: false, version: 0 }

/** The half of a call that changes something, or the look at the resource that its answer shows. */
export type Step =
  | { kind: 'write'; call: CallKind; outcome: Outcome | null }
  | { kind: 'read'; status: OperationStatus; version: number; cancelled: boolean }
  | { kind: 'absent' }

export const nameOf = ({ status, cancelled, paused }: State): string => `${status} ${cancelled} ${paused}`

/** States by what they are, each at its lowest version. */
export class States {
  private readonly byName = new Map<string, State>()

  constructor(states: Iterable<State> = []) {
    for (const state of states) this.add(state)
  }

  add(state: State): boolean {
    const known = this.byName.get(nameOf(state))
    if (known !== undefined && known.version <= state.version) return false
    this.byName.set(nameOf(state), state)
    return true
  }

  all(): State[] {
    return [...this.byName.values()]
  }
}

/** `stopsItself`: a deadline may cancel it, or a stop condition pause it. */
export const moveAlone = (states: readonly State[], { stopsItself }: { stopsItself: boolean }): State[] => {
  const reached = new States(states)
  const queue = reached.all()
  for (let state = queue.shift(); state !== undefined; state = queue.shift()) {
    for (const next of movesOf(state, stopsItself)) if (reached.add(next)) queue.push(next)
  }
  return reached.all()
}

const movesOf = (state: State, stopsItself: boolean): State[] => {
  const { status, cancelled, version } = state
  if (status === null) return []
  const moved = OPERATION_STATUSES.filter((to) => canTransition(status, to) && movesByItself(status, to, state)).map(
    (to): State => ({ ...state, status: to, version: version + 1 }),
  )
  // asked while evidence is awaited, a cancel shows in the receipt alone
  if (stopsItself && !cancelled && !isFinal(status)) moved.push(requestCancel(state))
  if (stopsItself && !cancelled && pauseDecision(status).kind === 'stop') {
    moved.push(requestPause(state))
  }
  return moved
}

/** Whether nobody's request is needed: what workers, evidence and the settling of facts do. */
const movesByItself = (from: OperationStatus, to: OperationStatus, { cancelled, paused }: State): boolean => {
  if (from === 'draft' || from === 'awaiting_approval') return false
  if (to === 'cancel_requested') return false
  if (to === 'cancelled' || to === 'completed_after_cancel') return cancelled
  // a cancel is never forgotten: it ends in one of its own states
  if (cancelled) return to === 'reconciliation_required'
  // a pause that was asked for, or taken back, was so by somebody
  if (to === 'pause_requested' || to === 'paused') return paused
  return !((from === 'pause_requested' || from === 'paused') && (to === 'pending' || to === 'running'))
}

const requestPause = (state: State): State => ({
  ...state,
  status: 'pause_requested',
  paused: true,
  version: state.version + 1,
})

const requestCancel = ({ status, paused, version }: State): State => ({
  paused,
  status: status === 'reconciliation_required' ? status : 'cancel_requested',
  cancelled: true,
  version: version + 1,
})

/** The states after a step that begins in `state`; none: it cannot have been answered so. */
export const takeStep = (state: State, step: Step): State[] => {
  switch (step.kind) {
    case 'read':
      return state.status === step.status && state.cancelled === step.cancelled && step.version >= state.version
        ? [{ ...state, version: step.version }]
        : []
    case 'absent':
      return state.status === null ? [state] : []
    case 'write':
      return write(state, step.call, step.outcome)
  }
}

/** `outcome` null: no answer came, so the request did what it does, if it could. */
const write = (state: State, call: CallKind, outcome: Outcome | null): State[] => {
  switch (call) {
    case 'submit':
    case 'replay':
    case 'compensate':
      return create(state, outcome)
    case 'cancel':
      return state.status === null ? [] : cancel(state, state.status, outcome)
    case 'pause':
      return state.status === null ? [] : pause(state, state.status, outcome)
    case 'resume':
      return state.status === null ? [] : resume(state, state.status, outcome)
    case 'start':
      return release(state, 'draft', outcome)
    case 'approve':
      return release(state, 'awaiting_approval', outcome)
    case 'upload':
    case 'get':
    case 'preflight':
    case 'resolve':
    case 'read':
      return [state]
  }
}

const BORN: readonly OperationStatus[] = ['draft', 'awaiting_approval', 'pending']

const create = (state: State, outcome: Outcome | null): State[] => {
  const isRefusal = outcome?.code === 'idempotency-key-reused'
  if (state.status !== null) return outcome === null || outcome.replayed || isRefusal ? [state] : []
  if (isRefusal || outcome?.replayed) return []
  return BORN.map((status) => ({ ...NOTHING, status, version: 1 }))
}

const cancel = (state: State, status: OperationStatus, outcome: Outcome | null): State[] => {
  const decision = cancelDecision(status, state.cancelled)
  switch (decision.kind) {
    case 'already-final':
      return outcome === null || outcome.code === 'operation-already-final' ? [state] : []
    case 'receipt':
      return outcome === null || outcome.status === (decision.httpFinal ? 200 : 202) ? [state] : []
    case 'stop':
      return outcome === null || outcome.status === 200 || outcome.status === 202 ? [requestCancel(state)] : []
  }
}

const pause = (state: State, status: OperationStatus, outcome: Outcome | null): State[] => {
  const decision = pauseDecision(status)
  switch (decision.kind) {
    case 'not-pausable':
      return outcome === null || outcome.code === 'operation-not-pausable' ? [state] : []
    case 'receipt':
      return outcome === null || outcome.status === (decision.reached ? 200 : 202) ? [state] : []
    case 'stop':
      return outcome === null || outcome.status === 200 || outcome.status === 202 ? [requestPause(state)] : []
  }
}

const resume = (state: State, status: OperationStatus, outcome: Outcome | null): State[] => {
  if (resumeDecision(status).kind === 'not-paused') {
    return outcome === null || outcome.code === 'operation-not-paused' ? [state] : []
  }
  if (outcome !== null && outcome.status !== 200) return []
  return (['pending', 'running'] as const).map((to) => ({
    ...state,
    status: to,
    paused: false,
    version: state.version + 1,
  }))
}

/** A draft that is closed, an approval that is given or refused. */
const release = (state: State, from: OperationStatus, outcome: Outcome | null): State[] => {
  if (state.status === null) return []
  const isAccepted = outcome === null || outcome.status < 300
  if (state.status !== from) return isAccepted && outcome !== null ? [] : [state]
  if (!isAccepted) return []
  return OPERATION_STATUSES.filter((to) => canTransition(from, to)).map((to) => ({
    ...state,
    status: to,
    cancelled: state.cancelled || to === 'cancelled',
    version: state.version + 1,
  }))
}
