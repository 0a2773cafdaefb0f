import { describe, expect, it } from 'vitest'
import type { Call } from '../../invariants/history.ts'
import { checkLinearizable } from '../../invariants/linearizable.ts'
import { body, call, cancelledBody, history, ID, ok, refused } from './calls.ts'

const submit = (
  at: readonly [number, number],
  replayed = false,
  status: 'pending' | 'running' = 'pending',
  version = 1,
) => call('submit', at, ok(body(status, version), 202, { replayed }), { key: 'k', body: 'b' })
const get = (at: readonly [number, number], status: Parameters<typeof body>[0], version: number) =>
  call('get', at, ok(body(status, version)))
const seen = (at: readonly [number, number], status: Parameters<typeof body>[0], version: number) =>
  call('get', at, ok(cancelledBody(status, version)))
const cancel = (at: readonly [number, number], status: Parameters<typeof body>[0], version: number, http = 202) =>
  call('cancel', at, ok(cancelledBody(status, version), http))
const lost = (kind: Call['kind'], from: number, change: Partial<Call> = {}) =>
  call(kind, [from, null], 'no-answer', change)
const told = (kind: Call['kind'], at: readonly [number, number], code: string) => call(kind, at, refused(code))

const POSSIBLE: [string, Call[]][] = [
  [
    'a run that nobody disturbs',
    [submit([1, 2]), get([3, 4], 'pending', 1), get([5, 6], 'running', 5), get([7, 8], 'succeeded', 9)],
  ],
  ['an end that nobody saw coming', [submit([1, 2]), get([3, 4], 'failed', 9)]],
  [
    'polls that overlap and are told in any order',
    [submit([1, 2]), get([3, 9], 'running', 7), get([4, 8], 'pending', 1), get([5, 7], 'running', 5)],
  ],
  [
    'a cancel, its receipt, and its end',
    [
      submit([1, 2]),
      cancel([3, 4], 'cancel_requested', 3),
      cancel([5, 6], 'cancel_requested', 3),
      seen([7, 8], 'cancelled', 6),
      cancel([9, 10], 'cancelled', 6, 200),
    ],
  ],
  ['a cancel before the start', [submit([1, 2]), cancel([3, 4], 'cancelled', 4, 200)]],
  [
    'a cancel that comes too late',
    [submit([1, 2]), get([3, 4], 'succeeded', 9), told('cancel', [5, 6], 'operation-already-final')],
  ],
  [
    'a cancel while evidence is awaited',
    [
      submit([1, 2]),
      get([3, 4], 'reconciliation_required', 5),
      cancel([5, 6], 'reconciliation_required', 6),
      seen([7, 8], 'completed_after_cancel', 9),
    ],
  ],
  [
    'a cancel without an answer that happened',
    [submit([1, 2]), lost('cancel', 3), get([4, 5], 'running', 3), seen([6, 7], 'cancelled', 9)],
  ],
  [
    'a cancel without an answer that did not happen',
    [submit([1, 2]), lost('cancel', 3), get([4, 5], 'running', 3), get([6, 7], 'succeeded', 9)],
  ],
  [
    'a cancel that was answered 503, and happened later',
    [
      submit([1, 2]),
      call('cancel', [3, 4], refused('not-ready', 503)),
      get([5, 6], 'running', 3),
      seen([7, 8], 'cancelled', 9),
    ],
  ],
  [
    'a submit without an answer, and its repeat',
    [lost('submit', 1, { key: 'k', operationId: null }), submit([3, 4], true)],
  ],
  ['a submit without an answer that came second', [lost('submit', 1, { key: 'k', operationId: null }), submit([3, 4])]],
  [
    'another body under the key',
    [submit([1, 2]), call('submit', [3, 4], refused('idempotency-key-reused', 422), { key: 'k', operationId: null })],
  ],
  [
    'a poll before and after the submit',
    [call('get', [0, 0.5], refused('operation-not-found', 404)), submit([1, 2]), get([3, 4], 'pending', 1)],
  ],
  [
    'pause, resume and an end',
    [
      submit([1, 2]),
      get([2.1, 2.2], 'running', 3),
      call('pause', [3, 4], ok(body('pause_requested', 4), 202)),
      get([5, 6], 'paused', 6),
      call('resume', [7, 8], ok(body('running', 7))),
      get([9, 10], 'succeeded', 12),
    ],
  ],
  [
    'a pause that comes too late',
    [submit([1, 2]), get([3, 4], 'succeeded', 9), told('pause', [5, 6], 'operation-not-pausable')],
  ],
  [
    'a hundred submits of one key at once',
    [
      submit([1, 50]),
      ...Array.from({ length: 99 }, (_, i) =>
        submit([1, 50 + i / 100], true, i % 2 ? 'running' : 'pending', i % 2 ? 4 : 1),
      ),
    ],
  ],
  ['an operation that was there before', [get([1, 2], 'paused', 7), call('resume', [3, 4], ok(body('running', 8)))]],
]

/** A pause is a receipt in one order, and what stops the run in another: no step may be placed for good too early. */
POSSIBLE.push([
  'two pauses and two resumes, all at once',
  [
    submit([1, 2]),
    call('pause', [3, 10], ok(null, 202)),
    call('pause', [3, 10], ok(null, 202)),
    call('resume', [3, 10], ok(null)),
    call('resume', [3, 10], ok(null)),
  ],
])

const IMPOSSIBLE: [string, Call[]][] = [
  ['a final state is left', [submit([1, 2]), get([3, 4], 'succeeded', 9), get([5, 6], 'running', 10)]],
  ['an older version is told later', [submit([1, 2]), get([3, 4], 'running', 9), get([5, 6], 'running', 8)]],
  ['two states at one version', [submit([1, 2]), get([3, 4], 'running', 5), get([5, 6], 'succeeded', 5)]],
  ['a status goes back', [submit([1, 2]), get([3, 4], 'running', 5), get([5, 6], 'pending', 6)]],
  [
    'a cancel is answered, and the end forgets it',
    [submit([1, 2]), cancel([3, 4], 'cancel_requested', 3), get([5, 6], 'succeeded', 9)],
  ],
  [
    'a cancel is answered, and the work goes on',
    [submit([1, 2]), cancel([3, 4], 'cancel_requested', 3), seen([5, 6], 'running', 9)],
  ],
  ['it is cancelled, and nobody asked for it', [submit([1, 2]), seen([3, 4], 'cancelled', 9)]],
  [
    'a cancel says it is final, and it is not',
    [submit([1, 2]), told('cancel', [3, 4], 'operation-already-final'), get([5, 6], 'running', 9)],
  ],
  [
    'a cancel says 202 behind another end',
    [submit([1, 2]), get([3, 4], 'succeeded', 9), cancel([5, 6], 'succeeded', 9)],
  ],
  [
    'a cancel says 202 where it is over',
    [submit([1, 2]), cancel([3, 4], 'cancelled', 4, 200), cancel([5, 6], 'cancelled', 4)],
  ],
  ['two submits say that they made it', [submit([1, 5]), submit([2, 6])]],
  ['a repeat, and nothing before it', [submit([1, 2], true)]],
  ['it is not found behind its 202', [submit([1, 2]), call('get', [3, 4], refused('operation-not-found', 404))]],
  [
    'a key was refused before anybody used it',
    [call('submit', [1, 2], refused('idempotency-key-reused', 422), { key: 'k', operationId: null }), submit([3, 4])],
  ],
  ['a pause that nobody asked for', [submit([1, 2]), get([3, 4], 'paused', 5)]],
  [
    'a pause that is refused while it runs',
    [
      submit([1, 2]),
      get([3, 4], 'running', 5),
      told('pause', [5, 6], 'operation-not-pausable'),
      get([7, 8], 'running', 6),
    ],
  ],
  [
    'a resume of what is not paused',
    [submit([1, 2]), get([3, 4], 'running', 5), call('resume', [5, 6], ok(body('running', 6)))],
  ],
  [
    'an unanswered cancel that happened before it was sent',
    [submit([1, 2]), seen([3, 4], 'cancelled', 9), lost('cancel', 5)],
  ],
]

describe('histories that one order of the calls explains', () => {
  it.each(POSSIBLE)('%s', (_name, calls) => {
    expect(checkLinearizable(history(...calls))).toEqual([])
  })
})

describe('histories that none explains', () => {
  it.each(IMPOSSIBLE)('%s', (_name, calls) => {
    expect(checkLinearizable(history(...calls))).toEqual([
      { invariant: 'I5', subject: ID, says: expect.stringMatching(/^no order of calls explains the answers/) },
    ])
  })
})

describe('what the operation may do by itself', () => {
  const stopped = (stopsItself: boolean) =>
    checkLinearizable(history({ ...submit([1, 2]), stopsItself }, seen([3, 4], 'cancelled', 9)))

  it('is cancelled by its deadline only where it has one', () => {
    expect(stopped(true)).toEqual([])
    expect(stopped(false)).toHaveLength(1)
  })
})

it('says so when it cannot decide', () => {
  const writes = Array.from({ length: 40 }, (_, index) =>
    call(index % 2 ? 'pause' : 'resume', [3, 100], ok(null, index % 2 ? 202 : 200)),
  )
  expect(checkLinearizable(history(submit([1, 2]), ...writes))[0]?.says).toMatch(/^not decided: 40 steps overlap/)
})
