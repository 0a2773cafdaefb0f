import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { lookupAfterMs, lookupOfStep } from '../../../src/domain/operation-type.ts'
import { hasStep, STEP_NAME, stepFault, stepKey, stepKeyBytes } from '../../../src/domain/steps.ts'

const name = fc.stringMatching(/^[a-z][a-z0-9_-]{0,31}$/)

describe('the key of a step', () => {
  test('is that of the item without steps, and has the step behind it otherwise', () => {
    expect(stepKey('grant:7', '')).toBe('grant:7')
    expect(stepKey('grant:7', 'pay')).toBe('grant:7/pay')
  })

  test('two items with different keys, or two steps of one, never share it', () => {
    fc.assert(
      fc.property(fc.string(), name, fc.string(), name, (a, stepA, b, stepB) => {
        expect(stepKey(a, stepA) === stepKey(b, stepB)).toBe(a === b && stepA === stepB)
      }),
    )
  })

  test('is longer than the key of the item by what is kept free for it', () => {
    expect(stepKeyBytes([])).toBe(0)
    fc.assert(
      fc.property(fc.array(name, { minLength: 1, maxLength: 8 }), (steps) => {
        const added = steps.map((step) => Buffer.byteLength(stepKey('é', step)) - Buffer.byteLength('é'))
        expect(stepKeyBytes(steps)).toBe(Math.max(...added))
      }),
    )
  })
})

test.each([
  ['reserve', true],
  ['a', true],
  ['a_b-2', true],
  ['a'.repeat(32), true],
  ['a'.repeat(33), false],
  ['', false],
  ['Pay', false],
  ['2nd', false],
  ['a/b', false],
  ['a\n', false],
])('%j as the name of a step: %s', (text, fits) => {
  expect(STEP_NAME.test(text)).toBe(fits)
})

test.each([
  [[], null],
  [[{ name: 'a', irreversible: true }], null],
  [[{ name: 'a', irreversible: false }, { name: 'b' }, { name: 'c', irreversible: true }], null],
  [[{ name: 'a' }, { name: 'b' }, { name: 'a' }], { index: 2, field: 'name' }],
  [
    [{ name: 'a', irreversible: true }, { name: 'b' }],
    {
      index: 0,
      field: 'irreversible',
      detail: 'only the last step may be irreversible, and "b" comes after "a"',
    },
  ],
  [[{ name: 'a' }, { name: 'b', irreversible: true }, { name: 'c', irreversible: true }], { index: 1 }],
])('the order of %j', (steps, fault) => {
  expect(stepFault(steps)).toEqual(fault === null ? null : expect.objectContaining(fault))
})

test('an item stands at a step of its type, or at none where the type has none', () => {
  expect([hasStep([], ''), hasStep([], 'a')]).toEqual([true, false])
  expect([hasStep(['a'], 'a'), hasStep(['a'], ''), hasStep(['a'], 'b')]).toEqual([true, false, false])
})

describe('the lookup of a step', () => {
  const lookup = (afterMs: number) => ({ afterMs, timeoutMs: 1, find: () => Promise.reject(new Error('never')) })
  const executor = { kind: 'external' as const, callTimeoutMs: 1, send: () => Promise.reject(new Error('never')) }

  test('is the one of the type where it has no steps', () => {
    const only = { ...executor, lookup: lookup(5) }
    expect(lookupOfStep(only, '')).toBe(only.lookup)
    expect(lookupOfStep(only, 'a')).toBeNull()
    expect(lookupAfterMs(only)).toBe(5)
    expect(lookupAfterMs({ ...executor, lookup: null })).toBeNull()
  })

  test('is its own, and the first one waits for the slowest of them', () => {
    const [a, b] = [lookup(5), lookup(9)]
    const two = {
      ...executor,
      lookup: null,
      stepLookups: new Map([
        ['a', a],
        ['b', b],
      ]),
    }
    expect([lookupOfStep(two, 'a'), lookupOfStep(two, 'b'), lookupOfStep(two, 'c')]).toEqual([a, b, null])
    expect(lookupAfterMs(two)).toBe(9)
  })
})
