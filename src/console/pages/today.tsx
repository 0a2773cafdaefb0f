import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { HealthFigure, HealthReport } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatFigure } from '../format.ts'
import { keep, readKept } from '../kept.ts'
import { addSample, parseTrends, type Trends } from '../live/trend.ts'
import { useRead } from '../live/use-read.ts'
import { Link } from '../navigation.tsx'
import { Badge } from '../parts/badge.tsx'
import { DataTable } from '../parts/data-table.tsx'
import { Loaded } from '../parts/loaded.tsx'
import { Sparkline } from '../parts/sparkline.tsx'
import { Age } from '../parts/time.tsx'
import { pathOf, urlWith } from '../router.ts'
import { lookUp, type Tone } from '../status.ts'

const EVERY_MS = 10_000
const TRENDS = 'opledger.trends'
const local = (): Storage => localStorage

const TONES: Readonly<Record<string, Tone>> = { ok: 'good', alarm: 'bad', no_data: 'neutral' }

const trendName = (type: string, figure: string): string => `${type}/${figure}`

/** The page that answers "is anything wrong, and what do I do first?". */
export const TodayPage = (): JSX.Element => {
  const { client, t } = useApp()
  const report = useRead('health', (signal) => client.get('/health-report', { signal }), EVERY_MS)
  const trends = useTrends(report.data)
  return (
    <>
      <h1>{t.today.title}</h1>
      <Loaded read={report}>
        {(data) => (
          <>
            <p class="muted">
              <Age at={data.generated_at} />
            </p>
            <Alarms report={data} />
            {data.types.length === 0 && <p>{t.today.noTypes}</p>}
            {data.types.map(({ type, verdict, figures, cancel_contract }) => (
              <details key={type} class="card" open={verdict === 'alarm' || data.types.length <= 3}>
                <summary>
                  <h2>{type}</h2> <VerdictBadge verdict={verdict} />
                </summary>
                <Figures caption={t.today.health} type={type} figures={figures} trends={trends} />
                <Figures caption={t.today.cancelContract} type={type} figures={cancel_contract} trends={trends} />
              </details>
            ))}
            <p class="small muted">{t.today.trendHint}</p>
          </>
        )}
      </Loaded>
    </>
  )
}

const useTrends = (report: HealthReport | null): Trends => {
  const [trends, setTrends] = useState<Trends>(() => parseTrends(readKept(local, TRENDS)))
  useEffect(() => {
    if (report === null) return
    const at = Date.parse(report.generated_at)
    setTrends((before) => {
      const entries = report.types.flatMap(({ type, figures, cancel_contract }) =>
        [...figures, ...cancel_contract].flatMap(({ figure, value }) => {
          const name = trendName(type, figure)
          return value === null ? [] : [[name, addSample(before[name] ?? [], at, value)] as const]
        }),
      )
      const after = Object.fromEntries(entries)
      keep(local, TRENDS, JSON.stringify(after))
      return after
    })
  }, [report])
  return trends
}

const VerdictBadge = ({ verdict }: { verdict: string }): JSX.Element => {
  const { t } = useApp()
  return <Badge tone={TONES[verdict] ?? 'neutral'}>{lookUp(t.verdict, verdict)}</Badge>
}

/** Where a figure is looked into. */
const placeOf = (type: string, figure: string): string => {
  switch (figure) {
    case 'dead_letters':
      return urlWith(pathOf({ page: 'incidents' }), { type, status: 'open' })
    case 'uncertain_ratio':
    case 'cases_open_over_24h':
      return urlWith(pathOf({ page: 'reconciliation' }), { type })
    case 'oldest_waiting_seconds':
      return pathOf({ page: 'workers' })
    case 'p95_ms':
    case 'retry_rate':
      return pathOf({ page: 'types' })
    default:
      return urlWith(pathOf({ page: 'operations' }), { type })
  }
}

/** In the API's words; a number of seconds says so. */
const thresholdOf = ({ figure, threshold }: HealthFigure): string =>
  figure.endsWith('_seconds') ? `${threshold} s` : threshold

const useFirstAction = (): ((figure: HealthFigure) => string) => {
  const { t } = useApp()
  return ({ figure, first_action }) => t.today.actions[figure] ?? first_action
}

const Alarms = ({ report }: { report: HealthReport }): JSX.Element => {
  const { t, language } = useApp()
  const firstAction = useFirstAction()
  const alarms = report.types.flatMap(({ type, figures, cancel_contract }) =>
    [...figures, ...cancel_contract].filter(({ verdict }) => verdict === 'alarm').map((figure) => ({ type, figure })),
  )
  if (alarms.length === 0) return <p class="box good">{t.today.allWell}</p>
  return (
    <section class="box bad" aria-labelledby="alarms">
      <h2 id="alarms">{t.today.alarms(alarms.length)}</h2>
      <p>{t.today.todo}</p>
      <ol>
        {alarms.map(({ type, figure }) => (
          <li key={trendName(type, figure.figure)}>
            <strong>
              {type}: {lookUp(t.today.figures, figure.figure)}{' '}
              {figure.value !== null && formatFigure(figure.figure, figure.value, language)}
            </strong>{' '}
            <span class="muted">({thresholdOf(figure)})</span>. {firstAction(figure)}{' '}
            <Link href={placeOf(type, figure.figure)}>{t.today.look}</Link>
          </li>
        ))}
      </ol>
    </section>
  )
}

interface FiguresProps {
  caption: string
  type: string
  figures: readonly HealthFigure[]
  trends: Trends
}

const Figures = ({ caption, type, figures, trends }: FiguresProps): JSX.Element => {
  const { t, language } = useApp()
  const firstAction = useFirstAction()
  const trendOf = ({ figure }: HealthFigure): JSX.Element | null => {
    const samples = trends[trendName(type, figure)] ?? []
    const [from, to] = [samples[0], samples.at(-1)].map((sample) => formatFigure(figure, sample?.[1] ?? 0, language))
    const label = t.today.trendOf(lookUp(t.today.figures, figure), from ?? '', to ?? '')
    return <Sparkline samples={samples} label={label} />
  }
  return (
    <DataTable
      caption={`${caption}, ${type}`}
      rows={figures}
      keyOf={({ figure }) => figure}
      columns={[
        { name: t.today.figure, isHeader: true, cell: ({ figure }) => lookUp(t.today.figures, figure) },
        {
          name: t.today.value,
          isNumber: true,
          cell: ({ figure, value }) => (value === null ? t.none : formatFigure(figure, value, language)),
        },
        { name: t.today.trend, cell: trendOf },
        { name: t.today.threshold, cell: thresholdOf },
        { name: t.today.verdict, cell: ({ verdict }) => <VerdictBadge verdict={verdict} /> },
        { name: t.today.action, cell: (figure) => firstAction(figure) },
      ]}
    />
  )
}
