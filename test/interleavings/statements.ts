/**
 * The statements of src/storage/run, and of the services around it, as pure functions of a draft: each is one commit, and is
 * atomic as its statement is under the lock of the shard row. What the domain decides is asked of the domain. The replay on
 * PostgreSQL (test/storage/interleavings.test.ts) holds them to what the SQL does.
 */
import { claimDecision, evidenceDecision } from '../../src/domain/effect.ts'
import type { ItemState } from '../../src/domain/ledger.ts'
import { type Counts, canTransition, isFinal, type OperationStatus, settle } from '../../src/domain/operation.ts'
import type { Rules } from './rules.ts'
import {
  type Cause,
  type Effect,
  ITEMS,
  type Item,
  type RetryReason,
  type Run,
  type State,
  type World,
} from './state.ts'

const OPERATION = 'op'

const itemOf = (state: State, ord: number): Item => state.items[ord] as Item
const keyOfItem = (world: World, ord: number): number => world.keys[ord] as number
export const effectOf = (state: State, world: World, ord: number): Effect | null =>
  state.effects[keyOfItem(world, ord)] ?? null

export const isMine = ({ shard }: State, run: Pick<Run, 'epoch'>): boolean =>
  shard.state === 'leased' && shard.epoch === run.epoch

/** Items whose intent it is. */
export const inFlight = (state: State): number => state.effects.filter((effect) => effect?.state === 'intent').length
export const waiting = (state: State): number => state.items.filter((item) => item.retry !== null).length

export const countsOf = (state: State): Counts => {
  const count = (outcome: ItemState): number => state.items.filter((item) => item.outcome === outcome).length
  return {
    total: ITEMS,
    applied: count('applied'),
    skipped: count('skipped'),
    failed: count('failed'),
    uncertain: count('uncertain'),
  }
}

const newRun = ({ shard }: State): Run => ({
  epoch: shard.epoch,
  cursor: shard.cursor,
  looked: shard.epoch === 1,
  closed: false,
  stop: shard.stop,
  lost: false,
  over: false,
  calls: Array.from({ length: ITEMS }, () => null),
})

const markStarted = (state: State, run: Run): void => {
  if (run.stop !== null || state.status !== 'pending') return
  state.status = 'running'
  state.started = true
}

/** claimReadyShards, and markStarted. */
export const claimShard = (state: State, worker: number): void => {
  state.shard.state = 'leased'
  state.shard.epoch++
  state.shard.expired = false
  const run = newRun(state)
  state.runs[worker] = run
  markStarted(state, run)
}

/** claimExpiredShards, and markStarted. */
export const takeOver = (state: State, worker: number, rules: Rules): void => {
  const { shard } = state
  if (rules.takeoverRaisesEpoch) shard.epoch++
  shard.expired = false
  if (shard.stop !== null) shard.seen = true
  const run = { ...newRun(state), looked: false }
  state.runs[worker] = run
  markStarted(state, run)
}

const take = (
  state: State,
  world: World,
  run: Run,
  ord: number,
  { attempt, resend }: { attempt: number; resend: boolean },
): void => {
  const key = keyOfItem(world, ord)
  const send = (state.effects[key]?.send ?? 0) + 1
  state.effects[key] = { state: 'intent', send, ord, attempt, epoch: run.epoch, resend, stable: false }
  run.calls[ord] = { at: 'queued', send, attempt, resend }
  // only a statement that was on its way when the lease ended is still a claim; none follows it
  if (run.over) run.closed = true
}

/** claimIntents of the window behind the cursor that the run believes in. */
export const claimWindow = (state: State, world: World, run: Run): void => {
  const { shard } = state
  const { rules } = world
  const holds =
    (isMine(state, run) || (!rules.windowNamesEpoch && shard.state === 'leased')) &&
    (shard.stop === null || !rules.windowNeedsNoStop) &&
    (shard.cursor === run.cursor || !rules.windowNamesCursor)
  if (!holds) {
    run.closed = true
    return
  }
  const to = Math.min(ITEMS, run.cursor + world.window)
  for (let ord = run.cursor; ord < to; ord++) {
    const known = effectOf(state, world, ord) !== null
    if (known && rules.windowKeepsKnownKeys) itemOf(state, ord).retry = { attempt: 1, reason: 'key_known' }
    else take(state, world, run, ord, { attempt: 1, resend: false })
  }
  shard.cursor = to
  run.cursor = to
}

/** claimRetries of one item that waits. */
export const claimRetry = (state: State, world: World, run: Run, ord: number): void => {
  const { shard } = state
  const { rules } = world
  const item = itemOf(state, ord)
  const holds =
    (isMine(state, run) || (!rules.retryNamesEpoch && shard.state === 'leased')) &&
    (shard.stop === null || !rules.retryNeedsNoStop)
  if (!holds) {
    run.closed = true
    return
  }
  if (item.retry === null) return
  const effect = effectOf(state, world, ord)
  const resend = item.retry.reason === 'idempotent_resend'
  const free = isFree(effect, ord) || (resend && effect?.state === 'uncertain' && effect.ord === ord)
  if (!free && rules.retryNeedsFreeKey) return
  take(state, world, run, ord, { attempt: item.retry.attempt, resend })
  item.retry = null
}

const decide = (effect: Effect | null, ord: number) =>
  claimDecision(effect && { state: effect.state, operationId: OPERATION, ord: effect.ord }, {
    operationId: OPERATION,
    ord,
    isLastStep: true,
  })

const isFree = (effect: Effect | null, ord: number): boolean => decide(effect, ord) === 'claim'

/** What explainKnownKeys would make of an item that waits; null: it waits on. */
export const explanationOf = (state: State, world: World, ord: number): 'skip' | 'in-doubt' | 'known' | null => {
  const { retry } = itemOf(state, ord)
  const effect = effectOf(state, world, ord)
  if (retry === null || effect === null) return null
  // a resend of its own is not explained by the doubt that it is there for
  const decision = decide(effect, ord)
  if (decision === 'known') return effect.state === 'applied' ? 'known' : null
  return decision === 'skip' || decision === 'in-doubt' ? decision : null
}

export const explainKnown = (state: State, world: World, run: Run, ord: number): void => {
  const explanation = explanationOf(state, world, ord)
  if (explanation === null || !isMine(state, run)) return
  const item = itemOf(state, ord)
  const attempt = item.retry?.attempt ?? 1
  item.retry = null
  if (explanation === 'skip') item.outcome = 'skipped'
  if (explanation !== 'in-doubt') return
  item.outcome = 'uncertain'
  item.cause = 'elsewhere'
  item.doubtAttempt = attempt
}

export interface Report {
  ord: number
  send: number
  source: 'worker' | 'recovery' | Found
  to: 'applied' | 'absent' | 'uncertain'
  /** Null: it was never sent. */
  item: ItemState | null
  retry: RetryReason | null
}
type Found = 'lookup' | 'operator' | 'callback'

/** converge, and what convergeEvidence makes of a report that moved nothing. True: it moved the effect. */
export const converge = (state: State, world: World, report: Report): boolean => {
  const { rules } = world
  const effect = effectOf(state, world, report.ord)
  if (effect === null) return false
  const evidence = { to: report.to, send: rules.evidenceNamesSend ? report.send : effect.send, operationId: OPERATION }
  const decision = evidenceDecision({ effect: { ...effect, operationId: OPERATION }, evidence })
  const overwritten = !rules.appliedStays && effect.state === 'applied' && report.to !== 'applied'
  if (decision !== 'move' && !overwritten) {
    if (report.source !== 'operator') observe(state, report, decision)
    return false
  }
  move(state, world, effect, report)
  return true
}

const move = (state: State, world: World, effect: Effect, report: Report): void => {
  const item = itemOf(state, report.ord)
  const tookBack = report.item === null && effect.state === 'uncertain' && report.to === 'absent'
  effect.state = report.to
  // the call is over: from now on the time runs in which it may still arrive
  if (report.source === 'worker') effect.stable = false
  if (tookBack) item.outcome = 'failed'
  else if (report.item !== null) item.outcome = report.item
  const waited = item.retry !== null
  const isCharged = report.item !== null && report.retry !== 'unsent'
  item.retry =
    report.retry === null ? null : { attempt: isCharged ? effect.attempt + 1 : effect.attempt, reason: report.retry }
  if (report.to === 'uncertain') {
    if (item.cause === null || holdsNothing(item.cause)) item.cause = 'held'
  } else if (item.cause === 'held') item.cause = null
  reopen(state, world.rules, !waited && item.retry !== null)
}

const holdsNothing = (cause: Cause): boolean => cause === 'duplicate_suspected' || cause === 'contradiction'

const reopen = ({ shard }: State, rules: Rules, waits: boolean): void => {
  if (rules.waitingReopensShard && waits && shard.state === 'done' && shard.stop === null) shard.state = 'ready'
}

/** recordObservation: an item that has no open case gets one. */
const observe = (state: State, report: Report, decision: ReturnType<typeof evidenceDecision>): void => {
  const item = itemOf(state, report.ord)
  if (item.outcome === null || item.cause !== null) return
  if (decision === 'contradiction') item.cause = 'contradiction'
  if (decision === 'older-send' && report.to === 'applied') item.cause = 'duplicate_suspected'
}

/** closeExplainedDoubts of one item. */
export const closeDoubt = (state: State, world: World, ord: number): void => {
  const item = itemOf(state, ord)
  const applied = effectOf(state, world, ord)?.state === 'applied'
  item.cause = null
  item.outcome = applied ? 'skipped' : 'failed'
  if (!applied) item.retry ??= { attempt: item.doubtAttempt, reason: 'freed' }
  item.doubtAttempt = 0
  reopen(state, world.rules, !applied)
}

export const isExplained = (state: State, world: World, ord: number): boolean => {
  const effect = effectOf(state, world, ord)
  return itemOf(state, ord).cause === 'elsewhere' && (effect?.state === 'applied' || effect?.state === 'absent')
}

/** queueResend. */
export const queueResend = (state: State, ord: number, attempt: number): void => {
  itemOf(state, ord).retry = { attempt: attempt + 1, reason: 'idempotent_resend' }
  if (state.shard.state === 'done') state.shard.state = 'ready'
}

/** finishShard; the run is over whatever it answers. */
export const finishShard = (state: State, rules: Rules, run: Run): void => {
  const { shard } = state
  const named = shard.epoch === run.epoch || !rules.finishNamesEpoch
  const idle = inFlight(state) === 0 || !rules.finishNeedsNothingInFlight
  if (shard.state !== 'leased' || !named || !idle) return
  const over = shard.stop !== null || (shard.cursor >= ITEMS && waiting(state) === 0)
  shard.state = over ? 'done' : 'ready'
  shard.expired = false
  shard.seen = shard.stop !== null
}

/** endLease: without a rest, as time is no matter here. */
export const endLease = (state: State, rules: Rules, run: Run): void => {
  const { shard } = state
  if (!isMine(state, run)) return
  if (rules.endedLeaseStaysLeased) shard.expired = true
  else shard.state = 'ready'
}

/** requestCancel, requestPause. */
export const requestStop = (state: State, stop: 'pause' | 'cancel', rules: Rules): void => {
  const { shard } = state
  shard.stop = stop
  shard.seen = shard.state !== 'leased' || !rules.stopWaitsForHolder
  if (shard.state !== 'leased') shard.state = 'done'
  if (stop === 'pause') state.status = 'pause_requested'
  else if (state.status !== 'reconciliation_required') state.status = 'cancel_requested'
}

export const resume = (state: State): void => {
  const { shard } = state
  shard.stop = null
  shard.seen = false
  if (shard.state !== 'leased') shard.state = shard.cursor < ITEMS || waiting(state) > 0 ? 'ready' : 'done'
  state.status = state.started ? 'running' : 'pending'
}

/** acknowledgeStops. */
export const acknowledge = (state: State): void => {
  state.shard.seen = true
}

/** The same few facts come up in every state: they are decided once. */
const settled = new Map<string, OperationStatus>()

export const settledStatus = (state: State): OperationStatus => {
  const { shard, status, started } = state
  const flying = inFlight(state)
  const waits = waiting(state)
  const outcomes = state.items.map((item) => item.outcome?.[0] ?? '-').join('')
  const facts = `${status}${shard.stop}${started}${shard.state}${flying}${waits}${outcomes}`
  const known = settled.get(facts)
  if (known !== undefined) return known
  const decided = settle({
    status,
    stop: shard.stop,
    started,
    shardsOpen: shard.state !== 'done',
    inFlight: flying,
    waiting: waits,
    counts: countsOf(state),
  })
  settled.set(facts, decided)
  return decided
}

/** settleOperation. Throws where the service does. */
export const settleOperation = (state: State): void => {
  const status = settledStatus(state)
  if (!canTransition(state.status, status)) throw new Error(`settle wants ${state.status} → ${status}`)
  state.status = status
  if (!['pending', 'pause_requested', 'paused', 'cancelled'].includes(status)) state.started = true
}

export const isOver = (state: State): boolean => isFinal(state.status)
