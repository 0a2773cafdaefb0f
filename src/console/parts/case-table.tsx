import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Problem, unreachable } from '../api/problem.ts'
import type { Case } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatDuration, formatRelative, secondsSince } from '../format.ts'
import { useNow } from '../live/use-now.ts'
import { Link } from '../navigation.tsx'
import { pathOf } from '../router.ts'
import { lookUp } from '../status.ts'
import { type Column, DataTable } from './data-table.tsx'
import { OperationLink } from './operation-links.tsx'
import { ProblemBox } from './problem-box.tsx'
import { Moment } from './time.tsx'

/** After a day a case is escalated: the age is shown against it. */
const DAY_SECONDS = 86_400

interface CaseTableProps {
  cases: readonly Case[]
  chosen: ReadonlySet<string>
  onToggle: (one: Case) => void
  onChanged: () => void
}

export const CaseTable = ({ cases, chosen, onToggle, onChanged }: CaseTableProps): JSX.Element => {
  const { t } = useApp()
  const columns: Column<Case>[] = [
    {
      name: t.reconciliation.select,
      cell: (one) =>
        one.status === 'open' && (
          <input
            type="checkbox"
            aria-label={`${t.reconciliation.select}: ${one.item_key}`}
            checked={chosen.has(one.id)}
            onChange={() => onToggle(one)}
          />
        ),
    },
    {
      name: t.reconciliation.item,
      isHeader: true,
      cell: ({ operation_id, item_key, type, effect_key, step }) => (
        <>
          <Link href={pathOf({ page: 'item', id: operation_id, key: item_key })}>{item_key}</Link>
          {step !== null && ` (${step})`}
          <p class="small">
            {type} · <OperationLink id={operation_id} />
          </p>
          <p class="small">
            <code>{effect_key}</code>
          </p>
        </>
      ),
    },
    { name: t.reconciliation.age, cell: (one) => <CaseAge of={one} /> },
    { name: t.reconciliation.why, cell: ({ cause }) => lookUp(t.cause, cause) },
    { name: t.reconciliation.lookups, cell: (one) => <Lookups of={one} onChanged={onChanged} /> },
    { name: t.reconciliation.owner, cell: ({ owner }) => owner ?? t.none },
  ]
  return (
    <DataTable
      caption={t.reconciliation.list}
      rows={cases}
      keyOf={({ id }) => id}
      columns={columns}
      empty={t.reconciliation.empty}
    />
  )
}

const CaseAge = ({ of }: { of: Case }): JSX.Element => {
  const { t, language } = useApp()
  const nowMs = useNow()
  const { resolution } = of
  if (resolution !== null) {
    return (
      <>
        {t.reconciliation.resolvedAs(lookUp(t.reconciliation.resolution, resolution.resolution))}
        <p class="small">
          {lookUp(t.source, resolution.source)} {resolution.resolved_by} <Moment at={resolution.resolved_at} />
        </p>
        {resolution.evidence_ref !== null && <p class="quote">{resolution.evidence_ref}</p>}
      </>
    )
  }
  const seconds = secondsSince(of.opened_at, nowMs)
  const age = formatDuration(seconds, language)
  const isOver = seconds > DAY_SECONDS
  return (
    <>
      <span class={isOver ? 'signal' : undefined}>
        {isOver ? t.reconciliation.overDay(age) : t.reconciliation.ofDay(age)}
      </span>
      <span class="progress-track" aria-hidden="true">
        <span
          class={isOver ? 'progress-fill over' : 'progress-fill'}
          style={{ width: `${Math.min(1, seconds / DAY_SECONDS) * 100}%` }}
        />
      </span>
    </>
  )
}

const Lookups = ({ of, onChanged }: { of: Case; onChanged: () => void }): JSX.Element => {
  const { client, t, language } = useApp()
  const nowMs = useNow()
  const [problem, setProblem] = useState<Problem | null>(null)
  const [state, setState] = useState<'idle' | 'asking' | 'asked'>('idle')
  const { count, last_answer: lastAnswer, next_at: nextAt } = of.lookups
  const ask = async (): Promise<void> => {
    setState('asking')
    setProblem(null)
    try {
      await client.post('/reconciliation/{case_id}/lookup', { path: { case_id: of.id } })
      setState('asked')
      onChanged()
    } catch (error) {
      setState('idle')
      setProblem(error instanceof Problem ? error : unreachable(String(error), error))
    }
  }
  return (
    <>
      {t.reconciliation.lookupCount(count)}
      {nextAt !== null && of.status === 'open' && (
        <span class="small muted"> {t.reconciliation.lookupNext(formatRelative(nextAt, nowMs, language))}</span>
      )}
      {lastAnswer !== null && <p class="quote">{lastAnswer}</p>}
      {of.status === 'open' && (
        <p>
          <button type="button" disabled={state === 'asking'} onClick={ask}>
            {state === 'asking' ? t.form.working : t.reconciliation.ask}
          </button>
        </p>
      )}
      <span role="status" class="small">
        {state === 'asked' && t.reconciliation.asked}
      </span>
      {problem !== null && <ProblemBox problem={problem} />}
    </>
  )
}
