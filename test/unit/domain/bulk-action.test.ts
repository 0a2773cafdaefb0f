import { describe, expect, test } from 'vitest'
import {
  abortDecision,
  BULK_ACTIONS,
  BULK_STATUSES,
  type BulkFilter,
  candidateStatuses,
  isRefusal,
  isRestrictive,
  startDecision,
} from '../../../src/domain/bulk-action.ts'
import { ERROR_CODES } from '../../../src/domain/errors.ts'
import { OPERATION_STATUSES } from '../../../src/domain/operation.ts'

const ALL: BulkFilter = {
  status: [],
  type: null,
  requestedBy: null,
  labels: {},
  createdAfter: null,
  createdBefore: null,
  replayOf: null,
}
const TIME = '2026-11-29T00:00:00Z'

describe('a filter', () => {
  test.each(BULK_ACTIONS)(
    'that is empty, or names every status that a %s makes sense for, leaves nothing out',
    (action) => {
      expect(isRestrictive(action, ALL)).toBe(false)
      expect(isRestrictive(action, { ...ALL, status: OPERATION_STATUSES })).toBe(false)
      expect(isRestrictive(action, { ...ALL, status: candidateStatuses(action) })).toBe(false)
    },
  )

  test.each<[string, Partial<BulkFilter>]>([
    ['some of the statuses', { status: ['paused', 'failed'] }],
    ['a type', { type: 'grant' }],
    ['a requester', { requestedBy: 'me' }],
    ['a label', { labels: { run: '7' } }],
    ['a time from which on', { createdAfter: TIME }],
    ['a time until which', { createdBefore: TIME }],
    ['what they are replays of', { replayOf: 'o' }],
  ])('that names %s leaves something out', (_, named) => {
    for (const action of BULK_ACTIONS) expect(isRestrictive(action, { ...ALL, ...named })).toBe(true)
  })
})

test('a cancel makes sense for what is open and has none yet, a replay for what is settled', () => {
  expect(candidateStatuses('cancel')).toEqual([
    'draft',
    'awaiting_approval',
    'pending',
    'running',
    'pause_requested',
    'paused',
    'reconciliation_required',
  ])
  expect(candidateStatuses('replay')).toEqual([
    'reconciliation_required',
    'succeeded',
    'partially_succeeded',
    'failed',
    'cancelled',
    'completed_after_cancel',
  ])
})

test('a dry run can be started until it expires, and nothing else ever', () => {
  expect(BULK_STATUSES.map((status) => startDecision(status, false))).toEqual([
    'start',
    'not-startable',
    'not-startable',
    'not-startable',
  ])
  expect(BULK_STATUSES.map((status) => startDecision(status, true))).toEqual([
    'expired',
    'not-startable',
    'not-startable',
    'not-startable',
  ])
})

test('what has not finished can be aborted, and a repeat is told the same', () => {
  expect(BULK_STATUSES.map(abortDecision)).toEqual(['abort', 'abort', 'not-abortable', 'receipt'])
})

test('an error that says nothing of the target is no refusal', () => {
  expect(ERROR_CODES.filter((code) => !isRefusal(code)).sort()).toEqual([
    'database-unavailable',
    'internal',
    'not-ready',
    'overloaded',
    'preflight-outdated',
    'shutting-down',
    'version-conflict',
  ])
})
