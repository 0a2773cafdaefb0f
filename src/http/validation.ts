import type { FastifySchemaCompiler } from 'fastify'
import { type $ZodIssue, type $ZodType, safeParse } from 'zod/v4/core'
import { AppError, type Fault } from '../domain/errors.ts'
import { MAX_REPORTED_FAULTS } from './limits.ts'
import { toPointer } from './text.ts'

type Part = 'body' | 'querystring' | 'params' | 'headers'

const PART_NAMES: Readonly<Record<Part, string>> = {
  body: 'The body',
  querystring: 'The query',
  params: 'The path',
  headers: 'A header',
}

/** Checks requests against the zod schemas of the routes; what does not fit is `invalid-request` with a pointer per fault. */
export const validatorCompiler: FastifySchemaCompiler<$ZodType> =
  ({ schema, httpPart }) =>
  (data: unknown) => {
    const result = safeParse(schema, data)
    return result.success
      ? { value: result.data }
      : { error: toInvalidRequest(result.error.issues, (httpPart ?? 'body') as Part) }
  }

const toInvalidRequest = (issues: readonly $ZodIssue[], part: Part): AppError => {
  const errors = issues.flatMap((issue) => toFaults(issue, part)).slice(0, MAX_REPORTED_FAULTS)
  const [first] = errors
  const where = first?.pointer ? ` at ${first.pointer}` : ''
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more)` : ''
  return new AppError(
    'invalid-request',
    `${PART_NAMES[part]} does not fit this route${where}: ${first?.detail}${more}`,
    {
      errors,
    },
  )
}

/** Into a body a fault points with a JSON pointer; elsewhere with the parameter's name. */
export const toFaults = (issue: $ZodIssue, part: Part): Fault[] => {
  const pointerTo = (path: readonly PropertyKey[]) => (part === 'body' ? toPointer(path) : String(path[0] ?? ''))
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => ({
      detail: part === 'body' ? 'is not a member of this request' : 'is not a parameter of this route',
      pointer: pointerTo([...issue.path, key]),
    }))
  // in the words of whoever writes JSON, who never wrote an undefined
  const isMissing = issue.code === 'invalid_type' && issue.message.endsWith('received undefined')
  return [{ detail: isMissing ? 'is missing' : issue.message, pointer: pointerTo(issue.path) }]
}
