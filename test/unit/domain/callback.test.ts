import { expect, test } from 'vitest'
import {
  CALLBACK_OUTCOMES,
  type CallbackDecision,
  type CallbackFacts,
  decideCallback,
} from '../../../src/domain/callback.ts'

test('outcomes are spelled as they are stored', () => {
  expect(new Set(CALLBACK_OUTCOMES).size).toBe(CALLBACK_OUTCOMES.length)
  for (const outcome of CALLBACK_OUTCOMES) expect(outcome).toMatch(/^[a-z_]+$/)
})

const facts: CallbackFacts = {
  said: 'absent',
  about: { send: 1, operationId: 'a' },
  effect: { state: 'uncertain', send: 1, operationId: 'a' },
  stable: true,
  onAbsent: 'retry',
  attempt: 1,
  maxAttempts: 3,
  cancelled: false,
}
const standing = (state: CallbackFacts['effect']['state'], send = 1, operationId = 'a') => ({
  effect: { state, send, operationId },
})
const secondSend = { about: { send: 2, operationId: 'a' } }
const said = 'applied'

test.each<[string, Partial<CallbackFacts>, CallbackDecision]>([
  ['applied, during the call', { said, ...standing('intent') }, { kind: 'applied' }],
  ['applied, after the timeout', { said }, { kind: 'applied' }],
  ['applied, after a cancel', { said, cancelled: true }, { kind: 'applied' }],
  ['applied, of what was thought absent', { said, ...standing('absent') }, { kind: 'applied' }],
  ['applied, as is known', { said, ...standing('applied') }, { kind: 'known' }],
  ['applied, and undone since', { said, ...standing('compensated') }, { kind: 'known' }],
  ['applied, of the second send', { said, ...secondSend, ...standing('uncertain', 2) }, { kind: 'applied' }],
  ['applied, of a send before', { said, ...standing('intent', 2) }, { kind: 'explain' }],
  ['applied, of another operation', { said, ...standing('uncertain', 1, 'b') }, { kind: 'explain' }],
  ['absent, during the call', standing('intent'), { kind: 'defer', reason: 'in-flight' }],
  [
    'absent, during the second call',
    { ...secondSend, ...standing('intent', 2) },
    { kind: 'defer', reason: 'in-flight' },
  ],
  ['absent, while the send can still arrive', { stable: false }, { kind: 'defer', reason: 'absent-not-stable' }],
  ['absent, after the timeout', {}, { kind: 'absent-retry' }],
  ['absent, after the last attempt', { attempt: 3 }, { kind: 'absent-failed', deadLetter: true }],
  ['absent, after a cancel', { cancelled: true }, { kind: 'absent-failed', deadLetter: false }],
  ['absent, and a person decides', { onAbsent: 'case' }, { kind: 'note' }],
  ['absent, of which of two sends?', { ...secondSend, ...standing('uncertain', 2) }, { kind: 'note' }],
  ['absent, as is known', standing('absent'), { kind: 'known' }],
  ['absent, after it was undone', standing('compensated'), { kind: 'known' }],
  ['absent, of what is applied', standing('applied'), { kind: 'explain' }],
  ['absent, of a send before', standing('uncertain', 2), { kind: 'known' }],
  ['absent, of a send before, in flight again', standing('intent', 2), { kind: 'known' }],
])('%s', (_, change, decision) => {
  expect(decideCallback({ ...facts, ...change })).toEqual(decision)
})

test('what is no decision is a fault', () => {
  expect(() =>
    decideCallback({ ...facts, onAbsent: 'retry', effect: { ...facts.effect, state: 'x' as never } }),
  ).toThrow()
})
