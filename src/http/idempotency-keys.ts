import { AppError } from '../domain/errors.ts'
import { MAX_IDEMPOTENCY_KEY_BYTES } from './limits.ts'

const VISIBLE_ASCII = /^[\x21-\x7e]+$/
/** A string of RFC 8941: in quotes, with `\"` and `\\` as its only escapes. */
const QUOTED = /^"((?:[^"\\]|\\["\\])*)"$/

/** The key of `Idempotency-Key`, quoted or bare: both forms of one key are the same key. Null when none was sent. */
export const idempotencyKeyOf = (header: string | string[] | undefined): string | null => {
  if (header === undefined) return null
  const text = Array.isArray(header) ? header.join(', ') : header.trim()
  const key = text.startsWith('"') ? QUOTED.exec(text)?.[1]?.replace(/\\(.)/g, '$1') : text
  if (key === undefined || !VISIBLE_ASCII.test(key) || key.length > MAX_IDEMPOTENCY_KEY_BYTES) {
    const detail = `must be 1 to ${MAX_IDEMPOTENCY_KEY_BYTES} bytes of visible ASCII, bare or in double quotes`
    throw new AppError('invalid-request', `The Idempotency-Key ${detail}`, {
      errors: [{ detail, pointer: 'Idempotency-Key' }],
    })
  }
  return key
}
