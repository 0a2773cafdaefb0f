import type { ComponentChildren, JSX } from 'preact'
import { useId } from 'preact/hooks'
import { useApp } from '../app-context.ts'

/** Fields of forms that are read by name when the form is sent; a value from outside starts them anew. */
interface FieldProps {
  name: string
  label: string
  value?: string | undefined
}

export const TextField = ({ name, label, value = '', type = 'text' }: FieldProps & { type?: string }): JSX.Element => {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input key={value} id={id} name={name} type={type} defaultValue={value} autoComplete="off" spellcheck={false} />
    </div>
  )
}

interface Choice {
  value: string
  text: string
}

export const SelectField = ({
  name,
  label,
  value = '',
  choices,
  isOptional = true,
}: FieldProps & { choices: readonly Choice[]; isOptional?: boolean }): JSX.Element => {
  const { t } = useApp()
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select key={value} id={id} name={name}>
        {isOptional && <option value="">{t.form.all}</option>}
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value} selected={choice.value === value}>
            {choice.text}
          </option>
        ))}
      </select>
    </div>
  )
}

export const CheckFields = ({
  name,
  label,
  chosen,
  choices,
}: {
  name: string
  label: string
  chosen: readonly string[]
  choices: readonly Choice[]
}): JSX.Element => (
  <fieldset class="checks" key={chosen.join(',')}>
    <legend>{label}</legend>
    {choices.map(({ value, text }) => (
      <label key={value}>
        <input type="checkbox" name={name} value={value} defaultChecked={chosen.includes(value)} /> {text}
      </label>
    ))}
  </fieldset>
)

interface FilterFormProps {
  children: ComponentChildren
  label: string
  onFilter: (values: FormData) => void
  onClear: () => void
}

export const FilterForm = ({ children, label, onFilter, onClear }: FilterFormProps): JSX.Element => {
  const { t } = useApp()
  return (
    <form
      class="filters"
      aria-label={label}
      onSubmit={(event) => {
        event.preventDefault()
        onFilter(new FormData(event.currentTarget))
      }}
    >
      {children}
      <p class="buttons">
        <button type="submit">{t.form.apply}</button>
        <button type="button" onClick={onClear}>
          {t.form.clear}
        </button>
      </p>
    </form>
  )
}

/** Of checkboxes with one name: a list as the API takes it. */
export const joined = (values: FormData, name: string): string => values.getAll(name).map(String).join(',')

export const textOf = (values: FormData, name: string): string => String(values.get(name) ?? '').trim()
