import { describe, expect, it } from 'vitest'
import { checkAnswers } from '../../invariants/answers.ts'
import { createHistory, operationIds } from '../../invariants/history.ts'
import { body, call, countsOf, history, ID, ok } from './calls.ts'

const OTHER = `op_${'0'.repeat(31)}2`
const submitted = (id: string, change: Parameters<typeof call>[3] = {}, replayed = false) =>
  call('submit', [1, 2], ok(body('pending', 1, { id }), 202, { replayed }), {
    key: 'k',
    body: 'b',
    operationId: id,
    ...change,
  })

describe('I1: keys', () => {
  it('is content with one operation a key, told again and again', () => {
    expect(checkAnswers(history(submitted(ID), submitted(ID, {}, true), submitted(ID, {}, true)))).toEqual([])
  })

  it.each([
    ['two operations', [submitted(ID), submitted(OTHER, {}, true)], /names op_\d+1 and op_\d+2/],
    ['two bodies', [submitted(ID), submitted(ID, { body: 'c' }, true)], /was accepted with two bodies/],
    ['two makers', [submitted(ID), submitted(ID)], /2 answers say that they made the operation/],
  ])('finds %s', (_name, calls, says) => {
    expect(checkAnswers(history(...calls))).toEqual([
      { invariant: 'I1', subject: 'key k', says: expect.stringMatching(says) },
    ])
  })
})

describe('I2: counts', () => {
  const told = (counts: Parameters<typeof countsOf>[0]) =>
    checkAnswers(history(call('get', [1, 2], ok(body('running', 2, { counts: countsOf(counts) })))))

  it('is content with a repeat in flight, which is counted as failed or uncertain', () => {
    expect(told({ applied: 3, failed: 1, uncertain: 1, unprocessed: 2, in_flight: 4 })).toEqual([])
  })

  it.each([
    ['a sum that is wrong', { applied: 3, total: 4 }, /do not add up/],
    ['a count below zero', { applied: 3, failed: -1, uncertain: 1 }, /are no counts/],
    ['more in flight than is open', { applied: 3, unprocessed: 1, in_flight: 2 }, /have 2 in flight of fewer/],
  ])('finds %s', (_name, counts, says) => {
    expect(told(counts)).toEqual([{ invariant: 'I2', subject: ID, says: expect.stringMatching(says) }])
  })
})

describe('I5: order', () => {
  const get = (
    at: readonly [number, number],
    version: number,
    change = {},
    status: Parameters<typeof body>[0] = 'running',
  ) => call('get', at, ok(body(status, version, change)))

  it('is content when calls that overlap are told either first', () => {
    expect(checkAnswers(history(get([1, 5], 4), get([2, 6], 3), get([7, 8], 4)))).toEqual([])
  })

  it.each([
    ['an older version', [get([1, 2], 4), get([3, 4], 3)], /version 4 became 3/],
    ['a final state left', [get([1, 2], 4, {}, 'failed'), get([3, 4], 5)], /left failed for running/],
    [
      'fewer applied items',
      [get([1, 2], 4, { counts: countsOf({ applied: 1 }) }), get([3, 4], 5, { counts: countsOf({ unprocessed: 1 }) })],
      /applied 1 fell to 0/,
    ],
    [
      'two acknowledgements',
      [get([1, 2], 4, { cancelAcknowledgedAt: 'a' }), get([3, 4], 5, { cancelAcknowledgedAt: 'b' })],
      /acknowledged at a and at b/,
    ],
  ])('finds %s', (_name, calls, says) => {
    expect(checkAnswers(history(...calls))).toEqual([
      { invariant: 'I5', subject: ID, says: expect.stringMatching(says) },
    ])
  })
})

it('I7: finds items that were sent and are not there', () => {
  expect(checkAnswers(history(submitted(ID, { items: 2 })))).toEqual([
    { invariant: 'I7', subject: ID, says: '2 items were sent, and it has 0' },
  ])
})

describe('the recorder', () => {
  const resource = {
    id: ID,
    type: 'grant',
    status: 'pending',
    version: 1,
    counts: countsOf({}),
    cancel: { requested_at: null, acknowledged_at: null },
  }

  it('keeps what was answered, under the operation that the answer names', async () => {
    const kept = createHistory()
    await kept.record('submit', { key: 'k' }, async () => ({ status: 202, body: resource, replayed: true }))
    expect(kept.calls()).toMatchObject([
      { kind: 'submit', key: 'k', operationId: ID, outcome: { status: 202, replayed: true, operation: { id: ID } } },
    ])
    expect(operationIds(kept)).toEqual([ID])
  })

  it('keeps a call without an answer, and hands on what was thrown', async () => {
    const kept = createHistory()
    const fault = new Error('reset')
    await expect(kept.record('cancel', { operationId: ID }, () => Promise.reject(fault))).rejects.toBe(fault)
    expect(kept.calls()).toMatchObject([{ operationId: ID, returnedAt: null, outcome: 'no-answer' }])
  })

  it('keeps problems, and bodies that are no operation', async () => {
    const kept = createHistory()
    await kept.record('get', {}, async () => ({ status: 503, body: { code: 'not-ready' } }))
    await kept.record('get', {}, async () => ({ status: 502, body: '<html>' }))
    expect(kept.calls().map((each) => each.outcome)).toEqual([
      { status: 503, code: 'not-ready', replayed: false, operation: null },
      { status: 502, code: null, replayed: false, operation: null },
    ])
  })
})
