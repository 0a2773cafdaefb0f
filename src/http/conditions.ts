/** `ETag`, `If-Match` and `If-None-Match` (RFC 9110, 13.1) over the version of an operation. */

export const etagOf = (version: number): string => `"${version}"`

const TAG = /(W\/)?"([^"]*)"/g

const opaqueTags = (header: string, weakToo: boolean): string[] =>
  [...header.matchAll(TAG)].filter((match) => weakToo || match[1] === undefined).map((match) => match[2] as string)

/** Weak comparison, as reads ask for: a proxy may have weakened our tag. */
export const noneMatchHits = (header: string | undefined, version: number): boolean =>
  header !== undefined && (header.trim() === '*' || opaqueTags(header, true).includes(String(version)))

/** No operation has it: a tag that is not a version of ours matches nothing. */
const NEVER_A_VERSION = -1

/**
 * The version that `If-Match` asks for; null when any will do. Of several tags the newest counts: versions only grow,
 * so an older one in the list could match only where the newest was never given.
 */
export const matchVersionOf = (header: string | undefined): number | null => {
  if (header === undefined || header.trim() === '*') return null
  const versions = opaqueTags(header, false)
    .filter((tag) => /^\d{1,15}$/.test(tag))
    .map(Number)
  return Math.max(NEVER_A_VERSION, ...versions)
}
