/** Values for the schemas of the OpenAPI document: such that fit, such that nearly fit, and rubbish. */
import fc from 'fast-check'

export interface Schema {
  type?: string
  $ref?: string
  enum?: unknown[]
  const?: unknown
  anyOf?: Schema[]
  oneOf?: Schema[]
  allOf?: Schema[]
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: Schema | boolean
  items?: Schema
  minItems?: number
  maxItems?: number
  minLength?: number
  maxLength?: number
  minimum?: number
  maximum?: number
  format?: string
  pattern?: string
}

/** What a member of this name should be, where a value that only fits its schema would get nowhere. */
export type Hints = (member: string) => fc.Arbitrary<unknown> | null

const ODD_TEXTS = [
  ...[
    '',
    ' ',
    'a',
    'ü',
    '€😀',
    "'",
    '"',
    '\\',
    '<b>',
    '#{7*7}',
    '{{7*7}}',
    '../../etc/passwd',
    "' or '1'='1",
    '%',
    '%s%n',
  ],
  ...['\u0000', 'a\u0000b', '\ud800', '\udfff\ud800', '\r\nX-A: b', '__proto__', 'constructor', 'null', 'NaN', '-1'],
  ...[
    '9'.repeat(30),
    'x'.repeat(300),
    'ä'.repeat(1_100),
    '2026-02-30T00:00:00Z',
    '0001-01-01T00:00:00Z',
    '=1+1',
    '\u202e',
  ],
]
const ODD_NUMBERS = [0, -1, 1.5, 2 ** 31, 2 ** 53, -(2 ** 63), 1e308, 5e-324]

export const oddText = fc.oneof(fc.constantFrom(...ODD_TEXTS), fc.string({ maxLength: 20, unit: 'binary' }))
const oddScalar = fc.oneof(oddText, fc.constantFrom(...ODD_NUMBERS), fc.constantFrom(null, true, false))
export const oddJson: fc.Arbitrary<unknown> = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    oddScalar,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(oddText, tie('value'), { maxKeys: 4 }),
  ),
})).value

const TIMES = ['2026-01-01T00:00:00Z', '2026-12-31T23:59:59.123456+05:30', '2030-06-01T12:00:00-08:00']
/** So long a text is tried at the limit now and then, and not always. */
const TEXT_LENGTH = 24
const LIST_LENGTH = 4

/** A value that fits. `schemas`: the components that `$ref` names. */
export const fitting = (
  schema: Schema,
  schemas: Record<string, Schema>,
  hints: Hints,
  depth = 0,
): fc.Arbitrary<unknown> => {
  const inner = (one: Schema): fc.Arbitrary<unknown> => fitting(one, schemas, hints, depth + 1)
  if (schema.$ref !== undefined) return inner(schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {})
  if (schema.const !== undefined) return fc.constant(schema.const)
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  const choices = schema.anyOf ?? schema.oneOf
  if (choices !== undefined) return fc.oneof(...choices.map(inner))
  if (schema.allOf !== undefined) return inner(Object.assign({}, ...schema.allOf))
  switch (schema.type) {
    case 'string':
      return textOf(schema)
    case 'integer':
      return fc.integer({
        min: Math.max(schema.minimum ?? -1_000, -1_000_000),
        max: Math.min(schema.maximum ?? 1_000, 1_000_000),
      })
    case 'number':
      return fc.integer({
        min: Math.ceil(schema.minimum ?? 0),
        max: Math.floor(Math.min(schema.maximum ?? 1_000, 1_000)),
      })
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    case 'array':
      return fc.array(inner(schema.items ?? {}), {
        minLength: schema.minItems ?? 0,
        maxLength: Math.max(schema.minItems ?? 0, Math.min(schema.maxItems ?? LIST_LENGTH, LIST_LENGTH)),
      })
    case 'object':
      return objectOf(schema, inner, hints)
    default:
      return depth > 6 ? fc.constant({}) : oddJson
  }
}

const textOf = ({ format, pattern, minLength = 0, maxLength = TEXT_LENGTH }: Schema): fc.Arbitrary<string> => {
  if (format === 'date-time') return fc.constantFrom(...TIMES)
  if (format === 'uuid') return fc.uuid()
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern))
  const plain = fc.string({ minLength, maxLength: Math.max(minLength, Math.min(maxLength, TEXT_LENGTH)) })
  return fc.oneof(
    { weight: 9, arbitrary: plain },
    { weight: 1, arbitrary: fc.constant('x'.repeat(Math.min(maxLength, 5_000))) },
  )
}

const objectOf = (
  { properties = {}, required = [], additionalProperties }: Schema,
  inner: (schema: Schema) => fc.Arbitrary<unknown>,
  hints: Hints,
): fc.Arbitrary<unknown> => {
  const members = Object.fromEntries(
    Object.entries(properties).map(([name, one]) => {
      const hint = hints(name)
      return [
        name,
        hint === null ? inner(one) : fc.oneof({ weight: 4, arbitrary: hint }, { weight: 1, arbitrary: inner(one) }),
      ]
    }),
  )
  const known = fc.record(members, { requiredKeys: required.filter((name) => name in members) })
  if (typeof additionalProperties !== 'object') return known
  const more = fc.dictionary(fc.string({ minLength: 1, maxLength: 8 }), inner(additionalProperties), { maxKeys: 3 })
  return fc.tuple(known, more).map(([first, others]) => ({ ...others, ...first }))
}

/** A value with one thing changed, somewhere in it. */
export const nearly = (arbitrary: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc
    .tuple(arbitrary, fc.nat(), fc.constantFrom('drop', 'replace', 'add', 'swap'), oddText, oddJson)
    .map(([value, at, how, name, odd]) => change(structuredClone(value), at, { how, name, odd }))

interface Change {
  how: 'drop' | 'replace' | 'add' | 'swap'
  name: string
  odd: unknown
}

const change = (root: unknown, at: number, { how, name, odd }: Change): unknown => {
  const holders: Record<string, unknown>[] = []
  const pending = [root]
  while (pending.length > 0) {
    const value = pending.pop()
    if (typeof value !== 'object' || value === null) continue
    holders.push(value as Record<string, unknown>)
    pending.push(...Object.values(value))
  }
  const holder = holders[at % Math.max(1, holders.length)]
  if (holder === undefined || how === 'swap') return how === 'swap' && root !== undefined ? [root] : odd
  const members = Object.keys(holder)
  const member = members[at % Math.max(1, members.length)]
  if (how === 'add' || member === undefined) holder[Array.isArray(holder) ? members.length : name] = odd
  else if (how === 'drop') delete holder[member]
  else holder[member] = odd
  return root
}
