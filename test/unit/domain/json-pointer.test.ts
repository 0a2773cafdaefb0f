import { describe, expect, it } from 'vitest'
import { readPointer, textOf } from '../../../src/domain/json-pointer.ts'

describe('a JSON pointer', () => {
  const root = { user: { id: 7, of: null }, list: ['a', { b: 'c' }], 'a/b': 1, 'a~b': 2, 'a~1b': 3, ab: 4, '': 5 }
  it.each([
    ['/user/id', 7],
    ['/user/of', null],
    ['/list/0', 'a'],
    ['/list/1/b', 'c'],
    ['/a~1b', 1],
    ['/a~0b', 2],
    ['/a~01b', 3],
    ['/', 5],
  ])('%s leads to %j', (pointer, value) => expect(readPointer(root, pointer)).toBe(value))

  it.each([
    '/nobody',
    '/user/id/0',
    '/user/of/id',
    '/list/0/0',
    '/list/0/length',
    '/list/2',
    '/toString',
    '/user/name',
  ])('%s leads nowhere', (pointer) => expect(readPointer(root, pointer)).toBeUndefined())
})

describe('the text of', () => {
  it.each([
    ['ann', 'ann'],
    ['', ''],
    [7, '7'],
    [-0.5, '-0.5'],
    [Number.MAX_SAFE_INTEGER, '9007199254740991'],
  ])('%j is %j', (value, text) => expect(textOf(value)).toBe(text))

  it.each([Number.MAX_SAFE_INTEGER + 1, 1e21, true, null, undefined, ['a'], { a: 'b' }])('%j is none', (value) =>
    expect(textOf(value)).toBeUndefined(),
  )
})
