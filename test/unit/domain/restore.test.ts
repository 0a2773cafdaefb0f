import { describe, expect, it } from 'vitest'
import { decideDoubtedSend, isDoubted } from '../../../src/domain/restore.ts'

const operationId = '01234567-89ab-7def-8123-456789abcdef'
const named = { effectKey: `grant:${operationId}:ada`, operationId, explained: false }
const shared = { effectKey: 'grant:ada', operationId, explained: false }

describe('isDoubted', () => {
  it.each([
    ['never, without a restore', null, shared, false],
    ['always, of an operation older than the restore', { predates: true }, named, true],
    ['of a younger one, when another may have had the key', { predates: false }, shared, true],
    ['not of a younger one whose key names it', { predates: false }, named, false],
    ['not after evidence that came later', { predates: true }, { ...shared, explained: true }, false],
  ])('%s', (_, doubt, effect, expected) => {
    expect(isDoubted(doubt, effect)).toBe(expected)
  })
})

describe('decideDoubtedSend', () => {
  it.each([
    ['applied', true, 'retry', 'applied'],
    ['applied', false, 'case', 'applied'],
    ['absent', true, 'retry', 'send'],
    ['absent', false, 'retry', 'uncertain'],
    ['absent', true, 'case', 'uncertain'],
    ['unknown', true, 'retry', 'uncertain'],
    [null, true, 'retry', 'uncertain'],
  ] as const)('%s, stable %s, on_absent %s: %s', (lookup, stable, onAbsent, expected) => {
    expect(decideDoubtedSend({ lookup, stable, onAbsent })).toBe(expected)
  })
})
