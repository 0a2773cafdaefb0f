import { describe, expect, it } from 'vitest'
import { timeFault } from '../../../src/domain/times.ts'

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
