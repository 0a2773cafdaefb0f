import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import type { Events } from '../live/use-events.ts'
import { StatusBadge } from './badge.tsx'
import { Moment } from './time.tsx'

/** What happened to an operation, the newest first. */
export const Timeline = ({ events }: { events: Events }): JSX.Element => {
  const { t } = useApp()
  return (
    <section class="card" aria-labelledby="timeline">
      <h2 id="timeline">{t.operation.timeline}</h2>
      {events.mode !== 'ended' && (
        <p class="small muted">{events.mode === 'stream' ? t.operation.timelineLive : t.operation.timelinePolling}</p>
      )}
      <ol class="timeline" reversed>
        {[...events.items].reverse().map(({ version, kind, status, at, actor, reason }) => (
          <li key={version}>
            <p>
              <strong>{kind.replaceAll('_', ' ')}</strong> <StatusBadge status={status} />
            </p>
            <p class="small">
              <Moment at={at} /> {t.operation.by(actor)}
            </p>
            {reason !== null && <p class="quote">{reason}</p>}
          </li>
        ))}
      </ol>
    </section>
  )
}
