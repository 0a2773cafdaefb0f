/**
 * Placeholders in the strings of a type file: `{env.X} {secret.X} {input.a.b} {item.key} {effect_key} {operation.id}
 * {type}`, and in a compensation also `{compensation_key}`. They are replaced by values and never evaluated, and a value is never read again as a template. A literal
 * brace is written twice: `{{`, `}}`.
 *
 * `env`, `secret` and `type` are known at the start and become text there; the others are filled in per call.
 */
import type { Json } from '../domain/operation-type.ts'

export type Part =
  | { kind: 'text'; text: string; origin: 'literal' | 'env' | 'secret' | 'type' }
  | { kind: 'input'; path: readonly string[]; pointer: string }
  | { kind: 'item.key' | 'effect_key' | 'compensation_key' | 'operation.id' }

/** The parts of one string, in order. A string that is one placeholder has one part. */
export type Template = readonly Part[]

export interface TemplateScope {
  type: string
  env: Record<string, string | undefined>
  secrets(name: string): string | undefined
  /** The request takes an effect back: it has `{compensation_key}` too. */
  compensates?: boolean
}

/** What a template is filled with. `effectKey` is null while the effect key itself is made. */
export interface TemplateValues {
  input: Json
  itemKey: string
  effectKey: string | null
  /** The key of the undoing; `effectKey` is then that of the effect which it undoes. */
  compensationKey?: string
  operationId: string
}

/** Why a template is refused at the start. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
}

const PLACEHOLDERS = 'env.X, secret.X, input.*, item.key, effect_key, operation.id, type'
const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/
const TOKEN = /\{\{|\}\}|\{([^{}]*)\}|[{}]/g
const PARTS_MAX = 64

export const compileTemplate = (text: string, scope: TemplateScope): Template => {
  const parts: Part[] = []
  let literal = ''
  let end = 0
  const flush = (): void => {
    if (literal !== '') parts.push({ kind: 'text', text: literal, origin: 'literal' })
    literal = ''
  }
  for (const match of text.matchAll(TOKEN)) {
    literal += text.slice(end, match.index)
    end = match.index + match[0].length
    const name = match[1]
    if (name !== undefined) {
      flush()
      parts.push(compilePlaceholder(name, scope))
    } else if (match[0].length === 2) {
      literal += match[0].charAt(0)
    } else {
      throw new TemplateError(`a lone "${match[0]}"; write it twice where a brace is meant`)
    }
  }
  literal += text.slice(end)
  flush()
  if (parts.length > PARTS_MAX) throw new TemplateError(`more than ${PARTS_MAX} placeholders and texts`)
  return parts
}

const compilePlaceholder = (name: string, scope: TemplateScope): Part => {
  if (name === 'item.key' || name === 'effect_key' || name === 'operation.id') return { kind: name }
  if (name === 'compensation_key' && scope.compensates === true) return { kind: name }
  if (name === 'type') return { kind: 'text', text: scope.type, origin: 'type' }
  const [root, ...path] = name.split('.')
  if (root === 'input' && path.length > 0 && path.every((member) => member !== '' && member !== '__proto__')) {
    return { kind: 'input', path, pointer: path.map((member) => `/${escapePointer(member)}`).join('') }
  }
  const variable = path[0]
  if ((root === 'env' || root === 'secret') && path.length === 1 && variable && VARIABLE_NAME.test(variable)) {
    const value = root === 'env' ? ownValue(scope.env, variable) : scope.secrets(variable)
    if (value === undefined || value === '') {
      const key = root === 'env' ? variable : `OPLEDGER_SECRET_${variable}`
      throw new TemplateError(`{${name}}: the environment variable ${key} is not set`)
    }
    return { kind: 'text', text: value, origin: root }
  }
  const known = scope.compensates === true ? `${PLACEHOLDERS}, compensation_key` : PLACEHOLDERS
  throw new TemplateError(`unknown placeholder {${name}}; known are ${known}`)
}

const escapePointer = (member: string): string => member.replaceAll('~', '~0').replaceAll('/', '~1')

const ownValue = (record: Record<string, string | undefined>, name: string): string | undefined =>
  Object.hasOwn(record, name) ? record[name] : undefined

/** The value of a part, or undefined when the input has no such member. Only own members are seen. */
export const partValue = (part: Part, values: TemplateValues): Json | undefined => {
  switch (part.kind) {
    case 'text':
      return part.text
    case 'item.key':
      return values.itemKey
    case 'effect_key':
      return values.effectKey ?? undefined
    case 'compensation_key':
      return values.compensationKey
    case 'operation.id':
      return values.operationId
    case 'input':
      return readPath(values.input, part.path)
  }
}

const readPath = (input: Json, path: readonly string[]): Json | undefined => {
  let value: Json | undefined = input
  for (const member of path) {
    if (Array.isArray(value)) value = /^(?:0|[1-9]\d{0,8})$/.test(member) ? value[Number(member)] : undefined
    else if (typeof value === 'object' && value !== null && Object.hasOwn(value, member)) value = value[member]
    else return undefined
  }
  return value
}

/** How a part is called in a message to the caller. */
export const describePart = (part: Part): string => {
  switch (part.kind) {
    case 'text':
      return part.origin
    case 'input':
      return `input.${part.path.join('.')}`
    default:
      return part.kind
  }
}

/**
 * A JSON value from a template: a string that is one placeholder keeps the JSON type of the value; inside a longer
 * string a value becomes text. Undefined when the input lacks a member: the member that holds the string is dropped.
 */
export const renderJson = (template: Template, values: TemplateValues): Json | undefined => {
  const only = template.length === 1 ? template[0] : undefined
  if (only !== undefined) return partValue(only, values)
  let text = ''
  for (const part of template) {
    const value = partValue(part, values)
    if (value === undefined) return undefined
    text += typeof value === 'string' ? value : JSON.stringify(value)
  }
  return text
}

/**
 * Text from a template where only strings, numbers and booleans make sense (URL, header, effect key). `encode` is
 * applied to each value, never to the template's own text. The part is returned when its value does not fit.
 */
export const renderText = (
  template: Template,
  values: TemplateValues,
  encode: (value: string) => string,
): { text: string } | { misfit: Part; missing: boolean } => {
  let text = ''
  for (const part of template) {
    if (part.kind === 'text') {
      text += part.text
      continue
    }
    const value = partValue(part, values)
    if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') {
      return { misfit: part, missing: value === undefined }
    }
    text += encode(String(value))
  }
  return { text }
}

/** Percent-encodes everything but unreserved characters (RFC 3986), so that a value can never end its segment. */
export const encodeUrlValue = (value: string): string =>
  encodeURIComponent(value.replace(/\p{Surrogate}/gu, '\ufffd')).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )

/**
 * A value as it can stand in a header: visible ASCII and inner spaces stay, everything else is percent-encoded as
 * UTF-8. A `%` that would read as an escape is encoded too, and so is a space at either end (HTTP trims it): two
 * different values never become one, which as an idempotency key would make the provider swallow an effect.
 */
export const encodeHeaderValue = (value: string): string =>
  value
    .replace(/%(?=[0-9A-Fa-f]{2})/g, '%25')
    .replace(/[^\x20-\x7e]+/g, (run) => encodeURIComponent(run.replace(/\p{Surrogate}/gu, '\ufffd')))
    .replace(/^ +| +$/g, (spaces) => '%20'.repeat(spaces.length))
