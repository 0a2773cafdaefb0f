/** Numbers and times as people read them, in their language. Pure: the time is given. */
export type Language = 'en' | 'ko'

export const formatCount = (value: number, language: Language): string => new Intl.NumberFormat(language).format(value)

/** 0.046 → `4.6%`; what is not all is never called 100%, and what is not nothing never 0%. */
export const formatShare = (share: number, language: Language): string => {
  // tenths of a percent, rounded down; the small addend is above the error of the multiplication
  const tenths = Math.floor(share * 1_000 + 1e-6)
  const shown = share > 0 && share < 1 ? Math.min(999, Math.max(1, tenths)) : tenths
  return `${new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(shown / 10)}%`
}

export const formatRate = (perSecond: number, language: Language): string =>
  new Intl.NumberFormat(language, { maximumFractionDigits: perSecond < 10 ? 1 : 0 }).format(perSecond)

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
] as const

/** The two largest units: `2 hr 5 min`, `3 days 4 hr`; under a second `0 sec`. */
export const formatDuration = (seconds: number, language: Language): string => {
  const whole = Math.max(0, Math.round(seconds))
  const first = UNITS.findIndex(([, size]) => whole >= size)
  const index = first === -1 ? UNITS.length - 1 : first
  const parts: string[] = []
  let rest = whole
  for (const [unit, size] of UNITS.slice(index, index + 2)) {
    const value = Math.floor(rest / size)
    rest -= value * size
    if (value > 0 || parts.length === 0)
      parts.push(new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'short' }).format(value))
  }
  return parts.join(' ')
}

/** `3 min. ago`, `in 2 hr.`. */
export const formatRelative = (at: string, nowMs: number, language: Language): string => {
  const seconds = Math.round((Date.parse(at) - nowMs) / 1000)
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1]
  return new Intl.RelativeTimeFormat(language, { style: 'short', numeric: 'auto' }).format(
    Math.trunc(seconds / size),
    unit,
  )
}

export const formatTime = (at: string, language: Language): string =>
  new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(at))

/** Seconds from `at` to now; never negative, as clocks differ. */
export const secondsSince = (at: string, nowMs: number): number => Math.max(0, (nowMs - Date.parse(at)) / 1000)

/** Null where there is none, or it has passed: then nobody knows. */
export const secondsUntil = (at: string | null, nowMs: number): number | null => {
  if (at === null) return null
  const seconds = (Date.parse(at) - nowMs) / 1000
  return seconds > 0 ? seconds : null
}

/** A figure of the health report, by the unit that its name ends with. */
export const formatFigure = (figure: string, value: number, language: Language): string => {
  if (figure.endsWith('_seconds')) return formatDuration(value, language)
  if (figure.endsWith('_ms')) return `${formatCount(Math.round(value), language)} ms`
  if (figure.endsWith('_rate') || figure.endsWith('_ratio')) return formatShare(value, language)
  return formatCount(value, language)
}

/** Of a stop condition: counts are whole, rates are shares of 1. */
export const formatActual = (condition: string, actual: number, language: Language): string =>
  condition.includes('_rate') ? formatShare(actual, language) : formatCount(actual, language)
