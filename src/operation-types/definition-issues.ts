/** Checks of a definition's shape, and its faults as one line: the field first, then what is wrong with it. */
import type { z } from 'zod'
import type { Json } from '../domain/operation-type.ts'
import { DefinitionError } from '../domain/operation-type-definition.ts'

const JSON_DEPTH_MAX = 32
const DETAIL_LENGTH_MAX = 300

/** Parses with a zod schema; throws a DefinitionError for the first issue. */
export const parseDefinition = <T>(schema: z.ZodType<T>, value: unknown): T => {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const issues = parsed.error.issues
  const [issue] = issues
  const further = issues.length > 1 ? ` (and ${issues.length - 1} more)` : ''
  throw new DefinitionError(...describeIssue(issue, further), { cause: parsed.error })
}

const describeIssue = (issue: z.core.$ZodIssue | undefined, further: string): [field: string, detail: string] => {
  const path = (issue?.path ?? []).map(String)
  if (issue?.code === 'unrecognized_keys') {
    return [[...path, issue.keys[0] ?? ''].join('.'), `unknown member${further}`]
  }
  return [path.join('.'), oneLine(`${issue?.message ?? 'is not valid'}${further}`)]
}

export const oneLine = (text: string): string => text.replace(/\s+/g, ' ').trim().slice(0, DETAIL_LENGTH_MAX)

/** What a YAML file can hold and JSON cannot, or what would not survive the database, is refused with its place. */
export function assertJson(value: unknown, path: readonly string[] = []): asserts value is Json {
  const refuse = (detail: string): never => {
    throw new DefinitionError(path.join('.'), detail)
  }
  if (path.length > JSON_DEPTH_MAX) refuse(`deeper than ${JSON_DEPTH_MAX} levels`)
  if (value === null || typeof value === 'boolean') return
  if (typeof value === 'string') {
    if (/\0|\p{Surrogate}/u.test(value)) refuse('holds U+0000 or a lone surrogate')
    return
  }
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) refuse('is not a finite number')
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) refuse('is too large a number; write it as a string')
    return
  }
  if (Array.isArray(value)) {
    value.forEach((element, index) => {
      assertJson(element, [...path, String(index)])
    })
    return
  }
  if (typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) refuse('is not a JSON value')
  for (const [name, member] of Object.entries(value as object)) {
    if (name === '__proto__') refuse('has a member named __proto__')
    assertJson(member, [...path, name])
  }
}
