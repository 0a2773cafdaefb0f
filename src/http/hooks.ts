import type { FastifyInstance, FastifyRequest } from 'fastify'
import { AppError } from '../domain/errors.ts'
import type { Json } from '../domain/operation-type.ts'
import type { Principal } from '../services/principal.ts'
import type { AllowedMethods } from './allowed-methods.ts'
import { type Access, authenticate } from './auth.ts'
import type { ServerDeps } from './deps.ts'
import { pathOf } from './errors.ts'
import type { KnownScrapers } from './known-scrapers.ts'
import { MAX_URL_BYTES } from './limits.ts'
import { negotiate } from './media-types.ts'
import { originOf } from './origin.ts'
import type { Refusal } from './pressure.ts'
import { parseQuery } from './query-strings.ts'
import { openRateGuard } from './rate-limits.ts'
import type { TokenVerifier } from './tokens.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Who may call the route. Absent on routes of plugins (the documentation pages), which are open. */
    access?: Access
    /** Media types of its answers, in our order of preference. */
    produces?: readonly [string, ...string[]]
    /** No body, `{}` and `null` are the same. */
    bodyOptional?: boolean
    /** Reads its body itself, as a stream, under limits of its own. */
    readsStream?: boolean
    /** When it is refused under pressure; absent: first. What is refused last may also go on at the end of its rate. */
    refusal?: Refusal
  }
  interface FastifyRequest {
    /** Who asks; set on every route whose access is not `open`. */
    principal: Principal
    /** What to answer with, of the route's `produces`. */
    answerType: string
    /** The body as parsed, before its schema took defaults and copies. */
    rawJson: Json
  }
}

/** Carries a bad query from Fastify's router, where a throw would end the process, to the first hook. */
const QUERY_FAULT = Symbol('query fault')

export const parseQuerySafely = (query: string): Record<string | symbol, unknown> => {
  try {
    return parseQuery(query)
  } catch (fault) {
    return { [QUERY_FAULT]: fault }
  }
}

/**
 * What every request passes before its body is read, in this order: identity of the request, its syntax, its route,
 * whether there is room for it, its caller, its media types. So a wrong method never answers 415, and nobody without a key learns what exists.
 */
export const addHooks = (
  app: FastifyInstance,
  deps: ServerDeps & { tokens: TokenVerifier | null; scrapers: KnownScrapers },
  allowed: AllowedMethods,
): void => {
  app.decorateRequest('principal', null as unknown as Principal)
  app.decorateRequest('answerType', '')
  app.decorateRequest('rawJson', null)
  const rates = openRateGuard(app, deps.config.rateLimits ?? null)
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id)
    // Clients then open their next connection, and a load balancer gives it to a process that stays.
    if (deps.state.draining) reply.header('connection', 'close')
    refuseBadSyntax(request)
    if (request.is404) refuseUnknownRoute(request, allowed, (allow) => reply.header('allow', allow))
    const { access = 'open', produces, refusal } = request.routeOptions.config
    deps.pressure?.refuse(refusal)
    if (access === 'open') rates.admitStranger(request, reply)
    else {
      const principal = await rates.admit(request, reply, () => authenticate(request, access, deps))
      request.principal = { ...principal, origin: originOf(request, access, deps.config) }
      reply.header('cache-control', 'private, no-cache')
    }
    if (produces !== undefined) {
      request.answerType = negotiate(request.headers.accept, produces)
      if (produces.length > 1) reply.header('vary', 'accept')
    }
    if (request.headers['content-encoding'] !== undefined && request.headers['content-encoding'] !== 'identity')
      throw new AppError('unsupported-media-type', 'Bodies with a Content-Encoding are not read; send it plain')
  })
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.routeOptions.config.bodyOptional) request.body ??= {}
    done()
  })
}

const refuseBadSyntax = (request: FastifyRequest): void => {
  if (request.url.length > MAX_URL_BYTES) throw new AppError('url-too-long', `The URL exceeds ${MAX_URL_BYTES} bytes`)
  if (request.headers.host === undefined && request.raw.httpVersion === '1.1')
    throw new AppError('malformed-request', 'An HTTP/1.1 request needs a Host header')
  const fault = (request.query as Record<symbol, unknown> | null)?.[QUERY_FAULT]
  if (fault !== undefined) throw fault
}

const refuseUnknownRoute = (
  request: FastifyRequest,
  allowed: AllowedMethods,
  setAllow: (methods: string) => void,
): never => {
  const path = pathOf(request.url)
  const methods = allowed.of(path)
  if (methods.length === 0) throw new AppError('not-found', 'No route has this path')
  setAllow(methods.join(', '))
  throw new AppError('method-not-allowed', `${request.method} is not allowed here; ${methods.join(', ')} are`)
}
