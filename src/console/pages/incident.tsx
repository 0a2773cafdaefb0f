import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Incident, ResolvedIncident } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { Action } from '../parts/action-form.tsx'
import { Badge } from '../parts/badge.tsx'
import { DeadLetters } from '../parts/dead-letters.tsx'
import { Facts } from '../parts/facts.tsx'
import { IncidentTrend } from '../parts/incident-trend.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { OperationLink } from '../parts/operation-links.tsx'
import { ReplayPanel } from '../parts/replay-panel.tsx'
import type { Scope } from '../parts/replay-scope.tsx'
import { Moment } from '../parts/time.tsx'
import { pathOf, type Query } from '../router.ts'
import { lookUp } from '../status.ts'

const EVERY_MS = 5_000

export const IncidentPage = ({ id, query }: { id: string; query: Query }): JSX.Element => {
  const { client, t } = useApp()
  const incident = useRead(
    `incident/${id}`,
    (signal) => client.get('/incidents/{id}', { path: { id }, signal }),
    EVERY_MS,
  )
  const [resolved, setResolved] = useState<ResolvedIncident | null>(null)
  return (
    <>
      <h1>{t.incidents.title}</h1>
      <Loaded read={incident}>
        {(data) => (
          <>
            <IncidentFacts incident={data} />
            <ResolveIncident
              id={id}
              onResolved={(answer) => {
                setResolved(answer)
                incident.refresh()
              }}
            />
          </>
        )}
      </Loaded>
      {resolved !== null && <ReplaySet resolved={resolved} />}
      <IncidentTrend incidentId={id} />
      <DeadLetters incidentId={id} query={query} onChanged={incident.refresh} />
    </>
  )
}

const IncidentFacts = ({ incident }: { incident: Incident }): JSX.Element => {
  const { t, language } = useApp()
  const { sample, resolution } = incident
  const count = (value: number): string => formatCount(value, language)
  return (
    <section class="card" aria-label={t.incidents.sample}>
      <p class="standing">
        <Badge tone={incident.status === 'open' ? 'bad' : 'good'}>{lookUp(t.incidentStatus, incident.status)}</Badge>{' '}
        <strong>
          {t.incidents.openOf(count(incident.open_count), count(incident.count), count(incident.operation_count))}
        </strong>
      </p>
      <Facts
        facts={[
          [t.operations.type, incident.type],
          [t.operation.failureClass, lookUp(t.failureClass, sample.failure_class)],
          [t.operation.reasonCode, sample.reason_code],
          [t.incidents.message, sample.message],
          [t.incidents.firstSeen, <Moment key="first" at={incident.first_seen_at} />],
          [t.incidents.lastSeen, <Moment key="last" at={incident.last_seen_at} />],
          [
            t.incidents.sample,
            <span key="sample">
              <Link href={pathOf({ page: 'item', id: sample.operation_id, key: sample.item_key })}>
                {sample.item_key}
              </Link>{' '}
              <OperationLink id={sample.operation_id} />
            </span>,
          ],
        ]}
      />
      {resolution !== null && (
        <p class="quote">
          {t.incidents.resolvedBy(resolution.resolved_by)} <Moment at={resolution.resolved_at} />: {resolution.reason}
          {resolution.fixed_in !== null && ` (${resolution.fixed_in})`}
        </p>
      )}
    </section>
  )
}

const ResolveIncident = ({
  id,
  onResolved,
}: {
  id: string
  onResolved: (answer: ResolvedIncident) => void
}): JSX.Element => {
  const { client, t } = useApp()
  const [fixedIn, setFixedIn] = useState('')
  return (
    <Action
      button={t.incidents.resolve}
      title={t.incidents.resolveTitle}
      what={t.incidents.resolveWhat}
      confirm={t.incidents.resolveTitle}
      reason="required"
      run={async (reason) =>
        onResolved(
          await client.post('/incidents/{id}/resolve', {
            path: { id },
            body: { reason: reason ?? '', fixed_in: fixedIn.trim() === '' ? null : fixedIn.trim() },
          }),
        )
      }
    >
      <label for="fixed-in">{t.incidents.fixedIn}</label>
      <input
        id="fixed-in"
        maxLength={1_000}
        autoComplete="off"
        value={fixedIn}
        onInput={(event) => setFixedIn(event.currentTarget.value)}
      />
    </Action>
  )
}

/** Each proposed replay with its own preflight: nothing is replayed unseen. */
const ReplaySet = ({ resolved }: { resolved: ResolvedIncident }): JSX.Element => {
  const { t, language } = useApp()
  return (
    <section aria-labelledby="replay-set">
      <h2 id="replay-set">{t.incidents.replaySet}</h2>
      {resolved.preflights.length === 0 && <p>{t.incidents.nothingToReplay}</p>}
      {resolved.preflights.map(({ operation_id, scope, targets }) => (
        <details key={operation_id} class="card">
          <summary>
            <code>{operation_id}</code> {t.incidents.replayTargets(formatCount(targets, language))}
          </summary>
          <ReplayPanel operationId={operation_id} scope={scope as Scope} />
        </details>
      ))}
      {resolved.has_more_preflights && <p>{t.incidents.moreSets}</p>}
    </section>
  )
}
