import type { JSX } from 'preact'
import type { Preflight } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatActual, formatCount, formatDuration, formatRelative, formatShare } from '../format.ts'
import { useNow } from '../live/use-now.ts'
import { Link } from '../navigation.tsx'
import { pathOf, urlWith } from '../router.ts'
import { lookUp } from '../status.ts'
import { Badge } from './badge.tsx'
import { DataTable } from './data-table.tsx'
import { Facts } from './facts.tsx'

const COUNTS = [
  'replay_targets',
  'confirmed_targets',
  'failed_targets',
  'unprocessed_targets',
  'ambiguous_effect_targets',
  'validation_rejected_targets',
  'dead_letter_targets',
] as const

/** The recorded answer in full: what would be sent, what blocks, who must approve. */
export const PreflightView = ({ preflight }: { preflight: Preflight }): JSX.Element => {
  const { t, language } = useApp()
  return (
    <section class="card" aria-label={t.replay.stepPreflight}>
      <h2>{t.replay.stepPreflight}</h2>
      <Verdict preflight={preflight} />
      <DataTable
        caption={t.replay.stepPreflight}
        rows={COUNTS}
        keyOf={(name) => name}
        columns={[
          { name: t.operation.items, isHeader: true, cell: (name) => t.replay.counts[name] },
          { name: t.replay.count, isNumber: true, cell: (name) => formatCount(preflight[name], language) },
        ]}
      />
      <h3>{t.replay.checks}</h3>
      <Facts
        facts={[
          [t.replay.approval, preflight.requires_approval ? t.yes : t.no],
          [t.replay.compensation, lookUp(t.replay.compensations, preflight.compensation)],
          [
            t.replay.lastCheckpoint,
            preflight.last_checkpoint_age_seconds === null
              ? t.none
              : formatDuration(preflight.last_checkpoint_age_seconds, language),
          ],
          [t.replay.errorRate, formatShare(preflight.downstream_error_rate_5m, language)],
          [t.replay.codeThen, <code key="then">{preflight.code_version_then}</code>],
          [
            t.replay.codeNow,
            preflight.code_version_changed ? <code key="now">{preflight.code_version_now}</code> : t.replay.codeSame,
          ],
        ]}
      />
      <h3>{t.replay.conditions}</h3>
      <DataTable
        caption={t.replay.conditions}
        rows={preflight.stop_if}
        keyOf={({ condition }) => condition}
        empty={t.nothingHere}
        columns={[
          { name: t.replay.condition, isHeader: true, cell: ({ condition }) => <code>{condition}</code> },
          {
            name: t.replay.actual,
            isNumber: true,
            cell: ({ condition, actual }) => formatActual(condition, actual, language),
          },
          {
            name: t.today.verdict,
            cell: ({ tripped }) => (
              <Badge tone={tripped ? 'bad' : 'good'}>{tripped ? t.replay.tripped : t.replay.clear}</Badge>
            ),
          },
        ]}
      />
    </section>
  )
}

const Verdict = ({ preflight }: { preflight: Preflight }): JSX.Element => {
  const { t, language } = useApp()
  const nowMs = useNow()
  const { allowed, blocked_by, expires_at, operation_id, ambiguous_effect_targets } = preflight
  const cases = urlWith(pathOf({ page: 'reconciliation' }), { operation_id, status: 'open' })
  return (
    <div class={`box ${allowed ? 'good' : 'bad'}`} role="status">
      <p class="box-title">{allowed ? t.replay.allowed : t.replay.blocked}</p>
      {blocked_by.length > 0 && (
        <ul>
          {blocked_by.map((code) => (
            <li key={code}>
              <code>{code}</code>: {t.replay.blockers[code] ?? t.replay.conditionTripped}
            </li>
          ))}
        </ul>
      )}
      {ambiguous_effect_targets > 0 && (
        <p>
          <Link href={cases}>{t.replay.openCases}</Link>
        </p>
      )}
      <p class="small">{t.replay.recorded(formatRelative(expires_at, nowMs, language))}</p>
    </div>
  )
}
