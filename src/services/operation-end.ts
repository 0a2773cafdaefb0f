import { traceIdOf } from '../domain/audit.ts'
import { formatId } from '../domain/ids.ts'
import type { OperationEnd } from './context.ts'

/** What it needs of a logger. */
interface EndLog {
  info(fields: object, message: string): void
}

/** One line for each end: told by the process whose write made the operation final, whichever that is. */
export const logEnds =
  (log: EndLog) =>
  ({ operationId, type, status, counts, tookMs, traceparent }: OperationEnd): void =>
    log.info(
      {
        operation_id: formatId('op', operationId),
        type,
        status,
        ...counts,
        took_ms: Math.round(tookMs),
        ...(traceparent !== null && { trace_id: traceIdOf(traceparent) }),
      },
      'operation ended',
    )
