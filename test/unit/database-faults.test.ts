import { expect, test } from 'vitest'
import { AppError } from '../../src/domain/errors.ts'
import { isDatabaseFault } from '../../src/storage/database-faults.ts'

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
