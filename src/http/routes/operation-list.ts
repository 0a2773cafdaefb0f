import { z } from 'zod'
import { parseId } from '../../domain/ids.ts'
import { OPERATION_STATUSES } from '../../domain/operation.ts'
import { requireScope } from '../../services/principal.ts'
import type { OperationSearch } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, timeField } from '../fields.ts'
import { MAX_LABEL_VALUE_BYTES, MAX_LABELS } from '../limits.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import { OperationResource, toOperation } from '../resources/operation.ts'
import { byteLength } from '../text.ts'
import { OPERATION_TAGS } from './operations.ts'

const LABEL_PREFIX = 'label.'

const ListQuery = z
  .object({
    status: listFilterField(OPERATION_STATUSES).optional(),
    type: filterField.optional(),
    requested_by: filterField.optional(),
    created_after: timeField.optional(),
    created_before: timeField.optional(),
    replay_of: filterField.optional().describe('The id of an operation.'),
    item_key: filterField.optional().describe('Operations that have an item with this key; takes ledger:read.'),
    effect_key: filterField
      .optional()
      .describe('The operation that was the last to send this effect; takes ledger:read.'),
    ...pageFields,
  })
  .catchall(z.string())
  .superRefine((query, context) => {
    const others = Object.keys(query).filter((name) => !(name in ListQuery.shape))
    const labels = others.filter((name) => name.startsWith(LABEL_PREFIX) && name !== LABEL_PREFIX)
    for (const name of others)
      if (!labels.includes(name))
        context.addIssue({ code: 'custom', message: 'is not a parameter of this route', path: [name] })
      else if (byteLength(String(query[name])) > MAX_LABEL_VALUE_BYTES)
        context.addIssue({ code: 'custom', message: `must be at most ${MAX_LABEL_VALUE_BYTES} bytes`, path: [name] })
    if (labels.length > MAX_LABELS)
      context.addIssue({ code: 'custom', message: `at most ${MAX_LABELS} labels can be asked for`, path: [] })
  })

const toOperationFilters = (query: z.infer<typeof ListQuery>): OperationSearch => ({
  status: query.status ?? [],
  type: query.type ?? null,
  requestedBy: query.requested_by ?? null,
  labels: Object.fromEntries(
    Object.entries(query)
      .filter(([name]) => name.startsWith(LABEL_PREFIX))
      .map(([name, value]) => [name.slice(LABEL_PREFIX.length), String(value)])
      .sort(),
  ),
  createdAfter: query.created_after ?? null,
  createdBefore: query.created_before ?? null,
  replayOf: query.replay_of === undefined ? null : parseId('op', query.replay_of),
  itemKey: query.item_key ?? null,
  effectKey: query.effect_key ?? null,
})

const OperationPosition = z.object({ createdAt: dbTimeField, id: z.uuid() })

export const addOperationListRoute = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'listOperations',
        summary: 'List operations, newest first',
        description: `Besides the parameters below, \`label.NAME=VALUE\` selects by labels (at most ${MAX_LABELS}).`,
        querystring: ListQuery,
        response: {
          200: pageOf(OperationResource),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const filters = toOperationFilters(request.query)
      // who has which item is what the ledger tells
      if (filters.itemKey !== null || filters.effectKey !== null) requireScope(request.principal, 'ledger:read')
      const list = { name: 'operations', filters, position: OperationPosition }
      const page = pageRequestOf(request.query, list)
      // A replay of something that cannot exist has no rows; asking storage without the filter would list everything.
      if (request.query.replay_of !== undefined && filters.replayOf === null) return { items: [] }
      const found = await services.listOperations(request.principal, filters, page)
      return answerPage(request, reply, found, list, (operation) => toOperation(operation, request.principal))
    },
  )
}
