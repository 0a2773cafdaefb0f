import fc from 'fast-check'
import { expect, test } from 'vitest'
import { formatId, type IdPrefix, parseId } from '../../../src/domain/ids.ts'

const UUID = '01938e2c-7f3a-7c11-9d2e-0123456789ab'
const PREFIXES: readonly IdPrefix[] = ['op', 'case', 'dl', 'inc', 'pf', 'bulk']

test('an id is its prefix and 32 hex characters', () => {
  expect(formatId('op', UUID)).toBe('op_01938e2c7f3a7c119d2e0123456789ab')
})

test('every uuid survives the round trip under every prefix, and under that prefix only', () => {
  fc.assert(
    fc.property(fc.uuid(), fc.constantFrom(...PREFIXES), fc.constantFrom(...PREFIXES), (uuid, prefix, other) => {
      expect(parseId(other, formatId(prefix, uuid))).toBe(other === prefix ? uuid : null)
    }),
  )
})

test.each([
  ['nothing', ''],
  ['the prefix alone', 'op_'],
  ['no prefix', '01938e2c7f3a7c119d2e0123456789ab'],
  ['a plain uuid', UUID],
  ['one character short', 'op_01938e2c7f3a7c119d2e0123456789a'],
  ['one character long', 'op_01938e2c7f3a7c119d2e0123456789abc'],
  ['not hex', 'op_01938e2c7f3a7c119d2e0123456789ag'],
  ['upper case: one id has one spelling', 'op_01938E2C7F3A7C119D2E0123456789AB'],
  ['a line break at the end', 'op_01938e2c7f3a7c119d2e0123456789ab\n'],
  ['a NUL', 'op_01938e2c7f3a7c119d2e0123456789a\u0000'],
])('%s is not an id', (_name, text) => {
  expect(parseId('op', text)).toBeNull()
})
