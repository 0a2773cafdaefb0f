import type { JSX } from 'preact'
import { useApp } from '../app-context.ts'
import { formatCount } from '../format.ts'
import { lookUp } from '../status.ts'

/** What is done again. Null instead: the service's default. */
export interface Scope {
  states?: ('failed' | 'unprocessed')[]
  failure_classes?: FailureClass[]
  item_keys?: string[]
}

const STATES = ['failed', 'unprocessed'] as const
const CLASSES = ['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected'] as const
type FailureClass = (typeof CLASSES)[number] | 'ambiguous_effect'

interface ScopeFormProps {
  given: Scope | null
  chosen: Scope | null
  onChoose: (scope: Scope | null) => void
}

export const ReplayScopeForm = ({ given, chosen, onChoose }: ScopeFormProps): JSX.Element => {
  const { t, language } = useApp()
  if (given !== null) {
    const parts = [
      ...(given.item_keys === undefined ? [] : [t.replay.scopeItems(formatCount(given.item_keys.length, language))]),
      ...(given.states ?? []).map((state) => lookUp(t.itemState, state)),
      ...(given.failure_classes ?? []).map((name) => lookUp(t.failureClass, name)),
    ]
    return <p>{parts.join(', ')}</p>
  }
  const states = chosen?.states ?? []
  const classes = chosen?.failure_classes ?? []
  const toggled = <One extends string>(list: readonly One[], one: One): One[] =>
    list.includes(one) ? list.filter((other) => other !== one) : [...list, one]
  const change = (nextStates: Scope['states'], nextClasses: Scope['failure_classes']): void =>
    onChoose({
      ...(nextStates && nextStates.length > 0 ? { states: nextStates } : {}),
      ...(nextClasses && nextClasses.length > 0 ? { failure_classes: nextClasses } : {}),
    })
  return (
    <>
      <label class="check">
        <input type="radio" name="scope" checked={chosen === null} onChange={() => onChoose(null)} />{' '}
        {t.replay.scopeDefault}
      </label>
      <label class="check">
        <input type="radio" name="scope" checked={chosen !== null} onChange={() => change([...STATES], [])} />{' '}
        {t.replay.scopeChosen}
      </label>
      {chosen !== null && (
        <>
          <fieldset class="checks">
            <legend>{t.replay.states}</legend>
            {STATES.map((state) => (
              <label key={state}>
                <input
                  type="checkbox"
                  checked={states.includes(state)}
                  onChange={() => change(toggled(states, state), classes)}
                />{' '}
                {lookUp(t.itemState, state)}
              </label>
            ))}
          </fieldset>
          <fieldset class="checks">
            <legend>{t.replay.classes}</legend>
            {CLASSES.map((name) => (
              <label key={name}>
                <input
                  type="checkbox"
                  checked={classes.includes(name)}
                  onChange={() => change(states, toggled(classes, name))}
                />{' '}
                {lookUp(t.failureClass, name)}
              </label>
            ))}
          </fieldset>
        </>
      )}
    </>
  )
}
