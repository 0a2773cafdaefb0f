import type { JSX } from 'preact'
import { useCallback, useRef } from 'preact/hooks'
import type { Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount, formatDuration, formatRate, formatTime, secondsUntil } from '../format.ts'
import { useEvents } from '../live/use-events.ts'
import { useNow } from '../live/use-now.ts'
import { useRates } from '../live/use-rates.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { StatusBadge } from '../parts/badge.tsx'
import { Chart } from '../parts/chart.tsx'
import { Facts } from '../parts/facts.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { OperationLinks } from '../parts/operation-links.tsx'
import { ProgressBar } from '../parts/progress-bar.tsx'
import { Shards } from '../parts/shards.tsx'
import { StateBar } from '../parts/state-bar.tsx'
import { Moment } from '../parts/time.tsx'
import { Timeline } from '../parts/timeline.tsx'
import { pathOf, type Query, urlWith } from '../router.ts'
import { isFinal, isMoving, lookUp, statusName, statusSentence } from '../status.ts'
import { OperationActions } from './operation-actions.tsx'
import { OperationItems } from './operation-items.tsx'

/** Counts change without an event; while something moves they are asked for often, which an ETag makes cheap. */
const MOVING_MS = 1_500
/** Evidence may still come. */
const RESTING_MS = 15_000

export const OperationPage = ({ id, query }: { id: string; query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const isMovingNow = useRef(true)
  const operation = useRead(
    `operation/${id}`,
    (signal) => client.get('/operations/{id}', { path: { id }, signal }),
    isMovingNow.current ? MOVING_MS : RESTING_MS,
  )
  isMovingNow.current = operation.data === null || isMoving(operation.data.status)
  const onEvent = useCallback(() => operation.refresh(), [operation.refresh])
  const events = useEvents(id, onEvent)
  return (
    <>
      <h1>{operation.data === null ? t.operation.notLoaded : t.operation.title(operation.data.type)}</h1>
      <p>
        <code>{id}</code>
      </p>
      <Loaded read={operation}>
        {(data) => (
          <>
            <Standing operation={data} />
            <OperationActions operation={data} onDone={operation.refresh} />
            <Progress operation={data} />
            <CancelFacts operation={data} />
            <OperationItems operation={data} query={query} />
            <Shards operation={data} query={query} />
            <Timeline events={events} />
            <OperationFacts operation={data} />
          </>
        )}
      </Loaded>
    </>
  )
}

const Standing = ({ operation }: { operation: Operation }): JSX.Element => {
  const { t, language } = useApp()
  const { counts, stuck_signals, error, id } = operation
  return (
    <>
      <p class="standing">
        <StatusBadge status={operation.status} /> <strong>{statusSentence(operation, t, language)}</strong>
      </p>
      {/* announced when the status changes, not with each item */}
      <p class="quiet" role="status">
        {statusName(operation.status, t)}
      </p>
      {counts.uncertain > 0 && (
        <p>
          <Link href={urlWith(pathOf({ page: 'reconciliation' }), { operation_id: id })}>
            {t.operation.cases(formatCount(counts.uncertain, language))}
          </Link>
        </p>
      )}
      {stuck_signals.length > 0 && (
        <div class="box warning">
          <p class="box-title">{t.operation.stuck}</p>
          <ul>
            {stuck_signals.map((signal) => (
              <li key={signal}>{lookUp(t.signal, signal)}</li>
            ))}
          </ul>
          <p class="small">{t.operation.stuckHint}</p>
        </div>
      )}
      {error !== null && (
        <div class="box bad">
          <p class="box-title">{t.operation.error}</p>
          <p>{error.detail}</p>
          <p class="small">
            <code>{error.code}</code>
          </p>
        </div>
      )}
    </>
  )
}

const Progress = ({ operation }: { operation: Operation }): JSX.Element => {
  const { t, language } = useApp()
  const nowMs = useNow(1_000)
  const { counts, progress, failures, status } = operation
  const rates = useRates(counts.total - counts.unprocessed)
  const left = secondsUntil(progress.eta, nowMs)
  // over the time that it ran; while effects are being checked that time only grows
  const hasRate = isMoving(status) || isFinal(status)
  const figures = [
    t.operation.progressOf(
      formatCount(counts.total - counts.unprocessed, language),
      formatCount(counts.total, language),
    ),
    ...(progress.rate_per_second === null || !hasRate
      ? []
      : [t.operation.rate(formatRate(progress.rate_per_second, language))]),
    ...(status !== 'running'
      ? []
      : [
          left === null || progress.eta === null
            ? t.operation.noEta
            : t.operation.eta(formatDuration(left, language), formatTime(progress.eta, language)),
        ]),
  ]
  return (
    <section class="card" aria-labelledby="progress">
      <h2 id="progress">{t.operation.progressTitle}</h2>
      <ProgressBar ratio={progress.ratio} label={t.operation.progressTitle} />
      <p>{figures.join(' · ')}</p>
      <h3>{t.operation.states}</h3>
      <StateBar counts={counts} />
      {Object.keys(failures).length > 0 && (
        <Facts
          facts={Object.entries(failures).map(([name, count]) => [
            `${t.operation.failuresByClass}: ${lookUp(t.failureClass, name)}`,
            formatCount(count, language),
          ])}
        />
      )}
      {rates.times.length > 2 && (
        <>
          <h3>{t.operation.rateChart}</h3>
          <Chart label={t.operation.rateChart} times={rates.times} values={rates.perSecond} kind="line" />
        </>
      )}
    </section>
  )
}

const CancelFacts = ({ operation: { cancel } }: { operation: Operation }): JSX.Element | null => {
  const { t, language } = useApp()
  if (cancel.requested_at === null) return null
  return (
    <section class="card" aria-labelledby="cancel">
      <h2 id="cancel">{t.operation.cancelSection}</h2>
      <Facts
        facts={[
          [t.operation.cancelRequested, <Moment key="requested" at={cancel.requested_at} />],
          [t.operation.requestedBy, cancel.requested_by],
          [t.operation.reason, cancel.reason],
          [t.operation.cancelAcknowledged, <Moment key="acknowledged" at={cancel.acknowledged_at} />],
          [t.operation.cancelSettled, <Moment key="settled" at={cancel.settled_at} />],
          [t.operation.appliedAfter, formatCount(cancel.applied_after_request, language)],
        ]}
      />
    </section>
  )
}

const OperationFacts = ({ operation }: { operation: Operation }): JSX.Element => {
  const { t } = useApp()
  const { approval, labels } = operation
  const links = (ids: readonly (string | null)[]): JSX.Element | null => {
    const known = ids.filter((id) => id !== null)
    return known.length === 0 ? null : <OperationLinks ids={known} />
  }
  const moment = (at: string | null): JSX.Element | null => (at === null ? null : <Moment at={at} />)
  const labelTexts = Object.entries(labels).map(([name, value]) => `${name}=${value}`)
  return (
    <section class="card" aria-labelledby="facts">
      <h2 id="facts">{t.operation.facts}</h2>
      <Facts
        facts={[
          [t.operation.requestedBy, operation.requested_by],
          [t.operation.reason, operation.reason],
          [t.operation.guarantee, lookUp(t.guarantee, operation.cancel.guarantee)],
          [t.operation.risk, lookUp(t.risk, operation.risk)],
          [
            t.operation.approval,
            approval === null
              ? null
              : approval.decision === null
                ? t.operation.approvalWaiting
                : [t.operation.approvalDecided(approval.decision, approval.decided_by ?? ''), approval.note]
                    .filter((part) => part !== null)
                    .join(': '),
          ],
          [t.operation.created, moment(operation.created_at)],
          [t.operation.started, moment(operation.started_at)],
          [t.operation.completed, moment(operation.completed_at)],
          [t.operation.runAfter, moment(operation.run_after)],
          [t.operation.deadline, moment(operation.deadline_at)],
          [t.operation.labels, labelTexts.length === 0 ? null : labelTexts.join(', ')],
          [t.operation.replayOf, links([operation.replay_of])],
          [t.operation.replayedBy, links(operation.replayed_by)],
          [t.operation.compensates, links([operation.compensates])],
          [t.operation.compensatedBy, links(operation.compensated_by)],
          [t.operation.after, links(operation.after)],
        ]}
      />
    </section>
  )
}
