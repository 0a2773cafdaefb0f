import { isUtf8 } from 'node:buffer'
import { AppError, type ErrorCode } from '../domain/errors.ts'
import type { Json } from '../domain/operation-type.ts'
import { MAX_JSON_DEPTH } from './limits.ts'
import { findTextFault, toPointer } from './text.ts'

/**
 * Parses a request body and refuses what would not survive the way through storage and back: other encodings than UTF-8,
 * deep nesting, NUL and lone surrogates, numbers that a double rounds, keys that reach into prototypes.
 *
 * Nothing here recurses: depth is bounded by a scan of the text before the parser sees it, and the walk keeps its own
 * stack. An empty body is `undefined`.
 */
export const parseJsonBody = (body: Buffer): Json | undefined => {
  if (!isUtf8(body)) throw refusal('malformed-json', 'is not valid UTF-8')
  const text = body.toString('utf8').replace(/^\uFEFF/, '')
  if (text.trim() === '') return undefined
  refuseDepth(text)
  const value = parse(text)
  refuseUnsafe(value)
  return value
}

/** Of the whole text: each refusal has `errors`, so that a line of an upload can be named in place of the body. */
const refusal = (code: ErrorCode, detail: string, cause?: unknown): AppError =>
  new AppError(code, `The body ${detail}`, { errors: [{ detail, pointer: '' }], cause })

const parse = (text: string): Json => {
  try {
    return JSON.parse(text) as Json
  } catch (cause) {
    const position = cause instanceof Error ? /position (\d+)/.exec(cause.message)?.[1] : undefined
    const where = position === undefined ? '' : ` (at character ${position})`
    throw refusal('malformed-json', `is not valid JSON${where}`, cause)
  }
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const isOpening = (code: number) => code === 0x5b || code === 0x7b
const isClosing = (code: number) => code === 0x5d || code === 0x7d

const refuseDepth = (text: string): void => {
  let depth = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (inString) {
      if (code === BACKSLASH) i++
      else if (code === QUOTE) inString = false
    } else if (code === QUOTE) inString = true
    else if (isClosing(code)) depth--
    else if (isOpening(code) && ++depth > MAX_JSON_DEPTH)
      throw refusal('invalid-request', `is nested more than ${MAX_JSON_DEPTH} levels deep (at character ${i})`)
  }
}

/** Member names that reach into prototypes. */
export const FORBIDDEN_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

interface Frame {
  readonly container: Json[] | { [key: string]: Json }
  readonly keys: readonly string[] | null
  index: number
}

const refuseUnsafe = (root: Json): void => {
  const stack: Frame[] = []
  const path = (): string =>
    toPointer(stack.map((frame) => (frame.keys === null ? frame.index - 1 : (frame.keys[frame.index - 1] ?? ''))))
  const visit = (value: Json): void => {
    if (typeof value === 'string') refuseText(value, path)
    else if (typeof value === 'number') refuseNumber(value, path)
    else if (typeof value === 'object' && value !== null)
      stack.push({ container: value, keys: Array.isArray(value) ? null : Object.keys(value), index: 0 })
  }
  visit(root)
  for (let frame = stack.at(-1); frame !== undefined; frame = stack.at(-1)) {
    const { container, keys } = frame
    const size = Array.isArray(container) ? container.length : (keys?.length ?? 0)
    if (frame.index >= size) {
      stack.pop()
      continue
    }
    const index = frame.index++
    if (Array.isArray(container)) visit(container[index] as Json)
    else {
      const key = keys?.[index] as string
      refuseKey(key, path)
      visit(container[key] as Json)
    }
  }
}

const refuseKey = (key: string, path: () => string): void => {
  if (FORBIDDEN_KEYS.has(key))
    throw new AppError('invalid-request', `The member name ${key} is not allowed`, {
      errors: [{ detail: `the member name ${key} is not allowed`, pointer: path() }],
    })
  refuseText(key, path)
}

const refuseText = (text: string, path: () => string): void => {
  const fault = findTextFault(text)
  if (fault === null) return
  // The pointer of a bad member name would carry the bad text back: it is made harmless.
  const pointer = path()
    .replaceAll('\u0000', '\uFFFD')
    .replace(/\p{Surrogate}/gu, '\uFFFD')
  throw new AppError('invalid-text', `The body ${fault}`, { errors: [{ detail: fault, pointer }] })
}

/** Numbers over 2^53 − 1 are refused, not rounded: a client that means them sends a string. */
const refuseNumber = (value: number, path: () => string): void => {
  if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return
  const detail = 'is a number beyond ±(2^53 − 1), which cannot be kept exactly; send it as a string'
  throw new AppError('invalid-request', 'The body contains a number beyond ±(2^53 − 1)', {
    errors: [{ detail, pointer: path() }],
  })
}
