import type { FastifyInstance, FastifyRequest } from 'fastify'
import { traceIdOf } from '../domain/audit.ts'
import type { Span, Tracing } from '../tracing.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Where the request belongs: our own span of it, or else what its caller sent. Null: to no trace. */
    traceparent: string | null
  }
}

const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/** A valid W3C `traceparent`, or null: as the standard asks, a broken one is dropped, not refused. */
export const traceparentOf = (header: string | string[] | undefined): string | null =>
  typeof header === 'string' && TRACEPARENT.test(header) ? header : null

/** Polls are by far the most, and begin nothing. */
const isWrite = ({ method, is404 }: FastifyRequest): boolean =>
  !is404 && method !== 'GET' && method !== 'HEAD' && method !== 'OPTIONS'

/**
 * Gives each request its place in its caller's trace, and its log lines the id of it; writes are spans of their own, where
 * somebody traces. Routes are named by their pattern, so that ids never become names or attributes.
 */
export const traceRequests = (app: FastifyInstance, tracing: Tracing | undefined): void => {
  const spans = new WeakMap<FastifyRequest, Span>()
  app.decorateRequest('traceparent', null)
  app.addHook('onRequest', (request, _reply, done) => {
    request.traceparent = traceparentOf(request.headers.traceparent)
    if (tracing && isWrite(request)) {
      const route = request.routeOptions.url ?? 'none'
      const span = tracing.start(`${request.method} ${route}`, {
        kind: 'server',
        parent: request.traceparent,
        attributes: { 'http.request.method': request.method, 'http.route': route },
      })
      spans.set(request, span)
      request.traceparent = span.traceparent ?? request.traceparent
    }
    if (request.traceparent !== null) request.log = request.log.child({ trace_id: traceIdOf(request.traceparent) })
    done()
  })
  if (!tracing) return
  app.addHook('onResponse', (request, reply, done) => {
    const span = spans.get(request)
    span?.set({ 'http.response.status_code': reply.statusCode })
    span?.end(reply.statusCode >= 500 ? 'error' : 'ok')
    done()
  })
}
