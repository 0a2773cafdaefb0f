import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, pageFields, pageOf } from '../fields.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { HistoryEventResource, toHistoryEvent } from '../resources/item-history.ts'
import { findTextFault } from '../text.ts'
import { OperationParams, operationIdOf } from './operations.ts'

const HistoryParams = OperationParams.extend({ key: z.string().describe('The key of an item, percent-encoded.') })

const HistoryPosition = z.object({
  at: dbTimeField,
  rank: z.int32().min(0),
  operationId: z.uuid(),
  position: z.int().min(0),
})

export const addItemHistoryRoute = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations/:id/items/:key/history',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: ['Outcomes'],
        operationId: 'listItemHistory',
        summary: 'What happened to an item, from the first attempt to the last replay',
        description: 'Over the whole replay chain that the operation belongs to, oldest first.',
        params: HistoryParams,
        querystring: z.strictObject(pageFields),
        response: {
          200: pageOf(HistoryEventResource),
          ...refusals({
            404: 'No such operation, or no such item.',
            410: 'What happened to the item was deleted, as its time was over.',
          }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const { key } = request.params
      // a text that cannot be stored is no item's key
      if (findTextFault(key) !== null) throw new AppError('item-not-found', 'The operation has no item with this key')
      const list = { name: 'item-history', filters: [id, key], position: HistoryPosition }
      const page = pageRequestOf(request.query, list)
      return answerPage(
        request,
        reply,
        await services.listItemHistory(request.principal, id, key, page),
        list,
        toHistoryEvent,
      )
    },
  )
}
