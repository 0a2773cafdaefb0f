import { describe, expect, it } from 'vitest'
import { showError } from '../../src/log-errors.ts'

const SECRET = 'hunter2'
const thrown = (message: string, members: object = {}, options: ErrorOptions = {}): Error =>
  Object.assign(new Error(message, options), members)

describe('an error in the log', () => {
  it('says what it is, what it says, and where it came from', () => {
    const shown = showError(thrown('it broke', { code: 'EPIPE' }, { cause: thrown('as this broke') }))
    expect(shown).toMatchObject({
      type: 'Error',
      message: 'it broke',
      code: 'EPIPE',
      cause: { message: 'as this broke' },
    })
    expect(shown.stack).toContain('log-errors.test.ts')
  })

  it.each([
    ['a row', thrown('violates check constraint "c"', { code: '23514', detail: `Failing row contains (${SECRET})` })],
    ['a key', thrown('duplicate key value', { code: '23505', detail: `Key (user)=(${SECRET}) already exists.` })],
    ['a place', thrown('it broke', { where: SECRET, query: SECRET, parameters: [SECRET] })],
    ['a value', thrown(`invalid input syntax for type integer: "${SECRET}"`, { code: '22P02' })],
    [
      'parameters',
      thrown(`Failed query: select $1\nparams: ${SECRET}`, { params: [SECRET] }, { cause: thrown('gone') }),
    ],
    ['parameters and no cause', thrown(`Failed query: ${SECRET}`, { params: [SECRET] })],
    ['parameters below', thrown('it broke', {}, { cause: thrown(`Failed query: ${SECRET}`, { params: [SECRET] }) })],
    ['what is no error', SECRET],
    ['an object', { token: SECRET }],
  ])('does not say %s', (_what, error) => expect(JSON.stringify(showError(error))).not.toContain(SECRET))

  it('keeps what names a fault of ours', () => {
    const error = thrown('column "x" does not exist', { code: '42703' })
    expect(showError(error)).toMatchObject({ message: 'column "x" does not exist', code: '42703' })
  })

  it('ends, however many causes there are', () => {
    const round = thrown('round')
    round.cause = round
    expect(JSON.stringify(showError(round)).split('"round"').length).toBeLessThan(10)
  })
})
