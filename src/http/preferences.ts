import { MAX_WAIT_SECONDS } from './limits.ts'

/**
 * `Prefer: wait=N` (RFC 7240), in whole seconds, at most `MAX_WAIT_SECONDS`; null when not asked for. As the RFC wants,
 * a preference that cannot be read is as if it were not there.
 */
export const waitSecondsOf = (header: string | string[] | undefined): number | null => {
  const text = Array.isArray(header) ? header.join(',') : (header ?? '')
  for (const preference of text.split(',')) {
    const match = /^\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;|$)/i.exec(preference)
    if (match !== null) return Math.min(Number(match[1]), MAX_WAIT_SECONDS)
  }
  return null
}
