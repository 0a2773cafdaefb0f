/**
 * What the model knows: plain data, without a database. Each rule of the service changes it in one step, as one command does in
 * the real system; what the domain decides is decided here by the domain's own functions.
 */
import type { EffectState } from '../../src/domain/effect.ts'
import type { FailureClass } from '../../src/domain/failure.ts'
import { type EvidenceSource, fold, type ItemState } from '../../src/domain/ledger.ts'
import type { Counts, OperationStatus } from '../../src/domain/operation.ts'
import type { SendOutcome } from '../../src/domain/operation-type.ts'
import type { CaseCause } from '../../src/domain/reconciliation.ts'
import { stepKey } from '../../src/domain/steps.ts'
import type { Provider } from './provider.ts'

/**
 * The kinds of operation types under test: external ones whose confirmed absence is retried, is for a person, or whose provider
 * deduplicates by effect key; one with steps; and a transactional one.
 */
export const FLAVOURS = ['retried', 'by-hand', 'idempotent', 'stepped', 'batch'] as const
export type Flavour = (typeof FLAVOURS)[number]

export const CONCURRENCY = 2
export const MAX_ATTEMPTS = 2
export const STEPS = ['reserve', 'book', 'tell'] as const
/** What a worker has claimed and not brought home, at most. */
export const OUTSTANDING_MAX = 2 * CONCURRENCY

export const stepsOf = (flavour: Flavour): readonly string[] => (flavour === 'stepped' ? STEPS : [])

export interface Entry {
  step: string
  attempt: number
  /** Null: an observation. */
  state: ItemState | null
  failureClass: FailureClass | null
  reasonCode: string | null
  send: number | null
  source: EvidenceSource
}

/** An item that waits; what it is meanwhile is its last entry. */
export interface Retry {
  step: string
  attempt: number
  reason: string
  due: boolean
}

export interface Case {
  id: string | null
  cause: CaseCause
  step: string
  effectKey: string
  send: number
}

export interface Item {
  ord: number
  key: string
  /** Without the step. */
  effectKey: string
  entries: Entry[]
  retry: Retry | null
  /** An item has one open case at most. */
  open: Case | null
  /** Of the closed ones, in order. */
  resolutions: ('applied' | 'not_applied')[]
}

export interface Shard {
  index: number
  fromOrd: number
  toOrd: number
  cursor: number
  state: 'ready' | 'leased' | 'done'
  /** Where it is ready: may be claimed now. */
  due: boolean
  epoch: number
  /** Its lease has run out by the clock of the database. */
  expired: boolean
  stop: null | 'pause' | 'cancel'
  stopSeen: boolean
  appliedAfterCancel: number
}

export interface Operation {
  id: string
  flavour: Flavour
  type: string
  status: OperationStatus
  cancelled: boolean
  paused: boolean
  started: boolean
  /** As last seen; only grows. */
  version: number
  /** What was seen of it at that version. */
  seen: string
  items: Item[]
  shards: Shard[]
  replayOf: string | null
}

/** The registry's row of an effect key. */
export interface Effect {
  key: string
  state: EffectState
  send: number
  operationId: string
  shard: number
  ord: number
  step: string
  attempt: number
  epoch: number
  /** The time has passed in which this send could begin. */
  sendByPassed: boolean
}

export interface DeadLetter {
  operationId: string
  ord: number
  effectKey: string
  failureClass: FailureClass
  fingerprint: string
}

export interface Preflight {
  id: string
  operationId: string
  wide: boolean
  /** What the answer was bound to. */
  facts: string
  usedBy: string | null
}

/** A claimed send in the memory of a worker. */
export interface Held {
  ord: number
  key: string
  step: string
  effectKey: string
  send: number
  attempt: number
  resend: boolean
  sendByPassed: boolean
  answer: SendOutcome | 'unsent' | null
}

/** One shard in the hands of one worker: all of it is lost when the worker is killed. */
export interface Run {
  workerId: string
  operationId: string
  shard: number
  epoch: number
  cursor: number
  phase: 'claimed' | 'explained' | 'running'
  held: Held[]
  /** The stop that the worker knows of. */
  stop: null | 'pause' | 'cancel'
  /** The worker knows that somebody else holds the shard. */
  lost: boolean
  /** The lease is over by the worker's own clock. */
  over: boolean
  /** A fence refused a claim: none may follow in this run. */
  closed: boolean
}

export interface World {
  /** Names this sequence: types and effect keys begin with it. */
  name: string
  operations: Operation[]
  effects: Map<string, Effect>
  deadLetters: DeadLetter[]
  preflights: Preflight[]
  runs: (Run | null)[]
  /** Workers that stand still with what they know, while others take over. */
  frozen: Run[]
  provider: Provider
}

export const operationOf = (world: World, id: string): Operation => {
  const found = world.operations.find((operation) => operation.id === id)
  if (!found) throw new Error(`the model knows no operation ${id}`)
  return found
}

export const itemOf = (operation: Operation, ord: number): Item => {
  const item = operation.items[ord]
  if (!item) throw new Error(`the model knows no item ${ord}`)
  return item
}

export const shardOf = (operation: Operation, index: number): Shard => {
  const shard = operation.shards[index]
  if (!shard) throw new Error(`the model knows no shard ${index}`)
  return shard
}

export const itemsOf = (operation: Operation, shard: Shard): Item[] => operation.items.slice(shard.fromOrd, shard.toOrd)

/** The entry that stands for an item; null: unprocessed. */
export const outcomeOf = (item: Item): (Entry & { state: ItemState }) | null =>
  fold(item.entries.map((entry, seq) => ({ ...entry, seq })))

export const keyOf = (item: Item, step: string): string => stepKey(item.effectKey, step)

/** Null: it is the last one, or the item has no steps. */
export const nextStep = (flavour: Flavour, step: string): string | null => {
  const steps = stepsOf(flavour)
  return step === '' ? null : (steps[steps.indexOf(step) + 1] ?? null)
}

export const intentsOf = (world: World, operation: Operation, shard: Shard): Effect[] =>
  [...world.effects.values()].filter(
    (effect) => effect.state === 'intent' && effect.operationId === operation.id && effect.shard === shard.index,
  )

export const countsOf = (items: readonly Item[]): Counts => {
  const count = (state: ItemState): number => items.filter((item) => outcomeOf(item)?.state === state).length
  return {
    total: items.length,
    applied: count('applied'),
    skipped: count('skipped'),
    failed: count('failed'),
    uncertain: count('uncertain'),
  }
}
