import { describe, expect, it } from 'vitest'
import { HIDDEN, hideTexts, hideValues, maskedValues } from '../../../src/domain/hidden-values.ts'

describe('the values below a mask', () => {
  const input = {
    user: 'ann',
    card: { number: '4711', year: 2030, ok: true, of: null },
    list: [{ a: 'x' }, 'y'],
    'a/b': 'slash',
  }
  it.each([
    [['/user'], ['ann']],
    [['/card'], ['2030', '4711']],
    [
      ['/card/number', '/user'],
      ['4711', 'ann'],
    ],
    [['/list'], ['x', 'y']],
    [['/list/0/a'], ['x']],
    [['/a~1b'], ['slash']],
    [['/nowhere', '/user/deeper', '/card/of', '/card/ok'], []],
    [[], []],
  ])('%j are %j', (pointers, values) => expect(maskedValues(input, pointers).sort()).toEqual(values))

  it('are so many, and no more', () => {
    const many = { list: Array.from({ length: 5_000 }, (_, index) => index) }
    expect(maskedValues(many, ['/list'])).toHaveLength(1_000)
  })
})

describe('a text', () => {
  it.each([
    ['no ann here', ['ann'], `no ${HIDDEN} here`],
    ['ann, ann', ['ann'], `${HIDDEN}, ${HIDDEN}`],
    ['anna and ann', ['ann', 'anna'], `${HIDDEN} and ${HIDDEN}`],
    ['{"u":"a\\"b\\n"}', ['a"b\n'], `{"u":"${HIDDEN}"}`],
    ['/u?x=a%20b%26', ['a b&'], `/u?x=${HIDDEN}`],
    ['$& and $1', ['$1'], '$& and $1'],
    ['cost $100', ['$100'], `cost ${HIDDEN}`],
    ['a 7 stays', ['7', 'a', 'st'], 'a 7 stays'],
    ['lone \ud800x here', ['\ud800x1'], 'lone \ud800x here'],
    ['nothing', [], 'nothing'],
    ['', ['secret'], ''],
  ])('%j without %j is %j', (text, values, expected) => expect(hideValues(text, values)).toBe(expected))

  it.each([
    ['it was cut: secr', ['secret-token'], `it was cut: ${HIDDEN}`],
    ['it was cut: secret-toke', ['secret-token'], `it was cut: ${HIDDEN}`],
    ['it was cut: sec', ['secret-token'], 'it was cut: sec'],
    ['it was cut: a%20b%2', ['a b&c'], `it was cut: ${HIDDEN}`],
    ['secr', ['secret'], HIDDEN],
    ['the secret is out', ['secret!'], 'the secret is out'],
  ])('%j, of %j, is %j', (text, values, expected) => expect(hideValues(text, values)).toBe(expected))
})

it('of an outcome the texts are changed, and nothing else', () => {
  const shout = (text: string): string => text.toUpperCase()
  const outcome = { state: 'failed', failureClass: 'conflict', reasonCode: 'a', message: 'b', send: 1, effectRef: null }
  expect(hideTexts(outcome, shout)).toEqual({ ...outcome, reasonCode: 'A', message: 'B' })
  expect(hideTexts({ state: 'applied' }, shout)).toEqual({ state: 'applied' })
  expect(hideTexts({ effectRef: 'r', evidenceRef: 'e' }, shout)).toEqual({ effectRef: 'R', evidenceRef: 'E' })
})
