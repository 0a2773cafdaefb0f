/** Which errors of PostgreSQL and of its connections mean what. SQLSTATE: PostgreSQL documentation, appendix A. */
import { AppError } from '../domain/errors.ts'

const CAUSES_MAX = 5

const codeOf = (error: unknown): string => {
  for (let e = error, depth = 0; e instanceof Error && depth < CAUSES_MAX; e = e.cause, depth++) {
    if (!(e instanceof AppError) && 'code' in e && typeof e.code === 'string') return e.code
  }
  return ''
}

/** The SQLSTATE of a database error, or the code of a connection error, or ''. */
export const faultCode = codeOf

const CONNECTION_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'CONNECTION_CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
])

/** The server, or the way to it, is not able now: 08 connection, 53 resources, 57 operator intervention, 25006 read-only, 58 system. */
export const isDatabaseFault = (error: unknown): boolean => {
  const code = codeOf(error)
  if (CONNECTION_CODES.has(code)) return true
  return /^(08|53|57|58)/.test(code) || code === '25006' || code === '25P03' || code === '28000' || code === '3D000'
}

/** The transaction was rolled back as a whole and may be repeated as a whole: serialisation, deadlock, lock timeout. */
export const isRetryable = (error: unknown): boolean => ['40001', '40P01', '55P03'].includes(codeOf(error))

/** Faults that say nothing about the item at work: they abort a batch, they never fail an item. */
export const abortsBatch = (error: unknown): boolean =>
  isRetryable(error) ||
  isDatabaseFault(error) ||
  (error instanceof AppError && ['database-unavailable', 'overloaded', 'shutting-down'].includes(error.code))
