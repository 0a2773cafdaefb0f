import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import Fastify, { type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { AppError } from '../domain/errors.ts'
import { AllowedMethods } from './allowed-methods.ts'
import { type App, JSON_TYPE, type RouteDeps } from './app.ts'
import { endSlowBodies } from './body-timeouts.ts'
import type { ServerDeps } from './deps.ts'
import { documentOptions, toDocument } from './document.ts'
import { makeErrorHandler } from './errors.ts'
import { addHooks, parseQuerySafely } from './hooks.ts'
import { parseJsonBody } from './json-body.ts'
import { KnownScrapers } from './known-scrapers.ts'
import {
  CONNECTION_TIMEOUT_MS,
  HEADERS_TIMEOUT_MS,
  KEEP_ALIVE_TIMEOUT_MS,
  MAX_BODY_BYTES,
  MAX_CONNECTIONS,
  MAX_HEADER_BYTES,
  MAX_URL_BYTES,
  UPLOAD_TIMEOUT_MS,
} from './limits.ts'
import { Metrics } from './metrics.ts'
import { requestIdOf } from './request-ids.ts'
import { RequestLog } from './request-log.ts'
import { addArtifactRoutes } from './routes/artifacts.ts'
import { addAuditRoute } from './routes/audit.ts'
import { addBulkActionRoutes } from './routes/bulk-actions.ts'
import { addCallbackRoutes } from './routes/callbacks.ts'
import { addCompensationRoutes } from './routes/compensation.ts'
import { addConsoleRoutes, CONSOLE_DIRECTORY } from './routes/console.ts'
import { addDeadLetterRoutes } from './routes/dead-letters.ts'
import { addIncidentRoutes } from './routes/incidents.ts'
import { addItemHistoryRoute } from './routes/item-history.ts'
import { addOperationListRoute } from './routes/operation-list.ts'
import { addOperationTypeRoutes } from './routes/operation-types.ts'
import { addOperationRoutes } from './routes/operations.ts'
import { addOutcomeRoutes } from './routes/outcomes.ts'
import { addReconciliationRoutes } from './routes/reconciliation.ts'
import { addReplayRoutes } from './routes/replay.ts'
import { addServiceRoutes } from './routes/service.ts'
import { addUploadRoutes } from './routes/uploads.ts'
import { addWebhookDeliveryRoutes } from './routes/webhook-deliveries.ts'
import { addWorkRoutes } from './routes/work.ts'
import { addSecurityHeaders } from './security-headers.ts'
import { makeClientErrorHandler, watchSockets } from './socket-errors.ts'
import { openTokenVerifier } from './tokens.ts'
import { traceRequests } from './trace-context.ts'
import { validatorCompiler } from './validation.ts'
import { Waiters } from './waiters.ts'

/** The documentation pages run scripts and load pictures, all of them our own; their styles also stand in their elements. */
const DOCS_POLICY = {
  'default-src': "'self'",
  'style-src': "'self' 'unsafe-inline'",
  'img-src': "'self' data:",
  'object-src': "'none'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
}

/** The whole HTTP edge, ready to listen. Closing it ends long polls and streams and serves on until the rest is answered. */
export const buildServer = async (deps: ServerDeps): Promise<App> => {
  const { publicUrl, trustedProxies = [] } = deps.config
  const handleError = makeErrorHandler(publicUrl)
  const app: App = Fastify({
    loggerInstance: deps.log,
    // One line per request would drown the log of a service that is polled; metrics count them.
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: MAX_BODY_BYTES,
    connectionTimeout: CONNECTION_TIMEOUT_MS,
    requestTimeout: UPLOAD_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      // Node's own answer has no body; ours is a problem.
      requireHostHeader: false,
    },
    trustProxy: trustedProxies.length > 0 && [...trustedProxies],
    genReqId: requestIdOf,
    childLoggerFactory: (log, bindings) => new RequestLog(log, bindings),
    requestIdHeader: false,
    // While closing, what still arrives on open connections is served; Fastify's refusal would be no problem+json.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    frameworkErrors: (error, request, reply) => void handleError(error, request, reply),
    clientErrorHandler: makeClientErrorHandler(publicUrl),
    routerOptions: {
      querystringParser: parseQuerySafely as (query: string) => Record<string, unknown>,
      // No parameter is matched by a regular expression, so only the URL as a whole needs a bound.
      maxParamLength: MAX_URL_BYTES,
    },
  }).withTypeProvider<ZodTypeProvider>()
  app.server.maxConnections = MAX_CONNECTIONS
  watchSockets(app.server, publicUrl)

  app.setErrorHandler(handleError)
  // The first hook has refused it before, with 404 or 405; what comes here is a missing file of the documentation.
  app.setNotFoundHandler((request: FastifyRequest, reply: FastifyReply) =>
    handleError(new AppError('not-found', 'There is no such page'), request, reply),
  )
  app.setValidatorCompiler(validatorCompiler)
  // Response schemas document; they never turn an answer into a 500 after the commit.
  app.setSerializerCompiler(() => stringify)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) => {
    const value = parseJsonBody(body)
    request.rawJson = value ?? null
    return value
  })

  const allowed = new AllowedMethods()
  allowed.watch(app)
  const metrics = new Metrics(deps.services)
  metrics.watch(app)
  traceRequests(app, deps.tracing)
  // before the hooks that refuse: what they refuse has the headers too
  addSecurityHeaders(app)
  const { jwt = null } = deps.config
  const tokens = jwt === null ? null : await openTokenVerifier(jwt)
  addHooks(app, { ...deps, tokens, scrapers: new KnownScrapers() }, allowed)
  endSlowBodies(app)
  await app.register(swagger, documentOptions(publicUrl))
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: DOCS_POLICY })

  const waiters = new Waiters()
  app.addHook('preClose', async () => waiters.endAll())
  const routeDeps: RouteDeps = { ...deps, waiters }
  addOperationRoutes(app, routeDeps)
  addOperationListRoute(app, routeDeps)
  await addUploadRoutes(app, routeDeps)
  addOutcomeRoutes(app, routeDeps)
  addItemHistoryRoute(app, routeDeps)
  addReplayRoutes(app, routeDeps)
  addBulkActionRoutes(app, routeDeps)
  addCompensationRoutes(app, routeDeps)
  addReconciliationRoutes(app, routeDeps)
  await addCallbackRoutes(app, routeDeps)
  addDeadLetterRoutes(app, routeDeps)
  addIncidentRoutes(app, routeDeps)
  addWebhookDeliveryRoutes(app, routeDeps)
  addArtifactRoutes(app, routeDeps)
  addOperationTypeRoutes(app, routeDeps)
  addWorkRoutes(app, routeDeps)
  addAuditRoute(app, routeDeps)
  addServiceRoutes(app, routeDeps, metrics)
  addDocumentRoute(app)
  addConsoleRoutes(app, deps.consoleDirectory ?? CONSOLE_DIRECTORY)
  return app
}

/**
 * Infinity and NaN become null by JSON's own rule; a bigint throws, so then it becomes a number or, beyond 2^53, text. There
 * should be none: to ask for each member costs several times what the rest does.
 */
const stringify = (value: unknown): string => {
  try {
    return JSON.stringify(value)
  } catch {
    return JSON.stringify(value, (_key, member: unknown) => {
      if (typeof member !== 'bigint') return member
      const number = Number(member)
      return Number.isSafeInteger(number) ? number : String(member)
    })
  }
}

const addDocumentRoute = (app: App): void => {
  // made once: it takes milliseconds, and whoever likes may ask for it
  let text: string | null = null
  app.get(
    '/openapi.json',
    { config: { access: 'open', produces: [JSON_TYPE] }, schema: { hide: true } },
    async (_request, reply) => {
      text ??= JSON.stringify(toDocument(app))
      return reply.header('content-type', `${JSON_TYPE}; charset=utf-8`).send(text)
    },
  )
}
