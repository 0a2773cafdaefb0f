/**
 * The figures a one-person team reads in five minutes, each with its threshold, its verdict and the first thing to do;
 * and the signals by which an operation looks stuck. Judged per type. Nothing here measures anything.
 */
import { isHeartbeatLate, isHeartbeatMissed } from './lease.ts'
import type { OperationStatus } from './operation.ts'
import { RATE_CALLS_MIN, rateOf, type Share } from './replay.ts'

export interface HealthFigures {
  /** Null where nothing waits. */
  oldestWaitingSeconds: number | null
  p95Ms: number | null
  usualP95Ms: number | null
  /** Attempts that ended in a retry. Normal rejects are not among them. */
  retries: Share
  deadLetters: number
  cancelToFinalP95Seconds: number | null
  effectsAfterCancel: number
  ledgerRowsMissing: number
  /** Uncertain items among the items that have an outcome. */
  uncertain: Share
  casesOpenOver24h: number
  touchesMoney: boolean
  owner: string | null
}

export type Verdict = 'ok' | 'alarm' | 'no_data'

export interface HealthVerdict {
  figure: string
  value: number | null
  threshold: string
  verdict: Verdict
  firstAction: string
}

interface Gauge {
  figure: string
  /** Learned ones depend on the figures. */
  threshold: string | ((figures: HealthFigures) => string)
  firstAction: (figures: HealthFigures) => string
  value: (figures: HealthFigures) => number | null
  isAlarm: (value: number, figures: HealthFigures) => boolean
}

const shareOrNone = (share: Share): number | null => (share.calls > 0 ? rateOf(share) : null)

/** A p95 is slow against the type's own past only. */
const P95_FACTOR_MAX = 2

const HEALTH_GAUGES: readonly Gauge[] = [
  {
    figure: 'oldest_waiting_seconds',
    threshold: '> 3600',
    firstAction: () =>
      'See GET /workers: is a live worker with this type there, and is the type or a rate limit holding it?',
    value: (figures) => figures.oldestWaitingSeconds,
    isAlarm: (value) => value > 3_600,
  },
  {
    figure: 'p95_ms',
    threshold: ({ usualP95Ms }) =>
      usualP95Ms === null ? '> 2 × usual' : `> ${P95_FACTOR_MAX * usualP95Ms} (2 × usual)`,
    firstAction: () => 'Check the provider: its latency and its status page; then the lease against the lease advice.',
    value: (figures) => figures.p95Ms,
    isAlarm: (value, { usualP95Ms }) => usualP95Ms !== null && value > P95_FACTOR_MAX * usualP95Ms,
  },
  {
    figure: 'retry_rate',
    threshold: '> 5%',
    firstAction: () => 'Check the provider for 429 and 503 answers; lower the rate limit before raising the attempts.',
    value: (figures) => shareOrNone(figures.retries),
    isAlarm: (value, { retries }) => retries.calls >= RATE_CALLS_MIN && value > 0.05,
  },
  {
    figure: 'dead_letters',
    threshold: '≥ 1',
    firstAction: () => 'See GET /incidents: check the provider first, then our code.',
    value: (figures) => figures.deadLetters,
    isAlarm: (value) => value >= 1,
  },
]

const CANCEL_GAUGES: readonly Gauge[] = [
  {
    figure: 'cancel_to_final_p95_seconds',
    threshold: '> 30',
    firstAction: () => 'Check the batch size, the checkpoints and the queue delay.',
    value: (figures) => figures.cancelToFinalP95Seconds,
    isAlarm: (value) => value > 30,
  },
  {
    figure: 'new_effects_after_cancel',
    threshold: '> 0',
    firstAction: () => 'Check the fence: which worker sent after the acknowledgement, and with which epoch?',
    value: (figures) => figures.effectsAfterCancel,
    isAlarm: (value) => value > 0,
  },
  {
    figure: 'ledger_rows_missing',
    threshold: '> 0',
    firstAction: () => 'Stop the deployment.',
    value: (figures) => figures.ledgerRowsMissing,
    isAlarm: (value) => value > 0,
  },
  {
    figure: 'uncertain_ratio',
    threshold: '> 0.1%, and any where money is touched',
    firstAction: () => 'Check the status of the provider and its handling of idempotency keys.',
    value: (figures) => shareOrNone(figures.uncertain),
    isAlarm: (value, { touchesMoney }) => value > (touchesMoney ? 0 : 0.001),
  },
  {
    figure: 'cases_open_over_24h',
    threshold: '> 0',
    firstAction: ({ owner }) =>
      `Escalate to ${owner ?? 'whoever owns the type (the type file names no owner)'}: by hand, before any replay.`,
    value: (figures) => figures.casesOpenOver24h,
    isAlarm: (value) => value > 0,
  },
]

/** Figures that count items, effects, rows or cases. */
export const COUNT_FIGURES: ReadonlySet<string> = new Set([
  'dead_letters',
  'new_effects_after_cancel',
  'ledger_rows_missing',
  'cases_open_over_24h',
])
/** Figures that are shares of such counts. */
export const RATIO_FIGURES: ReadonlySet<string> = new Set(['retry_rate', 'uncertain_ratio'])

const judge = (gauges: readonly Gauge[], figures: HealthFigures): HealthVerdict[] =>
  gauges.map(({ figure, threshold, firstAction, value, isAlarm }) => {
    const actual = value(figures)
    const verdict = actual === null ? 'no_data' : isAlarm(actual, figures) ? 'alarm' : 'ok'
    const said = typeof threshold === 'string' ? threshold : threshold(figures)
    return { figure, value: actual, threshold: said, verdict, firstAction: firstAction(figures) }
  })

export interface HealthReport {
  health: HealthVerdict[]
  cancelContract: HealthVerdict[]
}

export const judgeHealth = (figures: HealthFigures): HealthReport => ({
  health: judge(HEALTH_GAUGES, figures),
  cancelContract: judge(CANCEL_GAUGES, figures),
})

const CANCEL_ALARM_SECONDS = 5 * 60
const CANCEL_ALARM_EXTERNAL_SECONDS = 2 * 60

/** `cancel_requested` for too long: an alarm. With an external provider sooner, as each minute may be a real effect. */
export const isCancelOverdue = (facts: {
  effect: 'external' | 'transactional' | 'artifact'
  sinceRequestSeconds: number
}) => facts.sinceRequestSeconds > (facts.effect === 'external' ? CANCEL_ALARM_EXTERNAL_SECONDS : CANCEL_ALARM_SECONDS)

export const STUCK_SIGNALS = [
  'heartbeat_late',
  'heartbeat_missed',
  'checkpoint_unchanged',
  'attempts_used',
  'downstream_errors',
  'no_ledger_write',
  'no_worker',
] as const
export type StuckSignal = (typeof STUCK_SIGNALS)[number]

const CHECKPOINT_MS_MAX = 10 * 60_000
const ATTEMPTS_ON_ONE_ITEM = 3
const DOWNSTREAM_ERROR_RATE_MAX = 0.1

export interface StuckFacts {
  status: OperationStatus
  /** The leased shard whose last beat is the oldest; null: no shard is leased. */
  oldestBeat: { sinceBeatMs: number; leaseMs: number } | null
  /** Since the last checkpoint or, before the first one, since the start; null: not started. */
  sinceProgressMs: number | null
  /** Since the last ledger entry or, before the first one, since the start; null: not started. */
  sinceLedgerWriteMs: number | null
  /** How long a run of the type may go without a step. */
  stallMs: number
  /** The most attempts that any item without a final outcome has used. */
  attemptsMost: number
  downstreamErrors5m: Share
  /** Live workers that have the type in the operation's version. */
  liveWorkers: number
}

/** Statuses in which something should be moving. */
const MOVING: ReadonlySet<OperationStatus> = new Set(['pending', 'running', 'pause_requested', 'cancel_requested'])

const isOver = (sinceMs: number | null, maxMs: number): boolean => sinceMs !== null && sinceMs > maxMs

/** All signals that hold. One alone proves nothing: they are shown together, and a person judges. */
export const stuckSignals = (facts: StuckFacts): StuckSignal[] => {
  if (!MOVING.has(facts.status)) return []
  const { oldestBeat } = facts
  const isMissed = oldestBeat !== null && isHeartbeatMissed(oldestBeat)
  const errors = facts.downstreamErrors5m
  const holds: Record<StuckSignal, boolean> = {
    heartbeat_late: oldestBeat !== null && isHeartbeatLate(oldestBeat),
    heartbeat_missed: isMissed,
    checkpoint_unchanged: isOver(facts.sinceProgressMs, CHECKPOINT_MS_MAX),
    attempts_used: facts.attemptsMost >= ATTEMPTS_ON_ONE_ITEM,
    downstream_errors: errors.calls >= RATE_CALLS_MIN && rateOf(errors) > DOWNSTREAM_ERROR_RATE_MAX,
    // Alive, by its beats, and yet nothing is written down.
    no_ledger_write: oldestBeat !== null && !isMissed && isOver(facts.sinceLedgerWriteMs, facts.stallMs),
    no_worker: facts.liveWorkers === 0,
  }
  return STUCK_SIGNALS.filter((signal) => holds[signal])
}
