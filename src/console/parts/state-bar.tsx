import type { JSX } from 'preact'
import type { Operation } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount, formatShare } from '../format.ts'
import { lookUp } from '../status.ts'

const STATES = ['applied', 'skipped', 'failed', 'uncertain', 'unprocessed'] as const

/** Items by state, as parts of one bar; the same in words beside it, as colours alone tell nothing. */
export const StateBar = ({ counts }: { counts: Operation['counts'] }): JSX.Element => {
  const { language, t } = useApp()
  return (
    <div>
      <div class="state-bar" aria-hidden="true">
        {STATES.filter((state) => counts[state] > 0).map((state) => (
          <span key={state} class={`state-part state-${state}`} style={{ flexGrow: counts[state] }} />
        ))}
      </div>
      <ul class="legend">
        {STATES.map((state) => (
          <li key={state}>
            <span class={`swatch state-${state}`} aria-hidden="true" /> {lookUp(t.itemState, state)}{' '}
            <strong>{formatCount(counts[state], language)}</strong>
            {counts.total > 0 && counts[state] > 0 && (
              <span class="muted"> {formatShare(counts[state] / counts.total, language)}</span>
            )}
          </li>
        ))}
      </ul>
      {counts.in_flight > 0 && <p class="small">{t.operation.inFlight(formatCount(counts.in_flight, language))}</p>}
    </div>
  )
}
