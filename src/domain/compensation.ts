/**
 * Compensating takes applied effects back: a new operation with an effect key of its own for each item that it undoes. The
 * key names the effect *and its send*, so the registry keeps each undoing from happening twice, and an effect that was
 * applied again afterwards has another undoing.
 *
 * An item with steps is undone as a whole, by one effect: its key names the item's, and the last step and its send, which is
 * what tells one time that the item was applied from the next. Items whose steps were changed since are never mixed up.
 */
import { EFFECT_KEY_BYTES_MAX } from './effect.ts'
import type { PreflightVerdict, StopEvaluation } from './replay.ts'
import { stepKey } from './steps.ts'

/** Begins the effect keys of compensations; no type can make such a key (`isReservedKey`). */
const PREFIX = 'compensate'
const PATTERN = new RegExp(`^${PREFIX}:([1-9][0-9]{0,9})(?:/([a-z][a-z0-9_-]{0,31}))?:([^]+)$`)

/** What is undone: the effect of an item, or all steps of one. */
export interface UndoneEffect {
  /** Of the item. */
  effectKey: string
  /** The last one; '' for an item without steps. */
  step: string
  /** The one that was applied, of the item's effect or of its last step. */
  send: number
}

/** Of a send number, which is an `integer` in the database. */
export const SEND_MAX = 2_147_483_647

/** `compensate:<send>:<effect key>` or `compensate:<send>/<last step>:<effect key>`; storage/compensations.ts makes the same in SQL. */
export const compensationKey = ({ effectKey, step, send }: UndoneEffect): string =>
  `${PREFIX}:${stepKey(String(send), step)}:${effectKey}`

/** What the compensation with this effect key undoes; null: it is the key of no compensation. */
export const parseCompensationKey = (key: string): UndoneEffect | null => {
  const [, send, step = '', effectKey] = PATTERN.exec(key) ?? []
  return send === undefined || effectKey === undefined ? null : { effectKey, step, send: Number(send) }
}

/** Whether a key is the service's own: an item that had it could stand in the way of a compensation. */
export const isReservedKey = (key: string): boolean => PATTERN.test(key)

/** Of the longest key that the registry can hold: an item's and its step's together have `EFFECT_KEY_BYTES_MAX`. */
export const REGISTRY_KEY_BYTES_MAX = EFFECT_KEY_BYTES_MAX + `${PREFIX}:${SEND_MAX}:`.length

export interface CompensationFacts {
  /** The operation is a compensation itself: a new run of the original is what takes it back. */
  isCompensation: boolean
  /** The type says how its effects are taken back. */
  compensable: boolean
  settled: boolean
  replayInProgress: boolean
  compensationInProgress: boolean
  itemsPurged: boolean
  targets: number
  ambiguousEffectTargets: number
  stopIf: readonly StopEvaluation[]
}

/** Refusing costs a question, as for a replay: while anything of the operation is uncertain, nothing of it is undone. */
export const compensationVerdict = (facts: CompensationFacts): PreflightVerdict => {
  const blocks: [string, boolean][] = [
    ['not-compensable', facts.isCompensation],
    ['no-compensation', !facts.compensable],
    ['not-settled', !facts.settled],
    ['replay-in-progress', facts.replayInProgress],
    ['compensation-in-progress', facts.compensationInProgress],
    ['items-purged', facts.itemsPurged],
    ['nothing-to-compensate', facts.targets === 0],
    ['ambiguous_effect_targets > 0', facts.ambiguousEffectTargets > 0],
    ...facts.stopIf.map(({ condition, tripped }): [string, boolean] => [condition, tripped]),
  ]
  const blockedBy = [...new Set(blocks.filter(([, blocked]) => blocked).map(([code]) => code))]
  return { allowed: blockedBy.length === 0, blockedBy }
}
