import type { FastifyRequest } from 'fastify'
import { type AuditAuthor, traceIdOf } from '../domain/audit.ts'
import type { Scope } from '../domain/scope.ts'
import { bearerOf, isApiKey } from './auth.ts'
import type { HttpConfig } from './deps.ts'

/** How a request came in, for the audit: the caller was let in with it before. */
export const originOf = (
  request: FastifyRequest,
  scope: Scope,
  { auth }: Pick<HttpConfig, 'auth'>,
): Omit<AuditAuthor, 'actor'> => ({
  auth: auth === 'off' ? 'none' : isApiKey(bearerOf(request) ?? '') ? 'key' : 'jwt',
  scope,
  requestId: request.id,
  traceId: traceIdOf(request.traceparent),
})
