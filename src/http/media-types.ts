import { AppError } from '../domain/errors.ts'

interface Range {
  type: string
  subtype: string
  quality: number
}

/** RFC 9110, 12.5.1. Ranges that do not parse are skipped, as if they were not there. */
const parseAccept = (header: string): Range[] =>
  header.split(',').flatMap((part) => {
    const [name = '', ...parameters] = part.split(';').map((piece) => piece.trim().toLowerCase())
    const match = /^([^/\s]+)\/([^/\s]+)$/.exec(name)
    if (match === null) return []
    const quality = Number(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? 1)
    return [{ type: match[1] as string, subtype: match[2] as string, quality: Number.isFinite(quality) ? quality : 1 }]
  })

/** The most specific range decides, so that `text/csv;q=0, * / *` refuses CSV. */
const qualityOf = (ranges: readonly Range[], mediaType: string): number => {
  const [type, subtype] = mediaType.split('/')
  const specificity = (range: Range): number => {
    if (range.type === type && range.subtype === subtype) return 3
    if (range.type === type && range.subtype === '*') return 2
    return range.type === '*' && range.subtype === '*' ? 1 : 0
  }
  const best = ranges.reduce<Range | null>(
    (found, range) => (specificity(range) > (found === null ? 0 : specificity(found)) ? range : found),
    null,
  )
  return best === null ? 0 : best.quality
}

/**
 * Picks what to answer with. `produced` is in our order of preference; no `Accept` means the first.
 * @throws AppError `not-acceptable` when the header excludes all of them
 */
export const negotiate = (accept: string | undefined, produced: readonly [string, ...string[]]): string => {
  if (accept === undefined || accept.trim() === '') return produced[0]
  const ranges = parseAccept(accept)
  let chosen: string | null = null
  let chosenQuality = 0
  for (const mediaType of produced) {
    const quality = qualityOf(ranges, mediaType)
    if (quality > chosenQuality) {
      chosen = mediaType
      chosenQuality = quality
    }
  }
  if (chosen === null)
    throw new AppError(
      'not-acceptable',
      `This resource is available as ${produced.join(', ')}; the Accept header allows none`,
      {
        extra: { available: produced },
      },
    )
  return chosen
}
