import { describe, expect, it } from 'vitest'
import { isFinal, isMoving, possibleFor, statusName, statusSentence, toneOf } from '../../../src/console/status.ts'
import { TEXTS } from '../../../src/console/texts.ts'
import {
  cancelDecision,
  FINAL_STATUSES,
  isSettled,
  OPERATION_STATUSES,
  pauseDecision,
  resumeDecision,
} from '../../../src/domain/operation.ts'

const { en, ko } = TEXTS
const NONE = { total: 0, applied: 0, skipped: 0, failed: 0, uncertain: 0, unprocessed: 0, in_flight: 0 }
const of = (status: string, counts: Partial<typeof NONE> = {}, waiting_for: string[] = []) => ({
  status,
  counts: { ...NONE, ...counts },
  waiting_for,
})

describe('statusSentence', () => {
  it.each([
    [
      of('cancel_requested', { applied: 2300, unprocessed: 47697, uncertain: 3 }),
      'Stopping, checking results: 2,300 applied, 3 being checked, 47,697 not processed',
    ],
    [of('cancelled', { unprocessed: 5 }), 'Cancelled before anything was done: 5 not processed'],
    [
      of('cancelled', { applied: 1, unprocessed: 4 }),
      'Cancelled; what was processed stays: 1 applied, 4 not processed',
    ],
    [of('completed_after_cancel', { applied: 5 }), 'It was already done when the cancel came: 5 applied'],
    [
      of('reconciliation_required', { uncertain: 1, applied: 4 }),
      'Some effects are being checked: 4 applied, 1 being checked',
    ],
    [of('pending', { unprocessed: 2 }, ['op_1']), 'Waiting for another operation to end: 2 not processed'],
    [of('draft'), 'Draft, items are being uploaded; nothing runs yet'],
    [of('failed', { failed: 2 }), 'Failed, nothing was applied: 2 failed'],
    [of('new_status', { skipped: 1 }), 'new_status: 1 skipped'],
  ])('%#', (operation, sentence) => {
    expect(statusSentence(operation, en, 'en')).toBe(sentence)
  })

  it('speaks Korean', () => {
    expect(statusSentence(of('cancelled', { applied: 1200, unprocessed: 1 }), ko, 'ko')).toBe(
      '취소되었습니다. 이미 처리된 것은 그대로 남습니다: 적용 1,200건, 미처리 1건',
    )
  })

  it.each(OPERATION_STATUSES)('never hides an outcome: %s', (status) => {
    const sentence = statusSentence(
      of(status, { applied: 1, skipped: 2, failed: 3, uncertain: 4, unprocessed: 5 }),
      en,
      'en',
    )
    for (const part of ['1 applied', '2 skipped', '3 failed', '4 being checked', '5 not processed'])
      expect(sentence).toContain(part)
    expect(sentence).not.toContain('before anything')
  })
})

describe('what may be asked', () => {
  const cancel = { possible: true, requested_at: null } as Parameters<typeof possibleFor>[0]['cancel']

  it.each(OPERATION_STATUSES)('is what the service allows: %s', (status) => {
    const possible = possibleFor({ status, cancel: { ...cancel, possible: !isFinal(status) } })
    expect(possible.pause).toBe(pauseDecision(status).kind === 'stop')
    expect(possible.resume).toBe(resumeDecision(status).kind === 'resume')
    expect(possible.cancel).toBe(cancelDecision(status, false).kind === 'stop')
    expect(possible.replay).toBe(isSettled(status))
    expect(possible.start).toBe(status === 'draft')
    expect(possible.decide).toBe(status === 'awaiting_approval')
  })

  it('cancels once', () => {
    expect(possibleFor({ status: 'running', cancel: { ...cancel, requested_at: '2026-01-01T00:00:00Z' } }).cancel).toBe(
      false,
    )
  })
})

it('knows which statuses are final, and that those do not move', () => {
  for (const status of OPERATION_STATUSES) {
    expect(isFinal(status)).toBe((FINAL_STATUSES as readonly string[]).includes(status))
    if (isFinal(status)) expect(isMoving(status)).toBe(false)
  }
})

it('shows what it does not know as it is', () => {
  expect(statusName('tomorrow', en)).toBe('tomorrow')
  expect(toneOf('tomorrow')).toBe('neutral')
})
