import { describe, expect, it } from 'vitest'
import { timeFault, toMillis, toRfc3339, toRfc3339OrNull } from '../../../src/domain/times.ts'

describe('a time of the database', () => {
  it.each([
    ['2026-11-29 14:20:18.123456+00', '2026-11-29T14:20:18.123456Z'],
    ['2026-11-29T14:20:18.1+00:00', '2026-11-29T14:20:18.1Z'],
    ['2026-11-29 14:20:18Z', '2026-11-29T14:20:18Z'],
    ['2026-11-29 14:20:18-08', '2026-11-29T14:20:18-08:00'],
    ['2026-11-29 14:20:18+05:30', '2026-11-29T14:20:18+05:30'],
    ['2026-11-29 14:20:18+0530', '2026-11-29T14:20:18+05:30'],
    ['2026-11-29 14:20:18+00:30', '2026-11-29T14:20:18+00:30'],
  ])('%s is said as %s', (text, time) => expect(toRfc3339(text)).toBe(time))

  it.each(['infinity', '0044-03-15 12:00:00+00 BC', 'after 2026-11-29 14:20:18+00', ''])(
    'that RFC 3339 has no form for stays as it is: %j',
    (text) => expect(toRfc3339(text)).toBe(text),
  )

  it('may be none', () => {
    expect(toRfc3339OrNull(null)).toBeNull()
    expect(toRfc3339OrNull('2026-11-29 14:20:18+00')).toBe('2026-11-29T14:20:18Z')
  })

  it('is counted in milliseconds, wherever its clock stands', () => {
    expect(toMillis('2026-11-29 14:20:18.5+00')).toBe(Date.UTC(2026, 10, 29, 14, 20, 18, 500))
    expect(toMillis('2026-11-29 14:20:18.5+00')).toBe(toMillis('2026-11-29 19:50:18.5+05:30'))
  })
})

describe('a time that a client gave', () => {
  it.each(['1970-01-01T00:00:00Z', '2026-11-29T14:20:18.123456+14:00', '9999-12-31T23:59:59-14:00'])(
    'is read: %s',
    (text) => expect(timeFault(text)).toBeNull(),
  )

  it.each([
    ['0000-01-01T00:00:00Z', 'must not be before 1970'],
    ['1969-12-31T23:59:59Z', 'must not be before 1970'],
    ['2026-01-01T00:00:00+15:00', 'must have an offset of at most 14 hours'],
    ['9999-12-31T23:59:59-23:59', 'must have an offset of at most 14 hours'],
  ])('is refused: %s', (text, fault) => expect(timeFault(text)).toBe(fault))
})
