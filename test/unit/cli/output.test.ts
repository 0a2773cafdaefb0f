import { describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/cli/api-client.ts'
import type { Preflight } from '../../../src/cli/api-types.ts'
import { CommandFailure, EXIT } from '../../../src/cli/exit-codes.ts'
import { describeFailure } from '../../../src/cli/failures.ts'
import { describePreflight, scopeOf } from '../../../src/cli/preflight-table.ts'
import { describeProgress, openProgress } from '../../../src/cli/progress.ts'
import { describeOperation, isFinal, statusInWords } from '../../../src/cli/status-words.ts'
import { duration, printable, table } from '../../../src/cli/text.ts'
import { exitCodeOf } from '../../../src/cli/wait.ts'
import { FINAL_STATUSES, OPERATION_STATUSES } from '../../../src/domain/operation.ts'
import { operationIn } from './operations.ts'

const command = (rest: string): string => `opledger ${rest}`
const NOW = Date.parse('2026-11-29T14:20:00Z')
const counts = {
  total: 50_000,
  applied: 2_300,
  skipped: 0,
  failed: 12,
  uncertain: 3,
  unprocessed: 47_685,
  in_flight: 16,
}

describe('texts', () => {
  it('let nothing that comes from elsewhere move the cursor or turn the line', () => {
    expect(printable('a\u001b[2Jb\u202ec\nd')).toBe('a\\u{1b}[2Jb\\u{202e}c\\u{a}d')
    expect(table([['evil\u001b[31m', 1]])).toBe('evil\\u{1b}[31m  1\n')
  })

  it('align numbers to the right', () => {
    expect(
      table([
        ['a', 1],
        ['bcd', 1_234],
      ]),
    ).toBe('a        1\nbcd  1,234\n')
  })

  it.each([
    [0.2, '1 s'],
    [59, '59 s'],
    [61, '1 min 1 s'],
    [3_661, '1 h 1 min'],
    [90_000, '1 d 1 h'],
  ])('%d s is %s', (seconds, text) => {
    expect(duration(seconds)).toBe(text)
  })
})

describe('the status in words', () => {
  it.each(OPERATION_STATUSES)('%s', (status) => {
    const operation = operationIn(status, { counts })
    expect(statusInWords(operation)).not.toBe('')
    expect(isFinal(operation)).toBe(FINAL_STATUSES.some((final) => final === status))
    expect(describeOperation(operation, command)).toContain('2,300 applied')
  })

  it('says what was done, what was not, and what is next', () => {
    expect(statusInWords(operationIn('cancelled', { counts }))).toBe(
      'cancelled: 2,300 done before it stopped, 47,685 not processed',
    )
    expect(describeOperation(operationIn('reconciliation_required', { counts, id: 'op_1' }), command)).toContain(
      'next: opledger reconcile list --operation op_1',
    )
    expect(describeOperation(operationIn('cancelled', { counts, id: 'op_1' }), command)).toContain(
      'next: opledger preflight op_1',
    )
  })

  it('does not take an unknown status for an end', () => {
    expect(isFinal(operationIn('hibernating'))).toBe(false)
  })
})

describe('progress', () => {
  const running = operationIn('running', {
    counts,
    progress: { ratio: 0.046, rate_per_second: 181.4, eta: '2026-11-29T14:24:22Z', last_progress_at: null },
  })
  const capture = (isTTY: boolean) => {
    const written: string[] = []
    let now = NOW
    const progress = openProgress({ isTTY, columns: 70, write: (text) => written.push(text) }, () => now)
    return { progress, written, wait: (ms: number) => (now += ms) }
  }

  it('has counts, rate, time left, and what went wrong', () => {
    expect(describeProgress(running, NOW)).toBe(
      '  4 %  2,315/50,000  181/s  4 min 22 s left  running  12 failed  3 being checked',
    )
  })

  it('is one line in place on a terminal, never longer than it', () => {
    const { progress, written } = capture(true)
    progress.show(running)
    progress.show(running)
    progress.end()
    expect(written).toHaveLength(3)
    expect(written[0]?.startsWith('\r\u001b[2K[#')).toBe(true)
    expect(written[0]?.replace('\r\u001b[2K', '').length).toBeLessThan(70)
    expect(written[2]).toBe('\n')
  })

  it('is a line at each change of status elsewhere, and now and then in between, without escapes', () => {
    const { progress, written, wait } = capture(false)
    progress.show(operationIn('pending', { counts }))
    progress.show(running)
    for (let seconds = 0; seconds < 12; seconds++) {
      wait(1_000)
      progress.show(running)
    }
    progress.end()
    expect(written).toHaveLength(4)
    expect(written.join('')).not.toContain('\u001b')
    expect(written.every((line) => line.endsWith('\n'))).toBe(true)
  })
})

describe('exit codes', () => {
  it.each([
    ['succeeded', EXIT.ok],
    ['partially_succeeded', EXIT.notWell],
    ['failed', EXIT.notWell],
    ['cancelled', EXIT.notWell],
    ['completed_after_cancel', EXIT.notWell],
    ['reconciliation_required', EXIT.undecided],
  ])('of an operation that ended as %s: %d', (status, code) => {
    expect(exitCodeOf(operationIn(status))).toBe(code)
  })

  const refusal = (status: number, code: string, errors: { detail: string; pointer?: string; line?: number }[] = []) =>
    new Refusal({
      type: 'https://x/problems/y',
      code,
      title: 'No',
      status,
      detail: 'why',
      instance: '/',
      request_id: 'r1',
      errors,
    })

  it.each([
    [refusal(409, 'replay-blocked'), EXIT.blocked],
    [refusal(404, 'operation-not-found'), EXIT.refused],
    [refusal(503, 'overloaded'), EXIT.unavailable],
    [refusal(429, 'too-many-requests'), EXIT.unavailable],
    [refusal(500, 'internal'), EXIT.unavailable],
    [new CommandFailure('x', EXIT.usage), EXIT.usage],
  ])('of a failure', (error, code) => {
    expect(describeFailure(error)?.exitCode).toBe(code)
  })

  it('leave what nobody foresaw to be shown with its stack', () => {
    expect(describeFailure(new TypeError('bug'))).toBeNull()
  })

  it('come with the text of the problem, the place of each fault, and the page that explains it', () => {
    const faults = [
      { detail: 'must be a string', pointer: '/reason' },
      { detail: 'line 2: too long', pointer: '', line: 2 },
    ]
    expect(describeFailure(refusal(422, 'invalid-row', faults))?.lines).toEqual([
      'No (422 invalid-row)',
      'why',
      '- /reason: must be a string',
      '- line 2: too long',
      'What it means and what to do: https://x/problems/y (request r1)',
    ])
  })
})

describe('a preflight', () => {
  const preflight: Preflight = {
    preflight_id: 'pf_1',
    operation_id: 'op_1',
    expires_at: '2026-11-29T14:35:00Z',
    facts_hash: 'h',
    counts_in_ranges: false,
    scope: { states: ['failed', 'unprocessed'], failure_classes: ['transient'], item_keys: null },
    replay_targets: 47_697,
    failed_targets: 12,
    confirmed_targets: 2_300,
    ambiguous_effect_targets: 3,
    validation_rejected_targets: 0,
    unprocessed_targets: 47_685,
    dead_letter_targets: 12,
    last_checkpoint_age: '3m',
    last_checkpoint_age_seconds: 180,
    downstream_error_rate_5m: 0.004,
    code_version_changed: true,
    code_version_then: '3',
    code_version_now: '4',
    requires_approval: true,
    compensation: 'available',
    stop_if: [{ condition: 'ambiguous_effect_targets > 0', actual: 3, tripped: true }],
    allowed: false,
    blocked_by: ['ambiguous_effect_targets > 0'],
  }

  it('shows all that is decided by, what blocks, and what to do about it', () => {
    const text = describePreflight(preflight, command)
    for (const part of [
      '47,697',
      '2,300',
      '3 then, 4 now (changed)',
      '0.4 %',
      'needed',
      '3m ago',
      'TRIPPED',
      'available',
    ]) {
      expect(text).toContain(part)
    }
    expect(text).toMatch(/BLOCKED by\n {2}ambiguous_effect_targets > 0 {2}opledger reconcile list --operation op_1\n$/)
    expect(describePreflight({ ...preflight, allowed: true, blocked_by: [] }, command)).toMatch(/ALLOWED/)
  })

  it('has the default scope unless one is given', () => {
    expect(scopeOf({})).toBeNull()
    expect(scopeOf({ state: ['failed'], item: ['a', 'b'] })).toEqual({ states: ['failed'], item_keys: ['a', 'b'] })
  })
})
