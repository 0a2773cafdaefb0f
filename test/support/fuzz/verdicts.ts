/** What may be said to a stranger, and what may not. */
import { ERROR_CODES, type ErrorCode } from '../../../src/domain/errors.ts'
import { PROBLEMS } from '../../../src/http/problems.ts'

export interface Answered {
  status: number
  headers: Record<string, unknown>
  body: string
}

/** The only 5xx that are no fault: each is documented, and says when to come back. */
const PASSING: readonly string[] = Object.entries(PROBLEMS)
  .filter(([, { status }]) => status === 503)
  .map(([code]) => code)

/** Of a program, its files and its database; never of an answer. */
const INTERNALS: readonly RegExp[] = [
  /\n\s+at /,
  /node_modules|node:internal|\.[cm]?[jt]s:\d+/,
  /\/(src|dist|tmp|home|root|usr|work)\//,
  /postgres(ql)?:\/\//,
  /\b(select|insert into|update|delete from)\b.+\b(from|values|set|where)\b/i,
  /violates|constraint|syntax error|relation "|column "|duplicate key|SQLSTATE|pg_catalog/i,
  /\b(TypeError|RangeError|ReferenceError|SyntaxError|AssertionError|ZodError|PostgresError|DrizzleQueryError)\b/,
  /Cannot read|is not a function|undefined|\[object /,
  /ECONN|ENOENT|EPIPE/,
]

/** What is wrong with an answer; empty: nothing. `names`: of constraints and indexes. `sent`: it may come back. */
export const faultsOf = ({ status, headers, body }: Answered, names: readonly string[], sent: string): string[] => {
  if (status < 400) return []
  const faults: string[] = []
  const type = String(headers['content-type'] ?? '')
  if (!/^application\/problem\+json/.test(type)) return [`${status} is no problem+json but ${type}`]
  // to a HEAD nothing is said
  if (body === '') return status >= 500 && status !== 503 ? [`${status}`] : []
  const problem = JSON.parse(body)
  const code: unknown = problem.code
  if (!ERROR_CODES.some((known) => known === code)) faults.push(`the code ${String(code)} is not known`)
  else if (PROBLEMS[code as ErrorCode].status !== status || problem.status !== status)
    faults.push(`${status} with the code ${String(code)}`)
  if (status >= 500 && !PASSING.includes(String(code))) faults.push(`${status} ${String(code)}`)
  if (status >= 500 && !(Number(headers['retry-after']) > 0) && code !== 'downloads-not-configured')
    faults.push(`${status} without Retry-After`)
  if (problem.request_id !== headers['x-request-id']) faults.push('the request id is another one')
  if (!headers['x-content-type-options']) faults.push('no security headers')
  for (const internal of INTERNALS) {
    const found = internal.exec(body)?.[0]
    if (found !== undefined && !sent.includes(found)) faults.push(`it says ${JSON.stringify(found)}`)
  }
  for (const name of names) if (body.includes(name) && !sent.includes(name)) faults.push(`it names ${name}`)
  return faults
}
