import { expect, test } from 'vitest'
import { assertNever, assertThat, InvariantError } from '../../../src/domain/assert.ts'

test('a broken invariant stops and says which', () => {
  expect(() => assertThat(false, 'total ≥ 0')).toThrow(new InvariantError('broken invariant: total ≥ 0'))
  expect(() => assertThat(true, 'total ≥ 0')).not.toThrow()
})

test('it is told from other errors by its name', () => {
  expect(String(new InvariantError('total ≥ 0'))).toBe('InvariantError: total ≥ 0')
})

test('a value outside its union stops instead of falling through', () => {
  expect(() => assertNever('exploded' as never)).toThrow(InvariantError)
  expect(() => assertNever('exploded' as never)).toThrow('not a member of the union: "exploded"')
})
