import type { JSX } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Problem } from '../api/problem.ts'
import type { Case } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { type Evidence, resolveCases } from '../resolve-cases.ts'
import { ProblemBox } from './problem-box.tsx'

interface Outcome {
  total: number
  done: number
  refused: { of: Case; problem: Problem }[]
}

/** One evidence for all that were chosen. Each case is closed by itself: what is refused does not hold up the others. */
export const ResolveCasesForm = ({ cases, onDone }: { cases: readonly Case[]; onDone: () => void }): JSX.Element => {
  const { client, t } = useApp()
  const [isOpen, setIsOpen] = useState(false)
  const [outcome, setOutcome] = useState<Outcome | null>(null)
  const isRunning = outcome !== null && outcome.done < outcome.total
  const resolve = async (evidence: Evidence): Promise<void> => {
    const refused: Outcome['refused'] = []
    const { length: total } = cases
    setOutcome({ total, done: 0, refused })
    let done = 0
    await resolveCases(client, cases, evidence, (of, problem) => {
      done += 1
      if (problem !== null) refused.push({ of, problem })
      setOutcome({ total, done, refused: [...refused] })
    })
    setIsOpen(false)
    onDone()
  }
  return (
    <section class="bulk" aria-label={t.reconciliation.resolveTitle(cases.length)}>
      <p>
        <span role="status">{t.reconciliation.chosen(cases.length)}</span>{' '}
        <button
          type="button"
          class="primary"
          aria-expanded={isOpen}
          disabled={cases.length === 0 || isRunning}
          onClick={() => setIsOpen(!isOpen)}
        >
          {t.reconciliation.resolveButton}
        </button>
      </p>
      {isOpen && cases.length > 0 && (
        <EvidenceForm count={cases.length} isRunning={isRunning} onResolve={resolve} onBack={() => setIsOpen(false)} />
      )}
      <div role="status">
        {outcome !== null && (
          <p>
            {isRunning
              ? t.reconciliation.progress(outcome.done, outcome.total)
              : t.reconciliation.result(outcome.done - outcome.refused.length, outcome.refused.length)}
          </p>
        )}
      </div>
      {outcome?.refused.map(({ of, problem }) => (
        <div key={of.id}>
          <p>
            <strong>{of.item_key}</strong>
          </p>
          <ProblemBox problem={problem} />
        </div>
      ))}
    </section>
  )
}

interface EvidenceFormProps {
  count: number
  isRunning: boolean
  onResolve: (evidence: Evidence) => void
  onBack: () => void
}

const EvidenceForm = ({ count, isRunning, onResolve, onBack }: EvidenceFormProps): JSX.Element => {
  const { t } = useApp()
  const id = useId()
  const form = useRef<HTMLFormElement>(null)
  const [resolution, setResolution] = useState<Evidence['resolution'] | null>(null)
  useLayoutEffect(() => form.current?.querySelector('input')?.focus(), [])
  const submit = (event: SubmitEvent): void => {
    event.preventDefault()
    if (resolution === null) return
    const values = new FormData(event.currentTarget as HTMLFormElement)
    const text = (name: string): string | null => String(values.get(name) ?? '').trim() || null
    const evidenceRef = text('evidence_ref')
    if (evidenceRef === null) return
    onResolve({
      resolution,
      evidenceRef,
      effectRef: text('effect_ref'),
      note: text('note'),
      retry: values.get('retry') !== null,
    })
  }
  return (
    <form
      ref={form}
      class="box action-form"
      aria-labelledby={`${id}-title`}
      onSubmit={submit}
      onKeyDown={(event) => event.key === 'Escape' && onBack()}
    >
      <p id={`${id}-title`} class="box-title">
        {t.reconciliation.resolveTitle(count)}
      </p>
      <fieldset class="checks">
        <legend>{t.reconciliation.question}</legend>
        <label>
          <input type="radio" name="resolution" required onChange={() => setResolution('applied')} />{' '}
          {t.reconciliation.applied}
        </label>
        <label>
          <input type="radio" name="resolution" required onChange={() => setResolution('not_applied')} />{' '}
          {t.reconciliation.notApplied}
        </label>
      </fieldset>
      {resolution === 'not_applied' && (
        <label class="check">
          <input type="checkbox" name="retry" /> {t.reconciliation.retry}{' '}
          <span class="muted">{t.reconciliation.retryHint}</span>
        </label>
      )}
      <label for={`${id}-evidence`}>{t.reconciliation.evidence}</label>
      <input id={`${id}-evidence`} name="evidence_ref" required maxLength={1_000} autoComplete="off" />
      {resolution === 'applied' && count === 1 && (
        <>
          <label for={`${id}-effect`}>{t.reconciliation.effectRef}</label>
          <input id={`${id}-effect`} name="effect_ref" maxLength={1_000} autoComplete="off" />
        </>
      )}
      <label for={`${id}-note`}>{t.reconciliation.note}</label>
      <textarea id={`${id}-note`} name="note" rows={2} maxLength={2_000} />
      <p class="buttons">
        <button type="submit" class="primary" disabled={isRunning}>
          {isRunning ? t.form.working : t.reconciliation.confirm(count)}
        </button>
        <button type="button" onClick={onBack}>
          {t.form.back}
        </button>
      </p>
    </form>
  )
}
