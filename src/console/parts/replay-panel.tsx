import type { JSX } from 'preact'
import { useId, useState } from 'preact/hooks'
import { Problem, unreachable } from '../api/problem.ts'
import type { Preflight } from '../api/types.ts'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { navigate } from '../navigation.tsx'
import { isForceable } from '../preflight.ts'
import { pathOf } from '../router.ts'
import { PreflightView } from './preflight-view.tsx'
import { ProblemBox } from './problem-box.tsx'
import { ReplayScopeForm, type Scope } from './replay-scope.tsx'

interface ReplayProps {
  operationId: string
  /** Given: this and nothing else. Null: the person chooses. */
  scope: Scope | null
}

/** Choose, look, replay: the last step is not there until the preflight of the choice is shown in full. */
export const ReplayPanel = ({ operationId, scope: given }: ReplayProps): JSX.Element => {
  const { client, t } = useApp()
  const [chosen, setChosen] = useState<Scope | null>(given)
  const [preflight, setPreflight] = useState<Preflight | null>(null)
  const [problem, setProblem] = useState<Problem | null>(null)
  const [isAsking, setIsAsking] = useState(false)
  const choose = (scope: Scope | null): void => {
    setChosen(scope)
    // what was shown is not what would be done
    setPreflight(null)
  }
  const ask = async (): Promise<void> => {
    setIsAsking(true)
    setProblem(null)
    setPreflight(null)
    try {
      const path = { id: operationId }
      setPreflight(await client.post('/operations/{id}/replay-preflight', { path, body: { scope: chosen } }))
    } catch (error) {
      setProblem(error instanceof Problem ? error : unreachable(String(error), error))
    } finally {
      setIsAsking(false)
    }
  }
  return (
    <>
      <section class="card" aria-label={t.replay.stepScope}>
        <h2>{t.replay.stepScope}</h2>
        <ReplayScopeForm given={given} chosen={chosen} onChoose={choose} />
        <p class="buttons">
          <button type="button" class="primary" disabled={isAsking} onClick={ask}>
            {isAsking ? t.form.working : preflight === null ? t.replay.run : t.replay.runAgain}
          </button>
        </p>
        {problem !== null && <ProblemBox problem={problem} />}
      </section>
      {preflight !== null && (
        <>
          <PreflightView preflight={preflight} />
          <ReplayForm key={preflight.preflight_id} preflight={preflight} />
        </>
      )}
    </>
  )
}

const ReplayForm = ({ preflight }: { preflight: Preflight }): JSX.Element => {
  const { client, t, language } = useApp()
  const [reason, setReason] = useState('')
  const [forced, setForced] = useState<readonly string[]>([])
  const [problem, setProblem] = useState<Problem | null>(null)
  const [isRunning, setIsRunning] = useState(false)
  const reasonId = useId()
  const blockers = preflight.blocked_by
  const isPossible = blockers.every((code) => isForceable(code) && forced.includes(code))
  const replay = async (event: Event): Promise<void> => {
    event.preventDefault()
    setIsRunning(true)
    setProblem(null)
    try {
      const { id } = await client.post('/operations/{id}/replay', {
        path: { id: preflight.operation_id },
        body: { preflight_id: preflight.preflight_id, reason: reason.trim(), force: [...forced] },
      })
      navigate(pathOf({ page: 'operation', id }))
    } catch (error) {
      setProblem(error instanceof Problem ? error : unreachable(String(error), error))
    } finally {
      setIsRunning(false)
    }
  }
  const toggle = (code: string): void =>
    setForced((before) => (before.includes(code) ? before.filter((one) => one !== code) : [...before, code]))
  return (
    <form class="card" aria-label={t.replay.stepReplay} onSubmit={replay}>
      <h2>{t.replay.stepReplay}</h2>
      {blockers.filter(isForceable).map((code) => (
        <label key={code} class="check">
          <input type="checkbox" checked={forced.includes(code)} onChange={() => toggle(code)} /> {t.replay.force(code)}
        </label>
      ))}
      <label for={reasonId}>{t.form.reason}</label>
      <textarea
        id={reasonId}
        rows={2}
        maxLength={2_000}
        required
        value={reason}
        onInput={(event) => setReason(event.currentTarget.value)}
      />
      {preflight.requires_approval && <p>{t.replay.approvalNote}</p>}
      {problem !== null && <ProblemBox problem={problem} />}
      <p class="buttons">
        <button type="submit" class="danger primary" disabled={isRunning || !isPossible || reason.trim() === ''}>
          {isRunning ? t.form.working : t.replay.confirm(formatCount(preflight.replay_targets, language))}
        </button>
      </p>
    </form>
  )
}
