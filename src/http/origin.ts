import type { FastifyRequest } from 'fastify'
import { type AuditAuthor, traceIdOf } from '../domain/audit.ts'
import type { Scope } from '../domain/scope.ts'
import type { HttpConfig } from './deps.ts'

/** How a request came in, for the audit: the caller was let in with it before. */
export const originOf = (
  request: FastifyRequest,
  scope: Scope,
  { auth }: Pick<HttpConfig, 'auth'>,
): Omit<AuditAuthor, 'actor'> => ({
  auth: auth === 'off' ? 'none' : /^bearer +opl_/i.test(request.headers.authorization ?? '') ? 'key' : 'jwt',
  scope,
  requestId: request.id,
  traceId: traceIdOf(request.traceparent),
})
