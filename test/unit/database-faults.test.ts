import { expect, test } from 'vitest'
import { AppError } from '../../src/domain/errors.ts'
import { isDatabaseFault, isRetryable } from '../../src/storage/database-faults.ts'

const fault = (code: string): Error => Object.assign(new Error(code), { code })

/** What `connect` says of a host that is cut off depends on where the way ends. */
test.each(['ECONNREFUSED', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', 'ETIMEDOUT', 'CONNECT_TIMEOUT'])(
  '%s is a database that is away, and no bug',
  (code) => {
    expect(isDatabaseFault(fault(code))).toBe(true)
    expect(isDatabaseFault(new AppError('internal', 'wrapped', { cause: fault(code) }))).toBe(true)
  },
)

test.each(['23505', '22P02', '40001', 'ERR_INVALID_ARG_TYPE'])('%s is another matter', (code) => {
  expect(isDatabaseFault(fault(code))).toBe(false)
})

test.each(['40001', '40P01', '55P03', '26000'])('%s may be repeated as a whole', (code) => {
  expect(isRetryable(fault(code))).toBe(true)
  expect(isRetryable(new AppError('internal', 'wrapped', { cause: fault(code) }))).toBe(true)
})

test('what is not supported may be, where only a plan was lost', () => {
  expect(isRetryable(Object.assign(fault('0A000'), { routine: 'RevalidateCachedQuery' }))).toBe(true)
  expect(isRetryable(fault('0A000'))).toBe(false)
})
