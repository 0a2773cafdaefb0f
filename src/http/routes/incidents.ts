import { z } from 'zod'
import { INCIDENT_STATUSES } from '../../domain/dead-letter.ts'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, textField } from '../fields.ts'
import { MAX_REASON_BYTES, MAX_REFERENCE_BYTES } from '../limits.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { IncidentResource, ResolvedIncidentResource, toIncident, toResolvedIncident } from '../resources/incident.ts'

const TAGS = ['Dead letters']
const IncidentParams = z.object({ id: z.string().describe('The id of an incident.') })

const incidentNotFound = (id: string): AppError => new AppError('incident-not-found', `There is no incident ${id}`)

/** An incident's id is its fingerprint with a prefix; null: no incident can have this id. */
export const fingerprintOf = (id: string): string | null => parseId('inc', id)?.replaceAll('-', '') ?? null

const incidentIdOf = (params: { id: string }): string => {
  const id = fingerprintOf(params.id)
  if (id === null) throw incidentNotFound(params.id)
  return id
}

export const addIncidentRoutes = (app: App, deps: RouteDeps): void => {
  addList(app, deps)
  addGet(app, deps)
  addResolve(app, deps)
}

const IncidentQuery = z.strictObject({
  type: filterField.optional(),
  status: listFilterField(INCIDENT_STATUSES).optional(),
  ...pageFields,
})

const IncidentPosition = z.object({ firstSeenAt: dbTimeField, id: z.string().regex(/^[0-9a-f]{32}$/) })

const addList = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/incidents',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listIncidents',
        summary: 'Dead letters by their cause, in the order of the first',
        description: 'N dead letters with one fingerprint are one incident.',
        querystring: IncidentQuery,
        response: {
          200: pageOf(IncidentResource),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const { query } = request
      const filters = { type: query.type ?? null, status: query.status ?? [] }
      const list = { name: 'incidents', filters, position: IncidentPosition }
      const page = await services.listIncidents(request.principal, filters, pageRequestOf(query, list))
      return answerPage(request, reply, page, list, toIncident)
    },
  )
}

const addGet = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/incidents/:id',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getIncident',
        summary: 'Read an incident',
        params: IncidentParams,
        response: { 200: IncidentResource, ...refusals({ 404: 'No such incident.' }) },
      },
    },
    async (request) => {
      const found = await services.getIncident(request.principal, incidentIdOf(request.params))
      if (found === null) throw incidentNotFound(request.params.id)
      return toIncident(found)
    },
  )
}

const ResolveBody = z
  .strictObject({
    fixed_in: textField(MAX_REFERENCE_BYTES)
      .nullish()
      .describe('The version, deployment or change that mends the cause.'),
    reason: textField(MAX_REASON_BYTES),
  })
  .meta({ id: 'ResolveIncident' })

const addResolve = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/incidents/:id/resolve',
    {
      config: { access: 'reconcile', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'resolveIncident',
        summary: 'Say that the cause is mended, and learn which preflights to run',
        description:
          'Closes the open dead letters with the reason; replays nothing. A new dead letter with the same cause opens the incident again.',
        params: IncidentParams,
        body: ResolveBody,
        response: {
          200: ResolvedIncidentResource,
          ...refusals({ 400: 'No reason.', 404: 'No such incident.' }),
        },
      },
    },
    async (request) => {
      const { body } = request
      const resolved = await services.resolveIncident(request.principal, incidentIdOf(request.params), {
        fixedIn: body.fixed_in ?? null,
        reason: body.reason,
      })
      return toResolvedIncident(resolved, request.principal)
    },
  )
}
