/** Why a text cannot be stored (PostgreSQL's text and jsonb refuse both), or null when it can. */
export const findTextFault = (text: string): string | null => {
  if (text.includes('\u0000')) return 'contains the character U+0000, which cannot be stored'
  if (LONE_SURROGATE.test(text)) return 'contains a lone surrogate (half of a UTF-16 pair), which is no text'
  return null
}

// With the `u` flag a well-formed pair is one code point, so this meets only halves.
const LONE_SURROGATE = /\p{Surrogate}/u

export const byteLength = (text: string): number => Buffer.byteLength(text, 'utf8')

/** RFC 6901. */
export const toPointer = (path: readonly PropertyKey[]): string =>
  path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
