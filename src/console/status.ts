import type { Operation } from './api/types.ts'
import { formatCount, type Language } from './format.ts'
import type { Texts } from './texts.ts'

/** What an operation is doing, in words that are true: PRODUCT's table of statuses, with the counts that matter. */
export type Tone = 'neutral' | 'active' | 'good' | 'warning' | 'bad'

const TONES: Readonly<Record<string, Tone>> = {
  draft: 'neutral',
  awaiting_approval: 'warning',
  pending: 'neutral',
  running: 'active',
  pause_requested: 'active',
  paused: 'warning',
  cancel_requested: 'active',
  reconciliation_required: 'warning',
  succeeded: 'good',
  partially_succeeded: 'warning',
  failed: 'bad',
  cancelled: 'neutral',
  completed_after_cancel: 'warning',
}

export const toneOf = (status: string): Tone => TONES[status] ?? 'neutral'

/** A status that a newer service has is shown as it is. */
export const statusName = (status: string, t: Texts): string => lookUp(t.status, status)

/** The texts of values that may grow: the value itself where we have none. */
export const lookUp = (texts: Readonly<Record<string, string>>, value: string): string => texts[value] ?? value

const FINAL: ReadonlySet<string> = new Set([
  'succeeded',
  'partially_succeeded',
  'failed',
  'cancelled',
  'completed_after_cancel',
])

export const isFinal = (status: string): boolean => FINAL.has(status)

/** Something changes without a person: worth asking often. */
export const isMoving = (status: string): boolean =>
  ['pending', 'running', 'pause_requested', 'cancel_requested'].includes(status)

/** What a person may ask of an operation now. The service has the last word. */
export interface Possible {
  start: boolean
  decide: boolean
  pause: boolean
  resume: boolean
  cancel: boolean
  /** A preflight may look, as nothing moves by itself any more. */
  replay: boolean
}

export const possibleFor = ({ status, cancel }: Pick<Operation, 'status' | 'cancel'>): Possible => ({
  start: status === 'draft',
  decide: status === 'awaiting_approval',
  pause: status === 'pending' || status === 'running',
  resume: status === 'paused' || status === 'pause_requested',
  cancel: cancel.possible && cancel.requested_at === null && status !== 'cancel_requested',
  replay: isFinal(status) || status === 'reconciliation_required',
})

const PARTS = ['applied', 'skipped', 'failed', 'uncertain', 'unprocessed'] as const

/**
 * `Stopping, checking results: 2,300 applied, 47,697 not processed, 3 being checked`. Every outcome that occurred is
 * named, whatever the status: nobody reads "cancelled" as "nothing happened".
 */
export const statusSentence = (
  operation: Pick<Operation, 'status' | 'counts' | 'waiting_for'>,
  t: Texts,
  language: Language,
): string => {
  const { status, counts, waiting_for } = operation
  const head =
    status === 'pending' && waiting_for.length > 0 ? t.waitingForOthers(waiting_for.length) : headOf(operation, t)
  const parts = PARTS.filter((part) => counts[part] > 0).map((part) =>
    t.outcome[part](formatCount(counts[part], language)),
  )
  return parts.length === 0 ? head : `${head}: ${parts.join(', ')}`
}

const headOf = ({ status, counts }: Pick<Operation, 'status' | 'counts'>, t: Texts): string => {
  const touched = counts.applied + counts.skipped + counts.failed + counts.uncertain
  if (status === 'cancelled') return touched === 0 ? t.cancelledUntouched : t.cancelledTouched
  return lookUp(t.sentence, status)
}
