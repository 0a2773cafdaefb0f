import { describe, expect, it } from 'vitest'
import {
  formatActual,
  formatCount,
  formatDuration,
  formatFigure,
  formatRate,
  formatRelative,
  formatShare,
  secondsSince,
  secondsUntil,
} from '../../../src/console/format.ts'
import { isForceable as isForceableHere } from '../../../src/console/preflight.ts'
import { isForceable } from '../../../src/domain/replay.ts'

const NOW = Date.parse('2026-03-01T12:00:00Z')

it('groups counts', () => {
  expect(formatCount(1_000_000, 'en')).toBe('1,000,000')
  expect(formatCount(47_697, 'ko')).toBe('47,697')
})

it.each([
  [0, '0%'],
  [0.046, '4.6%'],
  [0.000001, '0.1%'],
  [0.9999999, '99.9%'],
  [1, '100%'],
  [0.29, '29%'],
])('says what part %f is, and never all of what is not', (share, text) => {
  expect(formatShare(share, 'en')).toBe(text)
})

it.each([
  [0, '0 sec'],
  [0.4, '0 sec'],
  [59, '59 sec'],
  [60, '1 min'],
  [61, '1 min 1 sec'],
  [7_500, '2 hr 5 min'],
  [90_000, '1 day 1 hr'],
  [3 * 86_400 + 59, '3 days'],
  [-5, '0 sec'],
])('says how long %f s are', (seconds, text) => {
  expect(formatDuration(seconds, 'en')).toBe(text)
})

it('says durations in Korean', () => {
  expect(formatDuration(7_500, 'ko')).toBe('2시간 5분')
})

it.each([
  [0.44, '0.4'],
  [9.96, '10'],
  [181.4, '181'],
  [12_345, '12,345'],
])('says the rate %f', (rate, text) => {
  expect(formatRate(rate, 'en')).toBe(text)
})

describe('times', () => {
  it('are told relative to now', () => {
    expect(formatRelative('2026-03-01T11:57:00Z', NOW, 'en')).toBe('3 min. ago')
    expect(formatRelative('2026-03-01T14:00:00Z', NOW, 'en')).toBe('in 2 hr.')
    expect(formatRelative('2026-03-01T11:57:00Z', NOW, 'ko')).toBe('3분 전')
  })

  it('are never negative, as clocks differ', () => {
    expect(secondsSince('2026-03-01T12:00:10Z', NOW)).toBe(0)
    expect(secondsSince('2026-03-01T11:59:00Z', NOW)).toBe(60)
  })

  it('give no estimate that has passed', () => {
    expect(secondsUntil(null, NOW)).toBeNull()
    expect(secondsUntil('2026-03-01T11:59:59Z', NOW)).toBeNull()
    expect(secondsUntil('2026-03-01T12:01:00Z', NOW)).toBe(60)
  })
})

it.each([
  ['oldest_waiting_seconds', 3_661, '1 hr 1 min'],
  ['p95_ms', 1234.5, '1,235 ms'],
  ['retry_rate', 0.051, '5.1%'],
  ['uncertain_ratio', 0.0001, '0.1%'],
  ['dead_letters', 12, '12'],
])('says the figure %s in its unit', (figure, value, text) => {
  expect(formatFigure(figure, value, 'en')).toBe(text)
})

it('says what a stop condition compares', () => {
  expect(formatActual('ambiguous_effect_targets > 0', 3, 'en')).toBe('3')
  expect(formatActual('downstream_error_rate_5m > 5%', 0.25, 'en')).toBe('25%')
})

it.each([
  'not-settled',
  'nothing-to-replay',
  'ambiguous_effect_targets > 0',
  'bug-suspected',
  'downstream_error_rate_5m > 5%',
  'replay_reject_rate > 10%',
])('forces what the service lets force: %s', (code) => {
  expect(isForceableHere(code)).toBe(isForceable(code))
})
