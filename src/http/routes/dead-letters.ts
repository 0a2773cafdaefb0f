import { z } from 'zod'
import { DEAD_LETTER_STATUSES } from '../../domain/dead-letter.ts'
import { AppError } from '../../domain/errors.ts'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { parseId } from '../../domain/ids.ts'
import type { DeadLetterFilters } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, textField } from '../fields.ts'
import { MAX_REASON_BYTES } from '../limits.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { DeadLetterResource, toDeadLetter } from '../resources/dead-letter.ts'
import { fingerprintOf } from './incidents.ts'

const TAGS = ['Dead letters']
const DeadLetterParams = z.object({ id: z.string().describe('The id of a dead letter.') })

const deadLetterNotFound = (id: string): AppError =>
  new AppError('dead-letter-not-found', `There is no dead letter ${id}`)

const deadLetterIdOf = (params: { id: string }): string => {
  const id = parseId('dl', params.id)
  if (id === null) throw deadLetterNotFound(params.id)
  return id
}

export const addDeadLetterRoutes = (app: App, deps: RouteDeps): void => {
  addList(app, deps)
  addGet(app, deps)
  addDiscard(app, deps)
}

const DeadLetterQuery = z.strictObject({
  operation_id: filterField.optional(),
  type: filterField.optional(),
  failure_class: listFilterField(FAILURE_CLASSES).optional(),
  incident_id: filterField.optional(),
  status: listFilterField(DEAD_LETTER_STATUSES).optional(),
  ...pageFields,
})

const DeadLetterPosition = z.object({ createdAt: dbTimeField, id: z.uuid() })

const addList = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/dead-letters',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listDeadLetters',
        summary: 'Items whose attempts are used up, oldest first',
        description: 'All statuses unless asked.',
        querystring: DeadLetterQuery,
        response: {
          200: pageOf(DeadLetterResource),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const { query } = request
      const filters: DeadLetterFilters = {
        operationId: query.operation_id === undefined ? null : parseId('op', query.operation_id),
        type: query.type ?? null,
        failureClass: query.failure_class ?? [],
        incidentId: query.incident_id === undefined ? null : fingerprintOf(query.incident_id),
        status: query.status ?? [],
      }
      const list = { name: 'dead-letters', filters, position: DeadLetterPosition }
      const page = pageRequestOf(query, list)
      // Nothing has such an id; without the filter all would be listed.
      const isNobodys =
        (query.operation_id !== undefined && filters.operationId === null) ||
        (query.incident_id !== undefined && filters.incidentId === null)
      if (isNobodys) return { items: [] }
      const found = await services.listDeadLetters(request.principal, filters, page)
      return answerPage(request, reply, found, list, toDeadLetter)
    },
  )
}

const addGet = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/dead-letters/:id',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getDeadLetter',
        summary: 'Read a dead letter',
        params: DeadLetterParams,
        response: { 200: DeadLetterResource, ...refusals({ 404: 'No such dead letter.' }) },
      },
    },
    async (request) => {
      const found = await services.getDeadLetter(request.principal, deadLetterIdOf(request.params))
      if (found === null) throw deadLetterNotFound(request.params.id)
      return toDeadLetter(found)
    },
  )
}

const DiscardBody = z
  .strictObject({ reason: textField(MAX_REASON_BYTES).describe('Why nobody will bring the item home.') })
  .meta({ id: 'DiscardDeadLetter' })

const addDiscard = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/dead-letters/:id/discard',
    {
      config: { access: 'reconcile', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'discardDeadLetter',
        summary: 'Give a dead letter up, with a reason',
        description: 'Of two at once one wins; the other gets 409 with the outcome.',
        params: DeadLetterParams,
        body: DiscardBody,
        response: {
          200: DeadLetterResource,
          ...refusals({
            400: 'No reason.',
            404: 'No such dead letter.',
            409: 'It is closed, or its effect is applied; the problem names the outcome.',
          }),
        },
      },
    },
    async (request) => {
      const id = deadLetterIdOf(request.params)
      return toDeadLetter(await services.discardDeadLetter(request.principal, id, { reason: request.body.reason }))
    },
  )
}
