import { expect, test } from 'vitest'
import { AppError, ConfigurationError, ERROR_CODES } from '../../../src/domain/errors.ts'

test('an AppError carries code, detail, faults, further members and its cause', () => {
  const cause = new Error('below')
  const errors = [{ detail: 'not a number', pointer: '/items/0/input/age' }]
  const error = new AppError('invalid-item-input', 'one item is wrong', { errors, extra: { status: 'draft' }, cause })
  expect(error).toBeInstanceOf(Error)
  expect(error).toMatchObject({
    name: 'AppError',
    code: 'invalid-item-input',
    detail: 'one item is wrong',
    message: 'invalid-item-input: one item is wrong',
    errors,
    extra: { status: 'draft' },
    cause,
  })
})

test('without options there are no faults, no members and no cause', () => {
  const error = new AppError('not-found', 'no such page')
  expect(error.errors).toBeUndefined()
  expect(error.extra).toBeUndefined()
  expect('cause' in error).toBe(false)
})

test('codes are unique and fit into the URL of their page', () => {
  expect(new Set(ERROR_CODES).size).toBe(ERROR_CODES.length)
  for (const code of ERROR_CODES) expect(code).toMatch(/^[a-z]+(-[a-z]+)*$/)
})

test('a ConfigurationError has its own name', () => {
  expect(new ConfigurationError('PORT: not a number')).toMatchObject({
    name: 'ConfigurationError',
    message: 'PORT: not a number',
  })
})
