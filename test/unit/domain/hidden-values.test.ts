import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HIDDEN, hiderOf, hideTexts, maskedValues } from '../../../src/domain/hidden-values.ts'

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
  ])('%j without %j is %j', (text, values, expected) => expect(hiderOf(values)(text)).toBe(expected))

  it.each([
    ['it was cut: secr', ['secret-token'], `it was cut: ${HIDDEN}`],
    ['it was cut: secret-toke', ['secret-token'], `it was cut: ${HIDDEN}`],
    ['it was cut: sec', ['secret-token'], 'it was cut: sec'],
    ['it was cut: a%20b%2', ['a b&c'], `it was cut: ${HIDDEN}`],
    ['secr', ['secret'], HIDDEN],
    ['the secret is out', ['secret!'], 'the secret is out'],
  ])('%j, of %j, is %j', (text, values, expected) => expect(hiderOf(values)(text)).toBe(expected))
})

describe('values that are made for it', () => {
  it.each([
    ['[hidden]', ['hid', 'den', '[hi'], `${HIDDEN}]`],
    ['ann and bob', ['ann', 'hid', 'dde', 'en]', '[hidden]'], `${HIDDEN} and bob`],
    ['a TTP', ['TTP', '[hidden]', 'a [h'], `a ${HIDDEN}`],
    ['abcdefghi, abcd', ['abcdef', 'defghi'], `${HIDDEN}, ${HIDDEN}`],
    ['annann', ['ann'], HIDDEN],
    ['a card 47114712 b', ['4711', '471', '47114'], `a card ${HIDDEN}2 b`],
    ['xabcd', ['abc', 'abcde', 'abcdefg'], `x${HIDDEN}`],
  ])('%j without %j is %j', (text, values, expected) => expect(hiderOf(values)(text)).toBe(expected))

  it('by the thousand make a text no longer than its marks', () => {
    const parts = ['hid', 'den', 'idd', 'dde', '[hi', 'en]', '[hidden]', 'TTP']
    const values = Array.from(
      { length: 3_000 },
      (_, index) => `${parts[index % parts.length]}${'a'.repeat(index % 500)}`,
    )
    const text = 'hidTTPden '.repeat(100)
    expect(hiderOf(values)(text).length).toBeLessThanOrEqual((text.length * HIDDEN.length) / 3)
  })

  // few letters: values overlap, repeat and look like marks
  const letters = (minLength: number, maxLength: number) =>
    fc
      .array(fc.constantFrom('h', 'i', 'd', '[', ']', '%', '"', '[hidden]', '\ud83d\ude00'), { minLength, maxLength })
      .map((parts) => parts.join(''))
  const formsOf = (value: string): string[] => [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value)]

  it('leave nothing between the marks, and a text no longer than these', () => {
    fc.assert(
      fc.property(letters(0, 40), fc.array(letters(1, 6), { maxLength: 12 }), (text, values) => {
        const hidden = hiderOf(values)(text)
        const taken = values.filter((value) => value.length >= 3).flatMap(formsOf)
        for (const piece of hidden.split(HIDDEN)) for (const form of taken) expect(piece).not.toContain(form)
        expect(hidden.length).toBeLessThanOrEqual((text.length * HIDDEN.length) / 3)
      }),
      { numRuns: 2_000 },
    )
  })

  it('hide the same as a search for each of them, place by place', () => {
    const slow = (text: string, forms: readonly string[]): string => {
      const units = [...Array(text.length).keys()]
      const marks = units.map(() => false)
      for (const at of units) {
        for (const form of forms) {
          const isBeginning = text.length - at >= 4 && form.startsWith(text.slice(at))
          if (text.startsWith(form, at) || isBeginning) marks.fill(true, at, at + form.length)
        }
      }
      return units.map((at) => (marks[at] ? (marks[at - 1] ? '' : HIDDEN) : text[at])).join('')
    }
    fc.assert(
      fc.property(letters(0, 40), fc.array(letters(1, 6), { maxLength: 12 }), (text, values) => {
        const forms = values.filter((value) => value.length >= 3).flatMap(formsOf)
        expect(hiderOf(values)(text)).toBe(slow(text, forms))
      }),
      { numRuns: 2_000 },
    )
  })
})

it('of an outcome the texts are cut where marks have made them longer than they may be', () => {
  const said = {
    state: 'failed',
    reasonCode: 'ann'.repeat(30),
    message: 'ann '.repeat(120),
    effectRef: 'x'.repeat(600),
  }
  const hidden = hideTexts(said, hiderOf(['ann ', 'nna']))
  expect([hidden.reasonCode.length, hidden.message.length]).toEqual([HIDDEN.length + 3, HIDDEN.length])
  const apart = hideTexts({ reasonCode: 'ann '.repeat(25), message: 'ann '.repeat(125) }, hiderOf(['ann']))
  expect([apart.reasonCode.length, apart.message.length]).toEqual([100, 500])
  expect(hideTexts({ message: 'ann' }, hiderOf(['ann']))).toEqual({ message: HIDDEN })
  expect(hideTexts(said, hiderOf([]))).toEqual(said)
})

it('of an outcome the texts are changed, and nothing else', () => {
  const shout = (text: string): string => text.toUpperCase()
  const outcome = { state: 'failed', failureClass: 'conflict', reasonCode: 'a', message: 'b', send: 1, effectRef: null }
  expect(hideTexts(outcome, shout)).toEqual({ ...outcome, reasonCode: 'A', message: 'B' })
  expect(hideTexts({ state: 'applied' }, shout)).toEqual({ state: 'applied' })
  expect(hideTexts({ effectRef: 'r', evidenceRef: 'e' }, shout)).toEqual({ effectRef: 'R', evidenceRef: 'E' })
})
