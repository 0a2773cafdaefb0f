/**
 * What must not be shown, taken out of what a provider or a handler says: it may well repeat what it was sent. Secrets, and the
 * members of an input that its type masks.
 */
import { readPointer } from './json-pointer.ts'
import type { Json } from './operation-type.ts'

export const HIDDEN = '[hidden]'

/** Shorter ones would be found in everything; who masks a "7" hides nothing by it. */
const LENGTH_MIN = 3
/** A text that was cut may end within a value: so much of it, or more, is taken for its beginning. */
const BEGINNING_MIN = 4
/** Of one input; what is masked are members, not tables. */
const VALUES_MAX = 1_000

/** The texts and numbers below the pointers (RFC 6901) of a mask. */
export const maskedValues = (input: Json, pointers: readonly string[]): string[] => {
  const values: string[] = []
  const pending: unknown[] = pointers.map((pointer) => readPointer(input, pointer))
  while (pending.length > 0 && values.length < VALUES_MAX) {
    const value = pending.pop()
    if (typeof value === 'string' || typeof value === 'number') values.push(String(value))
    else if (typeof value === 'object' && value !== null) pending.push(...Object.values(value))
  }
  return values
}

/** Takes each value out: as it is, and as it stands in JSON and in URLs. */
export const hideValues = (text: string, values: readonly string[]): string => {
  const forms = values
    .filter((value) => value.length >= LENGTH_MIN)
    .flatMap((value) => [value, JSON.stringify(value).slice(1, -1), encodeUrl(value)])
    // the longest first: one can be a part of another
    .sort((a, b) => b.length - a.length)
  let hidden = text
  for (const form of forms) hidden = hidden.replaceAll(form, HIDDEN)
  return withoutBeginning(hidden, forms)
}

/** A lone surrogate has no form in a URL. */
const encodeUrl = (value: string): string => (/\p{Surrogate}/u.test(value) ? value : encodeURIComponent(value))

const TEXTS = ['reasonCode', 'message', 'effectRef', 'evidenceRef'] as const

/** What an outcome says, with its texts changed and nothing else. */
export const hideTexts = <Said extends object>(said: Said, hide: (text: string) => string): Said => {
  const texts = TEXTS.flatMap((member): [string, string][] => {
    const text: unknown = Reflect.get(said, member)
    return typeof text === 'string' ? [[member, hide(text)]] : []
  })
  return { ...said, ...Object.fromEntries(texts) }
}

const withoutBeginning = (text: string, forms: readonly string[]): string => {
  for (const form of forms) {
    for (let length = Math.min(form.length - 1, text.length); length >= BEGINNING_MIN; length--) {
      if (text.endsWith(form.slice(0, length))) return `${text.slice(0, -length)}${HIDDEN}`
    }
  }
  return text
}
