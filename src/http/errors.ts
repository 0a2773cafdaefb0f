import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { AppError, type ErrorCode } from '../domain/errors.ts'
import { MAX_BODY_BYTES } from './limits.ts'
import { PROBLEM_MEDIA_TYPE, PROBLEMS, toProblem } from './problems.ts'
import { secure } from './security-headers.ts'

/** What Fastify itself refuses, in our words. */
const FASTIFY_FAULTS: Readonly<Record<string, { code: ErrorCode; detail: string }>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: {
    code: 'unsupported-media-type',
    detail: 'This route reads application/json only; the Content-Type header says otherwise or is missing',
  },
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: {
    code: 'malformed-request',
    detail: 'The body is not as long as its Content-Length says',
  },
  FST_ERR_BAD_URL: { code: 'malformed-request', detail: 'The URL contains an invalid percent escape' },
}

/** Every error becomes an `AppError`; what nobody expected becomes `internal`, which tells the caller nothing of it. */
export const toAppError = (error: unknown, bodyLimit = MAX_BODY_BYTES): AppError => {
  if (error instanceof AppError) return error
  const { code, statusCode } = error as Partial<FastifyError>
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return new AppError('body-too-large', `The body exceeds ${sizeOf(bodyLimit)}`, { cause: error })
  const known = code === undefined ? undefined : FASTIFY_FAULTS[code]
  if (known !== undefined) return new AppError(known.code, known.detail, { cause: error })
  if (code?.startsWith('FST_') && statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return new AppError('malformed-request', 'The request could not be read', { cause: error })
  return new AppError('internal', 'Something unexpected happened; the log names it under the request id', {
    cause: error,
  })
}

const MIB = 1024 * 1024
const sizeOf = (bytes: number): string => (bytes % MIB === 0 ? `${bytes / MIB} MiB` : `${bytes / 1024} KiB`)

/** A query builder's error repeats the parameters, which are tenants' data; the database's own error below it does not. */
const withoutParameters = (error: unknown): unknown =>
  error instanceof Error && 'params' in error ? (error.cause ?? error.name) : error

/** The path as asked. Bad escapes stay as they are: the caller must be able to recognise it. */
export const pathOf = (url: string): string => url.split(/[?#]/, 1)[0] ?? url

/** A 401 says by what it would let somebody in. */
const CHALLENGES: Partial<Record<ErrorCode, string>> = { 'invalid-signature': 'StandardWebhooks realm="opledger"' }

export const makeErrorHandler =
  (publicUrl: string | null) =>
  (thrown: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const error = toAppError(thrown, request.routeOptions.bodyLimit)
    const { status, retryAfterSeconds } = PROBLEMS[error.code]
    if (status >= 500)
      request.log.error({ err: withoutParameters(error.cause ?? error), code: error.code }, 'request failed')
    if (retryAfterSeconds !== undefined && !reply.hasHeader('retry-after'))
      reply.header('retry-after', String(retryAfterSeconds))
    if (status === 401) reply.header('www-authenticate', CHALLENGES[error.code] ?? 'Bearer realm="opledger"')
    secure(reply)
    const body = toProblem(error, { publicUrl, instance: pathOf(request.url), requestId: request.id })
    return reply
      .code(status)
      .header('x-request-id', request.id)
      .header('cache-control', 'no-store')
      .header('content-type', PROBLEM_MEDIA_TYPE)
      .serializer(JSON.stringify)
      .send(body)
  }
