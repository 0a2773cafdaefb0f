import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { textOf } from '../parts/fields.tsx'

/** The key that the person enters, or a name where none is needed. It is kept in this tab only. */
export const CallerForm = (): JSX.Element => {
  const { t, caller, setCaller, isKeyNeeded } = useApp()
  const use = (event: SubmitEvent): void => {
    event.preventDefault()
    const values = new FormData(event.currentTarget as HTMLFormElement)
    const key = textOf(values, 'key')
    const name = textOf(values, 'name')
    setCaller({ key: key === '' ? null : key, name: name === '' ? null : name })
  }
  return (
    <form class="box" aria-labelledby="caller-title" onSubmit={use}>
      <h2 id="caller-title">{t.caller.title}</h2>
      {isKeyNeeded && <p role="alert">{caller.key === null ? t.caller.needed : t.caller.refused}</p>}
      <p>{t.caller.explanation}</p>
      <label for="caller-key">{t.caller.key}</label>
      <input id="caller-key" name="key" type="password" autoComplete="off" defaultValue={caller.key ?? ''} />
      <p class="small">{t.caller.keyHint}</p>
      <label for="caller-name">{t.caller.name}</label>
      <input id="caller-name" name="name" autoComplete="off" defaultValue={caller.name ?? ''} />
      <p class="buttons">
        <button type="submit" class="primary">
          {t.caller.save}
        </button>
        <button type="button" onClick={() => setCaller({ key: null, name: null })}>
          {t.caller.forget}
        </button>
      </p>
    </form>
  )
}
