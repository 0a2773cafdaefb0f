/** What a failure's class permits, and what makes two failures the same cause. */
import { createHash } from 'node:crypto'

export const FAILURE_CLASSES = [
  'transient',
  'validation_rejected',
  'conflict',
  'ambiguous_effect',
  'policy_denied',
  'bug_suspected',
] as const
export type FailureClass = (typeof FAILURE_CLASSES)[number]

/** Where an item of the class ends up when nothing automatic is left to do. */
export type FailurePlace = 'dead_letter' | 'reject_list' | 'person' | 'reconciliation_case' | 'policy' | 'fix_queue'

export const permits: Readonly<Record<FailureClass, { readonly retry: boolean; readonly place: FailurePlace }>> = {
  transient: { retry: true, place: 'dead_letter' },
  validation_rejected: { retry: false, place: 'reject_list' },
  conflict: { retry: false, place: 'person' },
  ambiguous_effect: { retry: false, place: 'reconciliation_case' },
  policy_denied: { retry: false, place: 'policy' },
  bug_suspected: { retry: false, place: 'fix_queue' },
}

/**
 * In so many runs (operations) an effect key may use up its attempts with one fingerprint; the last of them is called
 * `bug_suspected`, as one more run would end the same way.
 */
export const EXHAUSTED_RUNS_MAX = 3

const HIGH_SURROGATE = /[\ud800-\udbff]$/

/**
 * Text from outside (provider bodies, error messages) made fit for text and jsonb columns: U+0000 and lone surrogates
 * become U+FFFD. At most `unitsMax` UTF-16 units; a surrogate pair is not split.
 */
export const sanitiseText = (text: string, unitsMax: number): string => {
  const cut = text.length > unitsMax ? text.slice(0, unitsMax).replace(HIGH_SURROGATE, '') : text
  return cut.replaceAll('\u0000', '\ufffd').replace(/\p{Surrogate}/gu, '\ufffd')
}

const MESSAGE_UNITS_MAX = 300
/** Bounds the work of the patterns below, whatever a provider answers. */
const MESSAGE_READ_UNITS_MAX = 4_000
/** Shorter names would also be found inside ordinary words. */
const NAME_UNITS_MIN = 3

/** In this order: what is longer and more telling first, as numbers would tear the others apart. */
const VARIABLE_PARTS: readonly (readonly [RegExp, string])[] = [
  [/"[^"]{0,500}"|`[^`]{0,500}`|(?<!\w)'[^']{0,500}'(?!\w)/g, '<value>'],
  [/[\w.+-]{1,64}@[\w.-]{1,255}/g, '<email>'],
  [/\b\d{4}-\d{2}-\d{2}(?:[t ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)?(?:z|[+-]\d{2}:?\d{2}|[+-]\d{2})?/g, '<time>'],
  [/\b\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?/g, '<time>'],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '<id>'],
  [/\b[a-z]{1,12}_[0-9a-f]{16,64}\b/g, '<id>'],
  [/\b0x[0-9a-f]{1,64}\b/g, '<id>'],
  [/\b(?=[0-9a-f]{0,64}\d)[0-9a-f]{8,64}\b/g, '<id>'],
  [/\d+(?:[.,]\d+)*/g, '<n>'],
]

/**
 * A message without what differs from item to item, so that one cause gives one text. `names` are the texts that name
 * this very item (its key, its effect key): they are taken out wherever they stand as words.
 */
export const normaliseMessage = (text: string, names: readonly string[] = []): string => {
  let message = sanitiseText(text, MESSAGE_READ_UNITS_MAX).toLowerCase()
  const known = names.filter((name) => name.length >= NAME_UNITS_MIN).sort((a, b) => b.length - a.length)
  for (const name of known) {
    const literal = name.toLowerCase().replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
    message = message.replace(new RegExp(`(?<![\\w<])${literal}(?![\\w>])`, 'g'), '<item>')
  }
  for (const [pattern, placeholder] of VARIABLE_PARTS) message = message.replace(pattern, placeholder)
  return sanitiseText(message.replace(/\s+/g, ' ').trim(), MESSAGE_UNITS_MAX)
}

export interface FailureFacts {
  type: string
  failureClass: FailureClass
  reasonCode: string | null
  message: string | null
  /** Texts that name the item; see `normaliseMessage`. */
  names?: readonly string[]
}

/** 32 hex characters: one value per cause. Neither the item nor the operation is part of it. */
export const fingerprint = ({ type, failureClass, reasonCode, message, names }: FailureFacts): string => {
  const cause = JSON.stringify([
    type,
    failureClass,
    reasonCode,
    message === null ? null : normaliseMessage(message, names),
  ])
  return createHash('sha256').update(cause).digest('hex').slice(0, 32)
}
