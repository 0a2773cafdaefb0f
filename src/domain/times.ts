const DB_TIME = /^(\d{4,}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d+)?)(Z|[+-]\d{2})(?::?(\d{2}))?$/

/**
 * The database's text as RFC 3339: `2026-11-29 14:20:18.123456+00` → `2026-11-29T14:20:18.123456Z`. Microseconds are
 * kept, which a JS Date would drop.
 */
export const toRfc3339 = (dbTime: string): string => {
  const match = DB_TIME.exec(dbTime)
  if (match === null) return dbTime
  const [, date, clock, hours = 'Z', minutes = '00'] = match
  const offset = hours === 'Z' || (Number(hours) === 0 && minutes === '00') ? 'Z' : `${hours}:${minutes}`
  return `${date}T${clock}${offset}`
}

export const toRfc3339OrNull = (dbTime: string | null): string | null => (dbTime === null ? null : toRfc3339(dbTime))

/** Milliseconds since the epoch, for ages and rates only. */
export const toMillis = (dbTime: string): number => Date.parse(toRfc3339(dbTime))

const EARLIEST_YEAR = 1970
/** PostgreSQL reads no larger offsets; real ones end at +14:00. */
const MAX_OFFSET_HOURS = 14

/** What is wrong with an RFC 3339 time that a client gave, or null: it is in the range that PostgreSQL and people read alike. */
export const timeFault = (text: string): string | null => {
  if (Number(text.slice(0, 4)) < EARLIEST_YEAR) return `must not be before ${EARLIEST_YEAR}`
  const offsetHours = Number(/[+-](\d\d):\d\d$/.exec(text)?.[1] ?? 0)
  return offsetHours > MAX_OFFSET_HOURS ? `must have an offset of at most ${MAX_OFFSET_HOURS} hours` : null
}
