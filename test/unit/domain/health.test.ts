import { describe, expect, test } from 'vitest'
import {
  COUNT_FIGURES,
  type HealthFigures,
  isCancelOverdue,
  judgeHealth,
  RATIO_FIGURES,
  STUCK_SIGNALS,
  type StuckFacts,
  type StuckSignal,
  stuckSignals,
  type Verdict,
} from '../../../src/domain/health.ts'
import { OPERATION_STATUSES } from '../../../src/domain/operation.ts'

const well: HealthFigures = {
  oldestWaitingSeconds: 3_600,
  p95Ms: 200,
  usualP95Ms: 100,
  retries: { count: 5, calls: 100 },
  deadLetters: 0,
  cancelToFinalP95Seconds: 30,
  effectsAfterCancel: 0,
  ledgerRowsMissing: 0,
  uncertain: { count: 1, calls: 1_000 },
  casesOpenOver24h: 0,
  touchesMoney: false,
  owner: 'identity-team',
}

const verdictOf = (figure: string, figures: HealthFigures): Verdict | undefined => {
  const { health, cancelContract } = judgeHealth(figures)
  return [...health, ...cancelContract].find((one) => one.figure === figure)?.verdict
}

describe('judgeHealth', () => {
  test('four figures and the cancel contract of five, all well at their thresholds, each with a first action', () => {
    const { health, cancelContract } = judgeHealth(well)
    expect(health.map(({ figure }) => figure)).toEqual([
      'oldest_waiting_seconds',
      'p95_ms',
      'retry_rate',
      'dead_letters',
    ])
    expect(cancelContract.map(({ figure }) => figure)).toEqual([
      'cancel_to_final_p95_seconds',
      'new_effects_after_cancel',
      'ledger_rows_missing',
      'uncertain_ratio',
      'cases_open_over_24h',
    ])
    for (const { verdict, firstAction, threshold } of [...health, ...cancelContract]) {
      expect(verdict).toBe('ok')
      expect(firstAction).toMatch(/^[A-Z].+\.$|\?$/)
      expect(threshold).not.toBe('')
    }
  })

  test.each<[string, Partial<HealthFigures>, Verdict]>([
    ['oldest_waiting_seconds', { oldestWaitingSeconds: 3_601 }, 'alarm'],
    ['oldest_waiting_seconds', { oldestWaitingSeconds: null }, 'no_data'],
    ['p95_ms', { p95Ms: 201 }, 'alarm'],
    ['p95_ms', { p95Ms: 10_000, usualP95Ms: null }, 'ok'],
    ['p95_ms', { p95Ms: null }, 'no_data'],
    ['retry_rate', { retries: { count: 6, calls: 100 } }, 'alarm'],
    ['retry_rate', { retries: { count: 2, calls: 20 } }, 'alarm'],
    ['retry_rate', { retries: { count: 19, calls: 19 } }, 'ok'],
    ['retry_rate', { retries: { count: 0, calls: 0 } }, 'no_data'],
    ['dead_letters', { deadLetters: 1 }, 'alarm'],
    ['cancel_to_final_p95_seconds', { cancelToFinalP95Seconds: 30.1 }, 'alarm'],
    ['cancel_to_final_p95_seconds', { cancelToFinalP95Seconds: null }, 'no_data'],
    ['new_effects_after_cancel', { effectsAfterCancel: 1 }, 'alarm'],
    ['ledger_rows_missing', { ledgerRowsMissing: 1 }, 'alarm'],
    ['uncertain_ratio', { uncertain: { count: 2, calls: 1_000 } }, 'alarm'],
    ['uncertain_ratio', { uncertain: { count: 0, calls: 0 } }, 'no_data'],
    ['uncertain_ratio', { touchesMoney: true, uncertain: { count: 1, calls: 1_000_000 } }, 'alarm'],
    ['uncertain_ratio', { touchesMoney: true, uncertain: { count: 0, calls: 5 } }, 'ok'],
    ['cases_open_over_24h', { casesOpenOver24h: 1 }, 'alarm'],
  ])('%s with %o: %s', (figure, change, verdict) => {
    expect(verdictOf(figure, { ...well, ...change })).toBe(verdict)
  })

  test('a usual value that is not known yet is no threshold', () => {
    const { health } = judgeHealth({ ...well, usualP95Ms: null })
    expect(health.find(({ figure }) => figure === 'p95_ms')?.threshold).toBe('> 2 × usual')
  })

  test('every threshold is said as it is judged, and every first action names where to look', () => {
    const { health, cancelContract } = judgeHealth(well)
    expect([...health, ...cancelContract].map(({ threshold, firstAction }) => [threshold, firstAction])).toEqual([
      [
        '> 3600',
        'See GET /workers: is a live worker with this type there, and is the type or a rate limit holding it?',
      ],
      [
        '> 200 (2 × usual)',
        'Check the provider: its latency and its status page; then the lease against the lease advice.',
      ],
      ['> 5%', 'Check the provider for 429 and 503 answers; lower the rate limit before raising the attempts.'],
      ['≥ 1', 'See GET /incidents: check the provider first, then our code.'],
      ['> 30', 'Check the batch size, the checkpoints and the queue delay.'],
      ['> 0', 'Check the fence: which worker sent after the acknowledgement, and with which epoch?'],
      ['> 0', 'Stop the deployment.'],
      [
        '> 0.1%, and any where money is touched',
        'Check the status of the provider and its handling of idempotency keys.',
      ],
      ['> 0', 'Escalate to identity-team: by hand, before any replay.'],
    ])
  })

  test('every figure that is no time is known as a count or as a share of counts: a type may show these as ranges', () => {
    const { health, cancelContract } = judgeHealth(well)
    const figures = [...health, ...cancelContract].map(({ figure }) => figure)
    const isTime = (figure: string) => /_(seconds|ms)$/.test(figure)
    const isShare = (figure: string) => /_(rate|ratio)$/.test(figure)
    expect(figures.filter((figure) => RATIO_FIGURES.has(figure))).toEqual(figures.filter(isShare))
    expect(figures.filter((figure) => COUNT_FIGURES.has(figure))).toEqual(
      figures.filter((figure) => !isTime(figure) && !isShare(figure)),
    )
  })

  test('the values are shown beside their verdicts', () => {
    const { health, cancelContract } = judgeHealth(well)
    expect([...health, ...cancelContract].map(({ value }) => value)).toEqual([3_600, 200, 0.05, 0, 30, 0, 0, 0.001, 0])
  })

  test('old cases go to the owner of the type, or say that there is none', () => {
    const action = (owner: string | null) => judgeHealth({ ...well, owner }).cancelContract.at(-1)?.firstAction
    expect(action('identity-team')).toBe('Escalate to identity-team: by hand, before any replay.')
    expect(action(null)).toBe(
      'Escalate to whoever owns the type (the type file names no owner): by hand, before any replay.',
    )
  })
})

test.each([
  ['external', 120, false],
  ['external', 121, true],
  ['transactional', 121, false],
  ['transactional', 301, true],
  ['artifact', 300, false],
] as const)('a cancel of an %s type is overdue after %i s: %s', (effect, sinceRequestSeconds, expected) => {
  expect(isCancelOverdue({ effect, sinceRequestSeconds })).toBe(expected)
})

describe('stuckSignals', () => {
  const moving: StuckFacts = {
    status: 'running',
    oldestBeat: { sinceBeatMs: 9_000, leaseMs: 30_000 },
    sinceProgressMs: 600_000,
    sinceLedgerWriteMs: 60_000,
    stallMs: 60_000,
    attemptsMost: 2,
    downstreamErrors5m: { count: 2, calls: 20 },
    liveWorkers: 1,
  }

  test.each<[string, Partial<StuckFacts>, StuckSignal[]]>([
    ['nothing, up to every threshold', {}, []],
    ['half a lease without a beat', { oldestBeat: { sinceBeatMs: 15_000, leaseMs: 30_000 } }, ['heartbeat_late']],
    [
      'two beats missed: not alive, so the silent ledger says nothing more',
      { oldestBeat: { sinceBeatMs: 20_001, leaseMs: 30_000 }, sinceLedgerWriteMs: 90_000 },
      ['heartbeat_late', 'heartbeat_missed'],
    ],
    ['no checkpoint for over 10 min', { sinceProgressMs: 600_001 }, ['checkpoint_unchanged']],
    ['three attempts on one item', { attemptsMost: 3 }, ['attempts_used']],
    ['downstream errors', { downstreamErrors5m: { count: 3, calls: 20 } }, ['downstream_errors']],
    ['too few calls', { downstreamErrors5m: { count: 19, calls: 19 } }, []],
    ['alive and silent', { sinceLedgerWriteMs: 60_001 }, ['no_ledger_write']],
    ['silent, but nobody holds a shard', { sinceLedgerWriteMs: 60_001, oldestBeat: null }, []],
    ['no worker', { liveWorkers: 0, oldestBeat: null }, ['no_worker']],
    ['not started', { status: 'pending', oldestBeat: null, sinceProgressMs: null, sinceLedgerWriteMs: null }, []],
  ])('%s', (_name, change, expected) => {
    expect(stuckSignals({ ...moving, ...change })).toEqual(expected)
  })

  const everything: Partial<StuckFacts> = {
    oldestBeat: { sinceBeatMs: 40_000, leaseMs: 30_000 },
    sinceProgressMs: 1e9,
    attemptsMost: 9,
    downstreamErrors5m: { count: 20, calls: 20 },
    liveWorkers: 0,
  }
  test.each(OPERATION_STATUSES)('%s: judged only where something should be moving', (status) => {
    const isMoving = ['pending', 'running', 'pause_requested', 'cancel_requested'].includes(status)
    const signals = stuckSignals({ ...moving, ...everything, status })
    expect(signals).toEqual(isMoving ? STUCK_SIGNALS.filter((signal) => signal !== 'no_ledger_write') : [])
  })
})
