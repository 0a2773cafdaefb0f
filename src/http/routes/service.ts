import { z } from 'zod'
import { AppError, ERROR_CODES } from '../../domain/errors.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import type { Metrics } from '../metrics.ts'
import { describeProblem, renderProblemPage } from '../problem-page.ts'
import {
  HealthReportResource,
  ReadinessResource,
  toHealthReport,
  toWorker,
  WorkerResource,
} from '../resources/service.ts'

const TAGS = ['Service']
const HTML = 'text/html'

/** Workers, health, metrics, and the pages that explain problems. */
export const addServiceRoutes = (app: App, deps: RouteDeps, metrics: Metrics): void => {
  addWorkersAndHealth(app, deps)
  addProbes(app, deps)
  app.get(
    '/metrics',
    {
      config: { access: 'metrics:read', produces: ['text/plain'], refusal: 'never' },
      schema: {
        tags: TAGS,
        operationId: 'getMetrics',
        summary: 'Metrics for Prometheus',
        description:
          'Gauges over the operations of the tenant. With the scope metrics:service besides: over all tenants, of which none is named, and those of the service itself.',
        response: {
          200: {
            description: 'The text format of Prometheus; all names begin with opledger_.',
            content: { 'text/plain': { schema: z.string() } },
          },
          ...refusals({}),
        },
      },
    },
    async (request, reply) =>
      reply.header('content-type', metrics.contentType).send(await metrics.collect(request.principal)),
  )
  addProblemPages(app)
}

const addWorkersAndHealth = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/workers',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listWorkers',
        summary: 'The worker processes',
        querystring: z.strictObject({}),
        response: { 200: z.object({ items: z.array(WorkerResource) }), ...refusals({}) },
      },
    },
    async (request) => ({ items: (await services.listWorkers(request.principal)).map(toWorker) }),
  )
  app.get(
    '/health-report',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getHealthReport',
        summary: 'Four figures per type, and the cancel contract',
        querystring: z.strictObject({}),
        response: { 200: HealthReportResource, ...refusals({}) },
      },
    },
    async (request) => toHealthReport(await services.healthReport(request.principal), request.principal),
  )
}

const addProbes = (app: App, { services, state }: RouteDeps): void => {
  app.get(
    '/livez',
    {
      config: { access: 'open', produces: [JSON_TYPE], refusal: 'never' },
      schema: {
        tags: TAGS,
        operationId: 'getLiveness',
        summary: 'Whether the process lives',
        security: [],
        response: { 200: z.object({ status: z.string() }), ...refusals({}) },
      },
    },
    async () => ({ status: 'alive' }),
  )
  app.get(
    '/readyz',
    {
      config: { access: 'open', produces: [JSON_TYPE], refusal: 'never' },
      schema: {
        tags: TAGS,
        operationId: 'getReadiness',
        summary: 'Whether to send requests here',
        security: [],
        response: { 200: ReadinessResource, ...refusals({ 503: 'Draining, or something that is needed is missing.' }) },
      },
    },
    async (_request, reply) => {
      reply.header('cache-control', 'no-store')
      if (state.draining) throw new AppError('shutting-down', 'This process is draining', { extra: { checks: [] } })
      const { ready, checks } = await services.readiness()
      if (ready) return { status: 'ready', checks }
      const missing = checks.filter(({ ok }) => !ok).map(({ name, detail }) => `${name}: ${detail ?? 'not ready'}`)
      throw new AppError('not-ready', `Not ready (${missing.join('; ')})`, { extra: { checks } })
    },
  )
}

const ProblemDescription = z
  .object({ code: z.string(), status: z.int(), title: z.string(), meaning: z.string(), action: z.string() })
  .meta({ id: 'ProblemDescription' })

const addProblemPages = (app: App): void => {
  app.get(
    '/problems/:code',
    {
      config: { access: 'open', produces: [HTML, JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getProblem',
        summary: 'What a problem means, and what to do about it',
        security: [],
        params: z.object({ code: z.string() }),
        response: {
          200: {
            description: 'The explanation.',
            content: { [HTML]: { schema: z.string() }, [JSON_TYPE]: { schema: ProblemDescription } },
          },
          ...refusals({ 404: 'No such problem.' }),
        },
      },
    },
    async (request, reply) => {
      const code = ERROR_CODES.find((known) => known === request.params.code)
      if (code === undefined) throw new AppError('not-found', `There is no problem ${request.params.code}`)
      if (request.answerType === JSON_TYPE) return reply.send(describeProblem(code))
      return reply.header('content-type', `${HTML}; charset=utf-8`).send(renderProblemPage(code))
    },
  )
}
