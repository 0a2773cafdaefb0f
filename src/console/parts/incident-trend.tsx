import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { histogram } from '../live/histogram.ts'
import { useRead } from '../live/use-read.ts'
import { Chart } from './chart.tsx'

const PAGE_LIMIT = 500

/** When the dead letters came; of an incident with more than a page, the first of them. */
export const IncidentTrend = ({ incidentId }: { incidentId: string }): JSX.Element | null => {
  const { client, t, language } = useApp()
  const letters = useRead(
    `trend/${incidentId}`,
    (signal) => client.get('/dead-letters', { query: { incident_id: incidentId, limit: PAGE_LIMIT }, signal }),
    null,
  )
  const bars = useMemo(
    () => histogram((letters.data?.items ?? []).map(({ created_at }) => Date.parse(created_at) / 1000)),
    [letters.data],
  )
  if (letters.data === null || bars.times.length < 2) return null
  return (
    <section class="card" aria-labelledby="trend">
      <h2 id="trend">{t.incidents.trend}</h2>
      <Chart label={t.incidents.trend} times={bars.times} values={bars.counts} kind="bars" />
      {letters.data.next_cursor !== undefined && (
        <p class="small muted">{t.incidents.trendPart(formatCount(letters.data.items.length, language))}</p>
      )}
    </section>
  )
}
