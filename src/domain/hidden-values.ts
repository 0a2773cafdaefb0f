/**
 * What must not be shown, taken out of what a provider or a handler says: it may well repeat what it was sent. Secrets, and the
 * members of an input that its type masks.
 */
import { sanitiseText } from './failure.ts'
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

/** Answers with a text that holds nothing of the values. It is at most 8/3 as long as the text. */
export type Hide = (text: string) => string

/**
 * Takes each value out: as it is, and as it stands in JSON and in URLs. What is found is marked in the text as it came, and
 * written over at once: a mark is never searched, so no value can make marks out of marks. Values that overlap or touch become
 * one mark, so that nothing of either stays.
 *
 * The forms are sorted, so those that a place of the text can begin with are found by halving, however many there are.
 */
export const hiderOf = (values: readonly string[]): Hide => {
  const forms = sortedForms(values)
  // most types mask nothing
  if (forms.length === 0) return (text) => text
  const within = formsWithin(forms)
  return (text) => {
    const pieces: string[] = []
    let [shownFrom, hiddenTo] = [0, -1]
    for (let at = 0; at < text.length; at++) {
      const rest = text.slice(at)
      const below = countUpTo(forms, rest)
      const length = beginsForm(forms[below], rest) ? rest.length : longestAt(forms, within, below - 1, rest)
      if (length === 0) continue
      if (at > hiddenTo) {
        pieces.push(text.slice(shownFrom, at), HIDDEN)
        hiddenTo = at
      }
      hiddenTo = Math.max(hiddenTo, at + length)
      shownFrom = hiddenTo
    }
    return pieces.length === 0 ? text : pieces.join('') + text.slice(shownFrom)
  }
}

/** By UTF-16 units, as texts are compared; each once. */
const sortedForms = (values: readonly string[]): string[] => {
  const long = values.filter((value) => value.length >= LENGTH_MIN)
  const forms = long.flatMap((value) => [value, JSON.stringify(value).slice(1, -1), encodeUrl(value)])
  return [...new Set(forms)].sort()
}

/** Of each form the place of the longest other one that it begins with, which stands before it; -1: there is none. */
const formsWithin = (forms: readonly string[]): number[] => {
  const within: number[] = []
  for (const [index, form] of forms.entries()) {
    let before = index - 1
    while (before >= 0 && !form.startsWith(forms[before] as string)) before = within[before] as number
    within.push(before)
  }
  return within
}

/** How many forms do not come after the text. */
const countUpTo = (forms: readonly string[], text: string): number => {
  let [low, high] = [0, forms.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((forms[middle] as string) <= text) low = middle + 1
    else high = middle
  }
  return low
}

/** All forms between one that the text begins with and the text begin with it too: so it is the last of them, or within it. */
const longestAt = (forms: readonly string[], within: readonly number[], last: number, text: string): number => {
  let index = last
  while (index >= 0 && !text.startsWith(forms[index] as string)) index = within[index] as number
  return index < 0 ? 0 : (forms[index] as string).length
}

/** The next form after the end of a text is the one that it can be the beginning of. */
const beginsForm = (form: string | undefined, end: string): boolean =>
  form !== undefined && end.length >= BEGINNING_MIN && form.startsWith(end)

/** A lone surrogate has no form in a URL. */
const encodeUrl = (value: string): string => (/\p{Surrogate}/u.test(value) ? value : encodeURIComponent(value))

/** How long each text of an outcome may be, in UTF-16 units: marks can be longer than what they stand for. */
const TEXTS = { reasonCode: 100, message: 500, effectRef: 500, evidenceRef: 500 }

/** What an outcome says, with its texts changed and nothing else; one that has grown over its limit is cut. */
export const hideTexts = <Said extends object>(said: Said, hide: Hide): Said => {
  const texts = Object.entries(TEXTS).flatMap(([member, unitsMax]): [string, string][] => {
    const text: unknown = Reflect.get(said, member)
    if (typeof text !== 'string') return []
    const hidden = hide(text)
    return [[member, hidden.length > text.length ? sanitiseText(hidden, Math.max(unitsMax, text.length)) : hidden]]
  })
  return { ...said, ...Object.fromEntries(texts) }
}
