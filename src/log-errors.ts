/**
 * An error as the log shows it: what it is, what it says, where it came from. Nothing else that hangs on it: PostgreSQL's errors
 * carry the rows that they are about (`detail`, `where`), and a query builder's repeat the parameters in their message. All of
 * these are tenants' data.
 */
const CAUSES_MAX = 5
/** Class 22 of SQLSTATE, data exceptions: what stands in quotes is the data. */
const DATA_EXCEPTION = /^22[0-9A-Z]{3}$/

export interface ShownError {
  type: string
  message: string
  code?: string
  stack?: string
  cause?: ShownError
}

export const showError = (error: unknown, depth = 0): ShownError => {
  if (!(error instanceof Error)) return { type: typeof error, message: 'something that is no error was thrown' }
  // of a query builder: the database's own error stands below it
  if ('params' in error) {
    return error.cause === undefined ? { type: error.name, message: 'a query failed' } : showError(error.cause, depth)
  }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  const message =
    code !== undefined && DATA_EXCEPTION.test(code) ? error.message.replace(/"[^"]*"/g, '"…"') : error.message
  return {
    type: error.name,
    message,
    ...(code !== undefined && { code }),
    ...(error.stack !== undefined && { stack: error.stack.replace(error.message, () => message) }),
    ...(error.cause !== undefined && depth < CAUSES_MAX && { cause: showError(error.cause, depth + 1) }),
  }
}
