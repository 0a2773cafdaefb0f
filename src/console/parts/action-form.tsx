import type { ComponentChildren, JSX } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Problem, unreachable } from '../api/problem.ts'
import { useApp } from '../app-context.ts'
import { ProblemBox } from './problem-box.tsx'

/** Bytes, by the API; characters are never more. */
const REASON_UNITS_MAX = 2_000

interface ActionProps {
  button: string
  title: string
  what: ComponentChildren
  confirm: string
  reason: 'required' | 'optional' | 'note'
  isDangerous?: boolean
  /** Further fields of the form. */
  children?: ComponentChildren
  /** Whether the further fields are filled in; default true. */
  isReady?: boolean
  run: (reason: string | null) => Promise<unknown>
  onDone?: () => void
}

/**
 * A button that opens what it would do, in place: nothing happens by one press. Refused, it stays open with the API's
 * words, and what was typed.
 */
export const Action = (props: ActionProps): JSX.Element => {
  const [isOpen, setIsOpen] = useState(false)
  const opener = useRef<HTMLButtonElement>(null)
  const close = (): void => {
    setIsOpen(false)
    opener.current?.focus()
  }
  return (
    <div class={isOpen ? 'action open' : 'action'}>
      <button
        ref={opener}
        type="button"
        class={props.isDangerous ? 'danger' : undefined}
        aria-expanded={isOpen}
        onClick={() => setIsOpen(!isOpen)}
      >
        {props.button}
      </button>
      {isOpen && <ActionForm {...props} close={close} />}
    </div>
  )
}

const ActionForm = (props: ActionProps & { close: () => void }): JSX.Element => {
  const { t } = useApp()
  const { title, what, confirm, reason: wanted, isDangerous, children, isReady = true, run, onDone, close } = props
  const [reason, setReason] = useState('')
  const [problem, setProblem] = useState<Problem | null>(null)
  const [isRunning, setIsRunning] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const id = useId()
  // before it is painted: who sees the form types into it
  useLayoutEffect(() => form.current?.querySelector<HTMLElement>('input, textarea, select')?.focus(), [])

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    setIsRunning(true)
    setProblem(null)
    try {
      await run(reason.trim() === '' ? null : reason.trim())
      close()
      onDone?.()
    } catch (error) {
      setProblem(error instanceof Problem ? error : unreachable(String(error), error))
    } finally {
      setIsRunning(false)
    }
  }
  const label = { required: t.form.reason, optional: t.form.reasonOptional, note: t.form.note }[wanted]
  return (
    <form
      ref={form}
      class="box action-form"
      aria-labelledby={`${id}-title`}
      onSubmit={submit}
      onKeyDown={(event) => event.key === 'Escape' && close()}
    >
      <p id={`${id}-title`} class="box-title">
        {title}
      </p>
      <div>{what}</div>
      {children}
      <label for={`${id}-reason`}>{label}</label>
      <textarea
        id={`${id}-reason`}
        rows={2}
        maxLength={REASON_UNITS_MAX}
        required={wanted === 'required'}
        aria-describedby={wanted === 'note' ? `${id}-hint` : undefined}
        value={reason}
        onInput={(event) => setReason(event.currentTarget.value)}
      />
      {wanted === 'note' && (
        <p class="small" id={`${id}-hint`}>
          {t.form.noteHint}
        </p>
      )}
      {problem !== null && <ProblemBox problem={problem} />}
      <p class="buttons">
        <button type="submit" class={isDangerous ? 'danger primary' : 'primary'} disabled={isRunning || !isReady}>
          {isRunning ? t.form.working : confirm}
        </button>
        <button type="button" onClick={close}>
          {t.form.back}
        </button>
      </p>
    </form>
  )
}
