import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  type Counts,
  cancelDecision,
  canTransition,
  conservation,
  FINAL_STATUSES,
  isFinal,
  isSettled,
  OPERATION_STATUSES,
  type OperationStatus,
  pauseDecision,
  resumeDecision,
  type SettleFacts,
  settle,
} from '../../../src/domain/operation.ts'

const OPEN = [
  'draft',
  'awaiting_approval',
  'pending',
  'running',
  'pause_requested',
  'paused',
  'cancel_requested',
] as const

describe('statuses', () => {
  test('there are 13, 5 of them final', () => {
    expect(OPERATION_STATUSES).toHaveLength(13)
    expect(OPERATION_STATUSES.filter(isFinal)).toEqual([...FINAL_STATUSES])
  })

  test('settled: final, or only evidence can move it', () => {
    expect(OPERATION_STATUSES.filter(isSettled)).toEqual(['reconciliation_required', ...FINAL_STATUSES])
  })
})

describe('transition table', () => {
  // One row a status, one column a status in the order of OPERATION_STATUSES: d a p r P Z C R s ½ f c C'
  const TABLE: Record<OperationStatus, string> = {
    draft: '.xx...x....x.',
    awaiting_approval: '..x...x....x.',
    pending: '...xxxxxxxxxx',
    running: '....xxxxxxxxx',
    pause_requested: '..xx.xxxxxxxx',
    paused: '..xxx.xxxxxxx',
    cancel_requested: '.......x...xx',
    reconciliation_required: '...xxx..xxxxx',
    succeeded: '.............',
    partially_succeeded: '.............',
    failed: '.............',
    cancelled: '.............',
    completed_after_cancel: '.............',
  }
  const pairs = OPERATION_STATUSES.flatMap((from) =>
    OPERATION_STATUSES.map((to, column) => ({ from, to, legal: TABLE[from][column] === 'x' })),
  )

  test.each(pairs)('$from → $to: $legal', ({ from, to, legal }) => {
    expect(canTransition(from, to)).toBe(legal)
  })

  test('every final status can be reached', () => {
    for (const to of FINAL_STATUSES) expect(OPERATION_STATUSES.some((from) => canTransition(from, to))).toBe(true)
  })
})

describe('conservation', () => {
  test('completes the counts', () => {
    const counts = { total: 10, applied: 4, skipped: 1, failed: 2, uncertain: 1 }
    expect(conservation(counts)).toEqual({ ...counts, unprocessed: 2 })
  })

  test.each([
    ['more results than items', { total: 1, applied: 1, skipped: 1, failed: 0, uncertain: 0 }],
    ['a count below zero', { total: 1, applied: 2, skipped: -1, failed: 0, uncertain: 0 }],
    ['text that was never parsed (case 75)', { total: 1, applied: '1', skipped: 0, failed: 0, uncertain: 0 } as never],
    ['NaN', { total: Number.NaN, applied: 0, skipped: 0, failed: 0, uncertain: 0 }],
  ])('stops at %s', (_name, counts: Counts) => {
    expect(() => conservation(counts)).toThrow('broken invariant')
  })
})

const facts = (change: Partial<Omit<SettleFacts, 'counts'>>, counts: Partial<Counts> = {}): SettleFacts => ({
  status: 'running',
  stop: null,
  started: true,
  shardsOpen: false,
  inFlight: 0,
  waiting: 0,
  ...change,
  counts: { total: 3, applied: 0, skipped: 0, failed: 0, uncertain: 0, ...counts },
})

describe('settle', () => {
  const settled: [string, SettleFacts, OperationStatus][] = [
    ['work left', facts({ shardsOpen: true }, { applied: 1 }), 'running'],
    ['only calls in flight left', facts({ inFlight: 1 }, { applied: 3 }), 'running'],
    ['only a retry left (case 49)', facts({ waiting: 1 }, { applied: 2, failed: 1 }), 'running'],
    [
      'a retry left beside an uncertain item',
      facts({ waiting: 1 }, { applied: 1, failed: 1, uncertain: 1 }),
      'running',
    ],
    ['all shards done, items without a result', facts({}, { applied: 1 }), 'running'],
    ['all applied', facts({}, { applied: 3 }), 'succeeded'],
    ['all skipped', facts({}, { skipped: 3 }), 'succeeded'],
    ['no items', facts({}, { total: 0 }), 'succeeded'],
    ['one failed', facts({}, { applied: 2, failed: 1 }), 'partially_succeeded'],
    ['skipped and failed', facts({}, { skipped: 1, failed: 2 }), 'partially_succeeded'],
    ['one of each', facts({}, { applied: 1, skipped: 1, failed: 1 }), 'partially_succeeded'],
    ['all failed', facts({}, { failed: 3 }), 'failed'],
    ['one uncertain', facts({}, { applied: 2, uncertain: 1 }), 'reconciliation_required'],
    ['failed and uncertain', facts({}, { failed: 2, uncertain: 1 }), 'reconciliation_required'],

    ['nobody took it yet', facts({ status: 'pending', started: false, shardsOpen: true }), 'pending'],
    ['taken', facts({ status: 'pending', shardsOpen: true }), 'running'],
    ['over before anybody wrote running', facts({ status: 'pending' }, { applied: 3 }), 'succeeded'],
    ['a draft', facts({ status: 'draft', started: false }, { total: 0 }), 'draft'],
    [
      'waiting for approval',
      facts({ status: 'awaiting_approval', started: false, shardsOpen: true }),
      'awaiting_approval',
    ],
    ['waiting for approval, paused', facts({ status: 'awaiting_approval', stop: 'pause' }), 'awaiting_approval'],

    ['resumed', facts({ status: 'paused', shardsOpen: true }, { applied: 1 }), 'running'],
    ['resumed before anybody took it', facts({ status: 'paused', started: false, shardsOpen: true }), 'pending'],
    ['pause, shard held', facts({ stop: 'pause', shardsOpen: true }), 'pause_requested'],
    ['pause, call in flight', facts({ stop: 'pause', inFlight: 1 }), 'pause_requested'],
    ['pause, boundary reached', facts({ status: 'pause_requested', stop: 'pause' }, { applied: 1 }), 'paused'],
    ['pause, only a retry left', facts({ stop: 'pause', waiting: 1 }, { applied: 2, failed: 1 }), 'paused'],
    ['pause came too late', facts({ status: 'pause_requested', stop: 'pause' }, { applied: 3 }), 'succeeded'],
    ['pause, rest uncertain', facts({ stop: 'pause' }, { applied: 2, uncertain: 1 }), 'reconciliation_required'],

    ['cancel of a draft', facts({ status: 'draft', stop: 'cancel', started: false }, { total: 0 }), 'cancelled'],
    [
      'cancel before approval',
      facts({ status: 'awaiting_approval', stop: 'cancel', started: false, shardsOpen: true }),
      'cancelled',
    ],
    ['cancel before the start', facts({ status: 'pending', stop: 'cancel', started: false }), 'cancelled'],
    ['cancel of an empty one', facts({ status: 'pending', stop: 'cancel', started: false }, { total: 0 }), 'cancelled'],
    ['cancel while paused', facts({ status: 'paused', stop: 'cancel' }, { applied: 1 }), 'cancelled'],
    ['cancel, shard held', facts({ stop: 'cancel', shardsOpen: true }, { applied: 1 }), 'cancel_requested'],
    ['cancel, call in flight', facts({ stop: 'cancel', inFlight: 1 }, { applied: 2 }), 'cancel_requested'],
    ['cancel, items left', facts({ status: 'cancel_requested', stop: 'cancel' }, { applied: 1 }), 'cancelled'],
    ['cancel, a retry given up', facts({ stop: 'cancel', waiting: 1 }, { applied: 2, failed: 1 }), 'cancelled'],
    ['cancel came too late', facts({ stop: 'cancel' }, { applied: 2, failed: 1 }), 'completed_after_cancel'],
    ['cancel, all failed', facts({ stop: 'cancel' }, { failed: 3 }), 'completed_after_cancel'],
    ['cancel, one uncertain', facts({ stop: 'cancel' }, { applied: 1, uncertain: 1 }), 'reconciliation_required'],
    [
      'cancel during reconciliation, shard open',
      facts({ status: 'reconciliation_required', stop: 'cancel', shardsOpen: true }, { applied: 2, uncertain: 1 }),
      'reconciliation_required',
    ],
    [
      'cancel during reconciliation, closed as applied',
      facts({ status: 'reconciliation_required', stop: 'cancel' }, { applied: 3 }),
      'completed_after_cancel',
    ],
    ['a cancel that lost its flag', facts({ status: 'cancel_requested' }, { applied: 3 }), 'completed_after_cancel'],
    [
      'a cancel overtaken by a pause',
      facts({ status: 'cancel_requested', stop: 'pause' }, { applied: 1 }),
      'cancelled',
    ],

    [
      'confirmed absent, retried',
      facts({ status: 'reconciliation_required', shardsOpen: true, waiting: 1 }, { applied: 2, failed: 1 }),
      'running',
    ],
    ['the last case closed', facts({ status: 'reconciliation_required' }, { applied: 3 }), 'succeeded'],
    ['a case still open', facts({ status: 'reconciliation_required' }, { uncertain: 3 }), 'reconciliation_required'],
  ]
  test.each(settled)('%s', (_name, given, expected) => {
    expect(settle(given)).toBe(expected)
  })

  const arbitraryCounts = fc
    .record({
      applied: fc.nat(4),
      skipped: fc.nat(4),
      failed: fc.nat(4),
      uncertain: fc.nat(4),
      unprocessed: fc.nat(4),
    })
    .map(({ unprocessed, ...done }) => ({
      ...done,
      total: done.applied + done.skipped + done.failed + done.uncertain + unprocessed,
    }))
  const arbitraryFacts: fc.Arbitrary<SettleFacts> = fc.record({
    status: fc.constantFrom(...OPERATION_STATUSES),
    stop: fc.constantFrom(null, 'pause', 'cancel'),
    started: fc.boolean(),
    shardsOpen: fc.boolean(),
    inFlight: fc.nat(2),
    waiting: fc.nat(2),
    counts: arbitraryCounts,
  })
  const holds = (property: (given: SettleFacts, status: OperationStatus) => void) =>
    fc.assert(
      fc.property(arbitraryFacts, (given) => {
        property(given, settle(given))
      }),
      { numRuns: 2_000 },
    )

  test('final states are never left (I5)', () => {
    holds((given, status) => {
      if (isFinal(given.status)) expect(status).toBe(given.status)
    })
  })

  test('every answer is a legal transition', () => {
    holds(({ status: from }, to) => {
      if (to !== from) expect([from, to, canTransition(from, to)]).toEqual([from, to, true])
    })
  })

  test('a second look changes nothing: it is safe to call from everywhere', () => {
    holds((given, status) => {
      // `cancel_requested` without its flag is repaired at the first look; no stored row can be like that.
      if (given.status !== 'cancel_requested' || given.stop === 'cancel')
        expect(settle({ ...given, status })).toBe(status)
    })
  })

  test('a cancel never ends as a success or a plain failure', () => {
    holds((given, status) => {
      if (given.stop === 'cancel' && !isFinal(given.status))
        expect(['cancelled', 'completed_after_cancel', 'cancel_requested', 'reconciliation_required']).toContain(status)
    })
  })

  test('`cancelled` is never said where every item has its result', () => {
    holds((given, status) => {
      const { unprocessed, total } = conservation(given.counts)
      const isWorkable = !isFinal(given.status) && given.status !== 'draft' && given.status !== 'awaiting_approval'
      if (isWorkable && status === 'cancelled') expect(total === 0 || unprocessed + given.waiting > 0).toBe(true)
    })
  })

  test('no final state while anything is uncertain, in flight or (without a stop) unprocessed or waiting', () => {
    holds((given, status) => {
      const isWorkable = !isFinal(given.status) && given.status !== 'draft' && given.status !== 'awaiting_approval'
      if (!isWorkable || !isFinal(status)) return
      expect(given.counts.uncertain + given.inFlight).toBe(0)
      expect(given.shardsOpen).toBe(false)
      if (status !== 'cancelled') expect(conservation(given.counts).unprocessed + given.waiting).toBe(0)
    })
  })

  test('counts that break the conservation law stop it', () => {
    expect(() => settle(facts({}, { total: 1, applied: 2 }))).toThrow('broken invariant')
  })
})

describe('cancelDecision', () => {
  test.each([...OPEN.filter((status) => status !== 'cancel_requested'), 'reconciliation_required' as const])(
    '%s: stops, and the second time gives the receipt',
    (status) => {
      expect(cancelDecision(status, false)).toEqual({ kind: 'stop' })
      expect(cancelDecision(status, true)).toEqual({ kind: 'receipt', httpFinal: false })
    },
  )

  test('requested: the receipt', () => {
    expect(cancelDecision('cancel_requested', false)).toEqual({ kind: 'receipt', httpFinal: false })
  })

  test.each(['cancelled', 'completed_after_cancel'] as const)('%s: the final receipt', (status) => {
    expect(cancelDecision(status, true)).toEqual({ kind: 'receipt', httpFinal: true })
    expect(cancelDecision(status, false)).toEqual({ kind: 'receipt', httpFinal: true })
  })

  test.each(['succeeded', 'partially_succeeded', 'failed'] as const)(
    '%s: too late, and says so (case 27)',
    (status) => {
      expect(cancelDecision(status, false)).toEqual({ kind: 'already-final', status })
    },
  )
})

describe('pause and resume', () => {
  test.each(OPERATION_STATUSES)('%s', (status) => {
    const isPausable = status === 'pending' || status === 'running'
    const isPaused = status === 'pause_requested' || status === 'paused'
    expect(pauseDecision(status)).toEqual(
      isPausable
        ? { kind: 'stop' }
        : isPaused
          ? { kind: 'receipt', reached: status === 'paused' }
          : { kind: 'not-pausable', status },
    )
    expect(resumeDecision(status)).toEqual(isPaused ? { kind: 'resume' } : { kind: 'not-paused', status })
  })
})
