import { describe, expect, test } from 'vitest'
import {
  cancelGuarantee,
  EFFECT_KINDS,
  type EffectLookup,
  type Executor,
  executorOf,
  isRemote,
  lookupAfterMs,
  lookupOfStep,
  providerIdempotentMsOf,
  TOUCHES,
} from '../../../src/domain/operation-type.ts'

const lookup = (afterMs: number): EffectLookup => ({
  afterMs,
  timeoutMs: 1_000,
  find: async () => ({ state: 'unknown', reasonCode: 'NONE' }),
})
const external = (over: object = {}): Extract<Executor, { kind: 'external' }> => ({
  kind: 'external',
  callTimeoutMs: 1_000,
  send: async () => ({ outcome: { state: 'applied' }, downstreamError: false }),
  lookup: null,
  ...over,
})

describe('how an effect is looked up', () => {
  const [whole, first, second] = [lookup(5), lookup(9), lookup(7)]
  const stepLookups = new Map([
    ['a', first],
    ['b', second],
  ])

  test('by its step, and without steps as a whole', () => {
    expect(lookupOfStep(external({ lookup: whole }), '')).toBe(whole)
    expect(lookupOfStep(external(), '')).toBeNull()
    expect(lookupOfStep(external({ lookup: whole, stepLookups }), 'b')).toBe(second)
    expect(lookupOfStep(external({ lookup: whole, stepLookups }), 'c')).toBeNull()
    expect(lookupOfStep(external({ lookup: whole }), 'a')).toBeNull()
  })

  test('first after the longest wait that any of them asks for', () => {
    expect(lookupAfterMs(external())).toBeNull()
    expect(lookupAfterMs(external({ lookup: whole }))).toBe(5)
    expect(lookupAfterMs(external({ stepLookups }))).toBe(9)
    expect(lookupAfterMs(external({ lookup: lookup(11), stepLookups }))).toBe(11)
    expect(lookupAfterMs(external({ stepLookups: new Map() }))).toBeNull()
  })
})

test('only an external type that says so is run by workers elsewhere', () => {
  expect(isRemote({ executor: external({ remote: true }) })).toBe(true)
  expect(isRemote({ executor: external() })).toBe(false)
  expect(isRemote({ executor: { kind: 'transactional', runBatch: async () => undefined } })).toBe(false)
})

test('a shard that compensates is run by the compensator, for which the provider promised nothing', () => {
  const [executor, compensator] = [external(), external()]
  expect(executorOf({ executor, compensator }, false)).toBe(executor)
  expect(executorOf({ executor, compensator }, true)).toBe(compensator)
  expect(executorOf({ executor, compensator: null }, true)).toBeNull()
  expect(providerIdempotentMsOf({ providerIdempotentMs: 9 }, false)).toBe(9)
  expect(providerIdempotentMsOf({ providerIdempotentMs: 9 }, true)).toBe(0)
})

test.each([
  ['artifact', [], 'discarded_before_publish'],
  ['artifact', ['money'], 'discarded_before_publish'],
  ['transactional', ['money'], 'stops_at_batch_boundary'],
  ['external', [], 'no_new_sends'],
  ['external', ['permission'], 'no_new_sends'],
  ['external', ['permission', 'money'], 'no_new_commands'],
] as const)('a cancel of an %s type that touches %j promises %s', (effect, touches, guarantee) => {
  expect(cancelGuarantee({ effect, touches: [...touches] })).toBe(guarantee)
})

test('the kinds of effects and what they touch have each their own word', () => {
  for (const words of [EFFECT_KINDS, TOUCHES]) {
    expect(new Set(words).size).toBe(words.length)
    for (const word of words) expect(word).toMatch(/^[a-z_]+$/)
  }
})
