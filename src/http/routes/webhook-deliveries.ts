import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { pageFields, pageOf } from '../fields.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { toWebhookDelivery, WebhookDeliveryResource } from '../resources/webhook-delivery.ts'
import { OperationParams, operationIdOf, operationNotFound } from './operations.ts'

const TAGS = ['Webhooks']
const DeliveryParams = z.object({ id: z.string().describe('The id of a webhook delivery.') })
const DeliveryPosition = z.object({ eventVersion: z.int().min(0) })

const deliveryNotFound = (id: string): AppError =>
  new AppError('webhook-delivery-not-found', `There is no webhook delivery ${id}`)

const deliveryIdOf = (params: { id: string }): string => {
  const id = parseId('wh', params.id)
  if (id === null) throw deliveryNotFound(params.id)
  return id
}

export const addWebhookDeliveryRoutes = (app: App, deps: RouteDeps): void => {
  addList(app, deps)
  addGet(app, deps)
  addRedeliver(app, deps)
}

const addList = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations/:id/webhook-deliveries',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listWebhookDeliveries',
        summary: 'The webhooks of an operation, each with its log',
        description: 'In the order of the events. They are kept for 30 days.',
        params: OperationParams,
        querystring: z.strictObject(pageFields),
        response: { 200: pageOf(WebhookDeliveryResource), ...refusals({ 404: 'No such operation.' }) },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const list = { name: 'webhook-deliveries', filters: id, position: DeliveryPosition }
      const page = await services.listWebhookDeliveries(request.principal, id, pageRequestOf(request.query, list))
      if (page === null) throw operationNotFound(request.params.id)
      return answerPage(request, reply, page, list, toWebhookDelivery)
    },
  )
}

const addGet = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/webhook-deliveries/:id',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getWebhookDelivery',
        summary: 'Read a webhook delivery',
        params: DeliveryParams,
        response: { 200: WebhookDeliveryResource, ...refusals({ 404: 'No such webhook delivery.' }) },
      },
    },
    async (request) => {
      const found = await services.getWebhookDelivery(request.principal, deliveryIdOf(request.params))
      if (found === null) throw deliveryNotFound(request.params.id)
      return toWebhookDelivery(found)
    },
  )
}

const RedeliverBody = z.strictObject({}).meta({ id: 'RedeliverWebhook' })

const addRedeliver = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/webhook-deliveries/:id/redeliver',
    {
      config: { access: 'reconcile', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: TAGS,
        operationId: 'redeliverWebhook',
        summary: 'Send a webhook again',
        description:
          'From any state, also `delivered` and `disabled`: with the same id and the same bytes, now, and with all its tries before it again.',
        params: DeliveryParams,
        body: RedeliverBody,
        response: {
          202: WebhookDeliveryResource,
          ...refusals({ 404: 'No such webhook delivery.', 409: 'It is being sent just now.' }),
        },
      },
    },
    async (request, reply) => {
      const delivery = await services.redeliverWebhook(request.principal, deliveryIdOf(request.params))
      return reply.code(202).send(toWebhookDelivery(delivery))
    },
  )
}
