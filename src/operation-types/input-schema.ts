/** The JSON Schema (2020-12) of a type's input. A schema that is wrong stops the start; values are never coerced. */
import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import type { InputIssue, Json } from '../domain/operation-type.ts'

/** More than a person reads at once; the rest shows after these are mended. */
const ISSUES_MAX = 20

/** Throws when the schema cannot be compiled: unknown keywords and formats too, as they would check nothing. */
export const compileInputSchema = (schema: Record<string, unknown> | boolean): ((input: Json) => InputIssue[]) => {
  // One instance per type: equal `$id`s of two types do not meet.
  const ajv = new Ajv2020({
    strict: false,
    strictSchema: true,
    allErrors: true,
    ownProperties: true,
    coerceTypes: false,
    useDefaults: false,
    removeAdditional: false,
    messages: true,
    logger: false,
  })
  formats.default(ajv)
  const validate = ajv.compile(schema)
  if ('$async' in validate) throw new Error('$async schemas are not supported')
  return (input) => {
    if (validate(input)) return []
    return (validate.errors ?? []).slice(0, ISSUES_MAX).map(describeIssue)
  }
}

const describeIssue = (error: ErrorObject): InputIssue => {
  const named = namedMember(error)
  if (named === null) return { pointer: error.instancePath, detail: error.message ?? `breaks ${error.keyword}` }
  return {
    pointer: `${error.instancePath}/${named.member.replaceAll('~', '~0').replaceAll('/', '~1')}`,
    detail: named.detail,
  }
}

/** Missing and surplus members: the issue points at the member itself, not at the object around it. */
const namedMember = (error: ErrorObject): { member: string; detail: string } | null => {
  const member = error.params.missingProperty ?? error.params.additionalProperty ?? error.params.unevaluatedProperty
  if (typeof member !== 'string') return null
  return { member, detail: error.keyword === 'required' ? 'is required' : 'is not a known member' }
}
