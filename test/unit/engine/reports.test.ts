import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { fingerprint } from '../../../src/domain/failure.ts'
import type { EffectLookup, Executor, SendOutcome } from '../../../src/domain/operation-type.ts'
import { failureFate, firstLookupMs, sentReport, unsentReport } from '../../../src/services/outcome-reports.ts'
import { plantedType } from '../../support/planted-operation.ts'

const type = plantedType('grant', { retry: { maxAttempts: 3, baseMs: 1_000, maxMs: 30_000 } })
const intent = { ord: 4, effectKey: 'e4', send: 2 }
const sent = { ...intent, key: 'k4', attempt: 1, resend: false }
/** A report that says nothing: what the expectations below start from. */
const SILENT = {
  ord: 4,
  effectKey: 'e4',
  send: 2,
  failureClass: null,
  reasonCode: null,
  message: null,
  effectRef: null,
  evidenceRef: null,
  retry: null,
  fingerprint: null,
}

beforeEach(() => {
  vi.spyOn(Math, 'random').mockReturnValue(0.5)
})
afterEach(() => {
  vi.restoreAllMocks()
})

describe('an intent that was not sent', () => {
  test('goes back uncharged, and is due at once', () => {
    const retry = { afterMs: 0, reason: 'unsent' }
    expect(unsentReport({ ...intent, resend: false })).toEqual({ ...SILENT, effect: 'absent', item: null, retry })
  })

  test('is as unknown as before where it would have been a resend', () => {
    expect(unsentReport({ ...intent, resend: true })).toEqual({ ...SILENT, effect: 'uncertain', item: null })
  })
})

describe('the answer to a send', () => {
  test.each<[SendOutcome, object]>([
    [
      { state: 'applied', effectRef: 'r' },
      { effect: 'applied', item: 'applied', effectRef: 'r' },
    ],
    [{ state: 'applied' }, { effect: 'applied', item: 'applied' }],
    [
      { state: 'skipped', reasonCode: 'THERE', effectRef: 'r' },
      { effect: 'applied', item: 'skipped', reasonCode: 'THERE', effectRef: 'r' },
    ],
    [
      { state: 'skipped', reasonCode: 'THERE' },
      { effect: 'applied', item: 'skipped', reasonCode: 'THERE' },
    ],
    [
      { state: 'uncertain', reasonCode: 'TIMEOUT', message: 'late' },
      { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT', message: 'late' },
    ],
    [
      { state: 'uncertain', reasonCode: 'TIMEOUT' },
      { effect: 'uncertain', item: 'uncertain', reasonCode: 'TIMEOUT' },
    ],
    [
      { state: 'failed', failureClass: 'validation_rejected', reasonCode: 'NO', message: 'no' },
      { effect: 'absent', item: 'failed', failureClass: 'validation_rejected', reasonCode: 'NO', message: 'no' },
    ],
    [
      { state: 'failed', failureClass: 'transient' },
      { effect: 'absent', item: 'failed', failureClass: 'transient', retry: { afterMs: 500, reason: 'failed' } },
    ],
  ])('%o', (outcome, said) => {
    expect(sentReport(type, sent, outcome)).toEqual({ ...SILENT, ...said })
  })

  test('a resend that is answered "applied" is applied; any other answer leaves the first send unknown', () => {
    const resend = { ...sent, resend: true }
    expect(sentReport(type, resend, { state: 'applied' })).toMatchObject({ effect: 'applied', item: 'applied' })
    for (const outcome of [
      { state: 'skipped', reasonCode: 'THERE' },
      { state: 'failed', failureClass: 'transient' },
      { state: 'uncertain', reasonCode: 'TIMEOUT' },
    ] satisfies SendOutcome[]) {
      expect(sentReport(type, resend, outcome)).toEqual({
        ...SILENT,
        effect: 'uncertain',
        item: 'uncertain',
        reasonCode: 'RESEND_UNANSWERED',
        message: `the resend answered ${outcome.state}`,
      })
    }
  })
})

describe('what becomes of a failure', () => {
  const failure = { failureClass: 'transient', reasonCode: 'X', message: 'k4 failed under e4' } as const
  const item = { key: 'k4', effectKey: 'e4', attempt: 1 }

  test('another attempt, after a pause within the limits of its type', () => {
    expect(failureFate(type, failure, { ...item, attempt: 2 })).toEqual({ retryMs: 1_000, fingerprint: null })
    const capped = plantedType('grant', { retry: { maxAttempts: 9, baseMs: 1_000, maxMs: 2_000 } })
    expect(failureFate(capped, failure, { ...item, attempt: 8 })).toEqual({ retryMs: 1_000, fingerprint: null })
  })

  test('a dead letter when the attempts are used up, grouped by its cause and not by the item', () => {
    const cause = { type: 'grant', ...failure, names: ['k4', 'e4'] }
    const fate = failureFate(type, failure, { ...item, attempt: 3 })
    expect(fate).toEqual({ retryMs: null, fingerprint: fingerprint(cause) })
    const other = { ...failure, message: 'key-of-another failed under effect-of-another' }
    const named = { key: 'key-of-another', effectKey: 'effect-of-another', attempt: 3 }
    const first = { ...failure, message: 'key-of-one failed under effect-of-one' }
    expect(failureFate(type, other, named)).toEqual(
      failureFate(type, first, { key: 'key-of-one', effectKey: 'effect-of-one', attempt: 3 }),
    )
  })

  test('a result that stands', () => {
    const rejected = { ...failure, failureClass: 'validation_rejected' } as const
    expect(failureFate(type, rejected, item)).toEqual({ retryMs: null, fingerprint: null })
  })
})

describe('the first look at what became uncertain', () => {
  const lookup = (afterMs: number): EffectLookup => ({
    afterMs,
    timeoutMs: 1_000,
    find: async () => ({ state: 'unknown', reasonCode: 'NONE' }),
  })
  const external = (over: object): Executor => ({
    kind: 'external',
    callTimeoutMs: 1_000,
    send: () => Promise.reject(new Error('not run here')),
    lookup: null,
    ...over,
  })

  test.each([
    ['after what the lookup asks for', external({ lookup: lookup(700) }), 60_000, 700],
    ['at once, where a resend is safe', external({}), 60_000, 0],
    ['never, where neither can be done', external({}), 0, null],
    [
      'never, where nothing is uncertain',
      { kind: 'transactional', runBatch: async () => undefined } as Executor,
      9,
      null,
    ],
  ])('%s', (_when, executor, providerIdempotentMs, afterMs) => {
    expect(firstLookupMs({ executor, providerIdempotentMs })).toBe(afterMs)
  })
})
