import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  FAILURE_CLASSES,
  type FailureFacts,
  fingerprint,
  normaliseMessage,
  permits,
  sanitiseText,
} from '../../../src/domain/failure.ts'

test('only transient failures are retried, and every class has a place to end', () => {
  expect(FAILURE_CLASSES.filter((name) => permits[name].retry)).toEqual(['transient'])
  expect(FAILURE_CLASSES.map((name) => permits[name].place)).toEqual([
    'dead_letter',
    'reject_list',
    'person',
    'reconciliation_case',
    'policy',
    'fix_queue',
  ])
})

describe('sanitiseText (cases 65, 67)', () => {
  test.each([
    ['a NUL', 'bad\u0000x', 'bad\ufffdx'],
    ['a lone high surrogate', 'a\ud800b', 'a\ufffdb'],
    ['a lone low surrogate', '\udc00x', '\ufffdx'],
    ['surrogates the wrong way round', '\udc00\ud800', '\ufffd\ufffd'],
    ['a pair', 'a😀b', 'a😀b'],
    ['text that only looks like an escape', '\\u0000 \\ud800', '\\u0000 \\ud800'],
    ['nothing', '', ''],
  ])('%s', (_name, text, expected) => {
    expect(sanitiseText(text, 100)).toBe(expected)
  })

  test('a cut does not split a pair', () => {
    expect(sanitiseText('ab😀', 3)).toBe('ab')
    expect(sanitiseText('ab😀', 4)).toBe('ab😀')
    expect(sanitiseText('a😀bc', 4)).toBe('a😀b')
    expect(sanitiseText('abc', 2)).toBe('ab')
    expect(sanitiseText('abc', 0)).toBe('')
  })

  test('what fits is not cut, whatever it ends with', () => {
    expect(sanitiseText('ab\ud800', 3)).toBe('ab\ufffd')
  })

  test('any text comes out storable, within its limit', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.nat(40),
        fc.constantFrom('', '\ud800', '\udfff', '\0'),
        (text, max, bad) => {
          const clean = sanitiseText(bad + text + bad, max)
          expect(clean.length).toBeLessThanOrEqual(max)
          expect(clean).not.toMatch(/\p{Surrogate}/u)
          expect(clean).not.toContain('\u0000')
          expect(sanitiseText(clean, max)).toBe(clean)
        },
      ),
    )
  })
})

describe('normaliseMessage', () => {
  test.each([
    ['numbers', 'HTTP 503 after 1,204.5 ms', 'http <n> after <n> ms'],
    ['uuids', 'row 01938E2C-7f3a-7c11-9d2e-0123456789ab is gone', 'row <id> is gone'],
    ['our ids', 'op_01938e2c7f3a7c119d2e0123456789ab failed', '<id> failed'],
    ['hex', 'at 0xDEADbeef, digest 9f86d081884c7d65', 'at <id>, digest <id>'],
    ['double quotes', 'no user "alice"', 'no user <value>'],
    ['backticks', 'no column `age`', 'no column <value>'],
    ['single quotes, not apostrophes', "can't find user 'bob' or 'eve'", "can't find user <value> or <value>"],
    ['hex that begins with a letter', 'digest deadbeef01 of it', 'digest <id> of it'],
    ['hex without a digit may be a word', 'deadbeef is back', 'deadbeef is back'],
    ['mail addresses', 'refused: bob.b+x@mail.example', 'refused: <email>'],
    ['timestamps', 'since 2026-11-29T14:20:18.123456Z', 'since <time>'],
    ['database timestamps', 'since 2026-11-29 14:20:18.1+00, now 14:21:00', 'since <time>, now <time>'],
    ['times to the second', 'since 2026-11-29T14:20:18Z', 'since <time>'],
    ['times to the minute', 'since 2026-11-29 14:20, at noon', 'since <time>, at noon'],
    ['times elsewhere', 'at 2026-11-29T14:20:18,5+05:30 or 2026-11-29T14:20-0800', 'at <time> or <time>'],
    ['times of a day', 'at 14:21:00.123, at 14:21:01,5', 'at <time>, at <time>'],
    ['dates', 'due 2026-11-29', 'due <time>'],
    ['white space', '  too \n\t many   blanks ', 'too many blanks'],
    ['plain words stay', 'Connection refused by facade', 'connection refused by facade'],
    ['a NUL', 'bad\u0000x', 'bad\ufffdx'],
  ])('%s', (_name, text, expected) => {
    expect(normaliseMessage(text)).toBe(expected)
  })

  test('names of the item are taken out as words, the longest first, whatever they contain', () => {
    const names = ['alice', 'grant:alice', 'a.b*c(', 'u1', '']
    expect(normaliseMessage('Grant:Alice: user ALICE, not malice', names)).toBe('<item>: user <item>, not malice')
    expect(normaliseMessage('no a.b*c( here, aXbbc( is', names)).toBe('no <item> here, axbbc( is')
    expect(normaliseMessage('item <item> is item', ['item'])).toBe('<item> <item> is <item>')
  })

  test('names of two letters stay: they would be found in everything', () => {
    expect(normaliseMessage('user bob is no vip', ['bob'])).toBe('user <item> is no vip')
    expect(normaliseMessage('user bo is no vip', ['bo', 'is'])).toBe('user bo is no vip')
  })

  test('is bounded and stable', () => {
    expect(normaliseMessage('x'.repeat(100_000))).toHaveLength(300)
    expect(normaliseMessage(`${'"'.repeat(50_000)}${"'".repeat(50_000)}`).length).toBeLessThanOrEqual(300)
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(normaliseMessage(text).length).toBeLessThanOrEqual(300)
      }),
    )
  })
})

describe('fingerprint', () => {
  const failure: FailureFacts = {
    type: 'grant-role',
    failureClass: 'transient',
    reasonCode: 'HTTP_503',
    message: 'user 17 of "sales": try again at 2026-11-29T14:20:18Z',
  }

  test('32 hex characters', () => {
    expect(fingerprint(failure)).toMatch(/^[0-9a-f]{32}$/)
  })

  test('one cause, one value: whatever names the item does not count', () => {
    const other = { ...failure, message: 'User 18 of "ops":  try again at 2027-01-01T00:00:00Z' }
    expect(fingerprint(other)).toBe(fingerprint(failure))
    const named = (key: string) => fingerprint({ ...failure, message: `user ${key} is busy`, names: [key] })
    expect(named('alice')).toBe(named('bob.b'))
  })

  test.each([
    ['type', { type: 'grant-roles' }],
    ['class', { failureClass: 'bug_suspected' as const }],
    ['reason code', { reasonCode: null }],
    ['message', { message: 'user not found' }],
    ['no message', { message: null }],
    ['the place of a boundary', { type: 'grant-roletransient' }],
  ])('another %s is another cause', (_name, change) => {
    expect(fingerprint({ ...failure, ...change })).not.toBe(fingerprint(failure))
  })

  test('no message is not an empty message', () => {
    expect(fingerprint({ ...failure, message: null })).not.toBe(fingerprint({ ...failure, message: '' }))
  })
})
