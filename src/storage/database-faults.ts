/** Which errors of PostgreSQL and of its connections mean what. SQLSTATE: PostgreSQL documentation, appendix A. */
import { AppError } from '../domain/errors.ts'

const CAUSES_MAX = 5

/** The error that has a code of its own, which may be the cause of another one. */
const originOf = (error: unknown): { code: string; routine?: unknown } | null => {
  for (let e = error, depth = 0; e instanceof Error && depth < CAUSES_MAX; e = e.cause, depth++) {
    if (!(e instanceof AppError) && 'code' in e && typeof e.code === 'string') return e as Error & { code: string }
  }
  return null
}

const codeOf = (error: unknown): string => originOf(error)?.code ?? ''

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

/**
 * The connection has lost a statement that was prepared on it (a pooler gave it another server), or has it for a table as it was
 * before a migration. PostgreSQL tells the latter from other things that are not supported (0A000) by where it was found only.
 */
export const isPlanLost = (error: unknown): boolean =>
  codeOf(error) === '26000' || (codeOf(error) === '0A000' && originOf(error)?.routine === 'RevalidateCachedQuery')

/** The transaction was rolled back as a whole and may be repeated as a whole: serialisation, deadlock, lock timeout, a lost plan. */
export const isRetryable = (error: unknown): boolean =>
  ['40001', '40P01', '55P03'].includes(codeOf(error)) || isPlanLost(error)

/** Faults that say nothing about the item at work: they abort a batch, they never fail an item. */
export const abortsBatch = (error: unknown): boolean =>
  isRetryable(error) ||
  isDatabaseFault(error) ||
  (error instanceof AppError && ['database-unavailable', 'overloaded', 'shutting-down'].includes(error.code))
