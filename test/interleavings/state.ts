/**
 * What a state of the search is: one operation with one shard of two items, two workers, the network, the provider, and a
 * piece of evidence on its way. Plain data; a state is never changed, the statements work on copies of it.
 *
 * Time is not a number here but a set of facts that may become true at any moment: a lease that ran out, an absence that is
 * stable, a call that was given up. So the search covers every speed of everybody.
 */
import type { EffectState } from '../../src/domain/effect.ts'
import type { ItemState } from '../../src/domain/ledger.ts'
import type { OperationStatus } from '../../src/domain/operation.ts'
import type { Rules } from './rules.ts'

export const ITEMS = 2
export const ATTEMPTS_MAX = 2

/** What is searched; every figure bounds how often something goes wrong, never how work goes on. */
export interface World {
  name: string
  /** The effect key of each item; items with one key meet in the registry. */
  keys: readonly [number, number]
  /** Items of a window. */
  window: number
  /** How often the lease of a living worker runs out. That of a dead one always does. */
  expiries: number
  crashes: number
  /** How often a run of a living worker ends in a fault of the database, whatever it has in memory. */
  faults: number
  cancels: boolean
  pauses: number
  /** How often a worker is frozen between the check of a send and the socket: the hole that fencing cannot close. */
  stalls: number
  /** How often a send that is claimed has to wait until after its `send_by`, under a lease that goes on. */
  delays: number
  /** How often the provider refuses a request, and how often a worker gives a call up whose answer does not come. */
  refusals: number
  losses: number
  /** Who brings evidence besides the workers and the lookups. */
  people: boolean
  callbacks: boolean
  /** The provider deduplicates by effect key, the type declares it, and what is uncertain may be sent again. */
  idempotent: boolean
  rules: Rules
}

export interface Shard {
  state: 'ready' | 'leased' | 'done'
  epoch: number
  cursor: number
  /** `lease_expires_at` has passed. */
  expired: boolean
  stop: 'pause' | 'cancel' | null
  /** `stop_seen_at` is set: the stop was acknowledged. */
  seen: boolean
}

export interface Effect {
  state: EffectState
  send: number
  ord: number
  attempt: number
  epoch: number
  /** A repeat of an uncertain send. */
  resend: boolean
  /** `send_by`, the call's timeout and `after_ms` have passed: what has not arrived by now does not arrive any more. */
  stable: boolean
}

export type RetryReason = 'key_known' | 'unsent' | 'failed' | 'confirmed_absent' | 'freed' | 'idempotent_resend'
export type Cause = 'held' | 'elsewhere' | 'duplicate_suspected' | 'contradiction'

export interface Item {
  /** The latest entry of its ledger. */
  outcome: ItemState | null
  retry: { attempt: number; reason: RetryReason } | null
  /** Its open reconciliation case. */
  cause: Cause | null
  /** Attempt of the entry that called it in doubt elsewhere; else 0. */
  doubtAttempt: number
}

/** One send of one item in the memory of a worker, from the claim of its intent until its outcome is written. */
export interface Call {
  at: 'queued' | 'stalled' | 'air' | 'applied' | 'refused' | 'lost' | 'unsent' | 'orphan'
  send: number
  attempt: number
  resend: boolean
}

/** A run of the shard in the memory of a worker: what it believes, which need not be so any more. */
export interface Run {
  epoch: number
  cursor: number
  /** Has looked for what an earlier holder left behind. */
  looked: boolean
  /** A fence did not hold: no claims any more. */
  closed: boolean
  stop: 'pause' | 'cancel' | null
  lost: boolean
  /** Its lease has run out on its own clock. */
  over: boolean
  calls: (Call | null)[]
}

/** Evidence that was found and is not brought home yet. */
export interface Found {
  ord: number
  send: number
  said: 'applied' | 'absent'
  retry: boolean
  source: 'lookup' | 'operator' | 'callback'
}

export interface State {
  shard: Shard
  status: OperationStatus
  started: boolean
  items: Item[]
  /** By key. */
  effects: (Effect | null)[]
  runs: (Run | null)[]
  /** Sends of each item that left a worker and have not arrived. */
  pending: number[][]
  /** What the provider did for each item: how many effects there are in the world. */
  done: number[]
  found: Found | null
  spent: {
    expiries: number
    crashes: number
    faults: number
    pauses: number
    stalls: number
    delays: number
    refusals: number
    losses: number
  }
  /** What the search notes of the hole, and no part of the protocol can know. */
  ghost: {
    /** By item: a request left after the time in which it could arrive was over. */
    escaped: boolean[]
    /** By item: evidence has said of a send that was frozen in the hole, or escaped, that it is absent, and was believed. */
    denied: boolean[]
  }
}

export const initialState = (): State => ({
  shard: { state: 'ready', epoch: 0, cursor: 0, expired: false, stop: null, seen: false },
  status: 'pending',
  started: false,
  items: Array.from({ length: ITEMS }, () => ({ outcome: null, retry: null, cause: null, doubtAttempt: 0 })),
  effects: [null, null],
  runs: [null, null],
  pending: [[], []],
  done: [0, 0],
  found: null,
  spent: { expiries: 0, crashes: 0, faults: 0, pauses: 0, stalls: 0, delays: 0, refusals: 0, losses: 0 },
  ghost: { escaped: [false, false], denied: [false, false] },
})

const copyRun = (run: Run | null): Run | null => run && { ...run, calls: run.calls.map((call) => call && { ...call }) }

export const copyOf = (state: State): State => ({
  shard: { ...state.shard },
  status: state.status,
  started: state.started,
  items: state.items.map((item) => ({ ...item })),
  effects: state.effects.map((effect) => effect && { ...effect }),
  runs: state.runs.map(copyRun),
  pending: state.pending.map((sends) => [...sends]),
  done: [...state.done],
  found: state.found,
  spent: { ...state.spent },
  ghost: { escaped: [...state.ghost.escaped], denied: [...state.ghost.denied] },
})

const bit = (fact: boolean): string => (fact ? '1' : '0')

const keyOfRun = (run: Run | null): string =>
  run === null
    ? '_'
    : `${run.epoch}${run.cursor}${bit(run.looked)}${bit(run.closed)}${run.stop?.[0] ?? '-'}${bit(run.lost)}${bit(run.over)}${run.calls
        .map((call) =>
          call === null ? '-' : `${call.at[0]}${call.at[1]}${call.send}${call.attempt}${bit(call.resend)}`,
        )
        .join('')}`

/** The same for two states exactly when they are the same. */
export const keyOf = (state: State): string => {
  const { shard, items, effects, found, spent, ghost } = state
  let key = `${shard.state[0]}${shard.epoch}${shard.cursor}${bit(shard.expired)}${shard.stop?.[0] ?? '-'}${bit(shard.seen)}${state.status}${bit(state.started)}`
  for (const item of items) {
    key += `|${item.outcome?.[0] ?? '-'}${item.cause?.[0] ?? '-'}${item.doubtAttempt}`
    if (item.retry !== null) key += `${item.retry.attempt}${item.retry.reason.slice(0, 2)}`
  }
  for (const effect of effects) {
    key += '|'
    if (effect !== null) {
      key += `${effect.state[0]}${effect.state[1]}${effect.send}${effect.ord}${effect.attempt}${effect.epoch}${bit(effect.resend)}${bit(effect.stable)}`
    }
  }
  key += `|${keyOfRun(state.runs[0] ?? null)}|${keyOfRun(state.runs[1] ?? null)}`
  key += `|${state.pending.map((sends) => sends.join('')).join(',')}|${state.done.join('')}`
  if (found !== null) key += `${found.ord}${found.send}${found.said}${bit(found.retry)}${found.source[0]}`
  key += `|${spent.expiries}${spent.crashes}${spent.faults}${spent.pauses}${spent.stalls}${spent.delays}${spent.refusals}${spent.losses}`
  return key + ghost.escaped.map(bit).join('') + ghost.denied.map(bit).join('')
}
