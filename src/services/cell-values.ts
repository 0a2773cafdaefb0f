import type { Json } from '../domain/operation-type.ts'

type Cells = Readonly<Record<string, string>>
type Kind = 'number' | 'boolean'

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/

/**
 * How the cells of a table become the members of an input. A table has texts only; a cell becomes a number or a boolean where
 * the type's schema says so of that property (`type: integer`, `number` or `boolean`, alone or with `null`), and an empty one
 * is then left out. What does not read as such a value stays a text, and the type says what is wrong with it.
 */
export const cellReader = (schema: Json): ((cells: Cells) => { [member: string]: Json }) => {
  const kinds = kindsOf(schema)
  return (cells) => {
    const input: { [member: string]: Json } = {}
    for (const [column, text] of Object.entries(cells)) {
      const kind = kinds.get(column)
      if (kind === undefined) input[column] = text
      else if (text !== '') input[column] = kind === 'number' ? toNumber(text) : toBoolean(text)
    }
    return input
  }
}

const isObject = (value: Json | undefined): value is { [member: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const kindsOf = (schema: Json): Map<string, Kind> => {
  const kinds = new Map<string, Kind>()
  if (!isObject(schema) || !isObject(schema.properties)) return kinds
  for (const [name, property] of Object.entries(schema.properties)) {
    if (!isObject(property)) continue
    const types = [property.type ?? []].flat().filter((type) => type !== 'null')
    if (types.length === 0) continue
    if (types.every((type) => type === 'integer' || type === 'number')) kinds.set(name, 'number')
    else if (types.every((type) => type === 'boolean')) kinds.set(name, 'boolean')
  }
  return kinds
}

/** What a double would round stays a text, and is refused rather than changed. */
const toNumber = (text: string): Json => {
  const value = Number(text)
  return NUMBER.test(text) && Math.abs(value) <= Number.MAX_SAFE_INTEGER ? value : text
}

const toBoolean = (text: string): Json => (text === 'true' ? true : text === 'false' ? false : text)
