import { z } from 'zod'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { ITEM_STATES } from '../../domain/ledger.ts'
import type { ItemFilters } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { EVENT_STREAM, isAllTold, openEventStream } from '../event-stream.ts'
import { CSV, exported, NDJSON, sendStream, toCsvStream, toNdjsonStream } from '../exports.ts'
import { filterField, listFilterField, pageFields, pageOf } from '../fields.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import {
  CheckpointResource,
  EventResource,
  ItemResource,
  LedgerEntryResource,
  toCheckpoint,
  toEvent,
  toItem,
  toLedgerEntry,
} from '../resources/outcomes.ts'
import { OperationParams, operationIdOf, operationNotFound } from './operations.ts'

const TAGS = ['Outcomes']
/** What PostgreSQL's integer holds: a forged position must not fail inside a statement. */
const ordinal = z.int32().min(0)
const sequence = z.int().min(0)
const EXPORTS_NOTE =
  'With `Accept: application/x-ndjson` or `text/csv` it streams all rows, during the run and after; `limit` and `cursor` then do not count.'

export const addOutcomeRoutes = (app: App, deps: RouteDeps): void => {
  addItems(app, deps)
  addLedger(app, deps)
  addCheckpoints(app, deps)
  addEvents(app, deps)
}

const ItemQuery = z.strictObject({
  state: listFilterField([...ITEM_STATES, 'unprocessed']).optional(),
  failure_class: listFilterField(FAILURE_CLASSES).optional(),
  key: filterField.optional(),
  ...pageFields,
})

const addItems = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations/:id/items',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE, NDJSON, CSV] },
      schema: {
        tags: TAGS,
        operationId: 'listItems',
        summary: 'The items with their current state',
        description: EXPORTS_NOTE,
        params: OperationParams,
        querystring: ItemQuery,
        response: {
          200: exported(pageOf(ItemResource), 'The items.'),
          ...refusals({ 404: 'No such operation.', 410: 'Its items were deleted, as their time was over.' }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const { query, principal } = request
      const filters: ItemFilters = {
        state: query.state ?? [],
        failureClass: query.failure_class ?? [],
        key: query.key ?? null,
      }
      if (request.answerType !== JSON_TYPE) {
        const pages = await services.streamItems(principal, id, filters)
        if (pages === null) throw operationNotFound(request.params.id)
        const columns = Object.keys(ItemResource.shape)
        const stream = request.answerType === CSV ? toCsvStream(pages, columns, toItem) : toNdjsonStream(pages, toItem)
        return sendStream(request, reply, request.answerType, stream)
      }
      const list = { name: 'items', filters: [id, filters], position: z.object({ ord: ordinal }) }
      const page = await services.listItems(principal, id, filters, pageRequestOf(query, list))
      if (page === null) throw operationNotFound(request.params.id)
      return answerPage(request, reply, page, list, toItem)
    },
  )
}

const addLedger = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations/:id/ledger',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE, NDJSON, CSV] },
      schema: {
        tags: TAGS,
        operationId: 'listLedger',
        summary: 'The append-only ledger',
        description: EXPORTS_NOTE,
        params: OperationParams,
        querystring: z.strictObject(pageFields),
        response: {
          200: exported(pageOf(LedgerEntryResource), 'The entries.'),
          ...refusals({ 404: 'No such operation.', 410: 'Its ledger was deleted, as its time was over.' }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const { query, principal } = request
      if (request.answerType !== JSON_TYPE) {
        const pages = await services.streamLedger(principal, id)
        if (pages === null) throw operationNotFound(request.params.id)
        const columns = Object.keys(LedgerEntryResource.shape)
        const stream =
          request.answerType === CSV ? toCsvStream(pages, columns, toLedgerEntry) : toNdjsonStream(pages, toLedgerEntry)
        return sendStream(request, reply, request.answerType, stream)
      }
      const list = { name: 'ledger', filters: id, position: z.object({ ord: ordinal, seq: sequence }) }
      const page = await services.listLedger(principal, id, pageRequestOf(query, list))
      if (page === null) throw operationNotFound(request.params.id)
      return answerPage(request, reply, page, list, toLedgerEntry)
    },
  )
}

const addCheckpoints = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/operations/:id/checkpoints',
    {
      config: { access: 'ledger:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listCheckpoints',
        summary: 'Where each shard stands',
        params: OperationParams,
        querystring: z.strictObject(pageFields),
        response: { 200: pageOf(CheckpointResource), ...refusals({ 404: 'No such operation.' }) },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const list = { name: 'checkpoints', filters: id, position: z.object({ shard: ordinal }) }
      const page = await services.listCheckpoints(request.principal, id, pageRequestOf(request.query, list))
      if (page === null) throw operationNotFound(request.params.id)
      return answerPage(request, reply, page, list, toCheckpoint)
    },
  )
}

const addEvents = (app: App, { services, waiters }: RouteDeps): void => {
  app.get(
    '/operations/:id/events',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE, EVENT_STREAM] },
      schema: {
        tags: TAGS,
        operationId: 'listEvents',
        summary: 'What happened to the operation',
        description:
          'With `Accept: text/event-stream` a stream of Server-Sent Events: `Last-Event-ID` resumes, and it ends after the final state. Between the events, `progress` frames (without an id, at most one a second) tell `status`, `version`, `counts`, `count_ranges`, `progress` and `stuck_signals`. It may end earlier, to be resumed; 204 says that everything was told.',
        params: OperationParams,
        headers: z.object({ 'last-event-id': z.string().optional() }),
        querystring: z.strictObject(pageFields),
        response: {
          200: {
            description: 'The events.',
            content: {
              [JSON_TYPE]: { schema: pageOf(EventResource) },
              [EVENT_STREAM]: { schema: z.string().describe('Each `data` is an Event, or the progress.') },
            },
          },
          204: z.null().describe('To a stream that is resumed: the operation is final, and all its events were told.'),
          ...refusals({ 404: 'No such operation.' }),
        },
      },
    },
    async (request, reply) => {
      const operationId = operationIdOf(request.params)
      const { principal, query } = request
      if (request.answerType === EVENT_STREAM) {
        const operation = await services.getOperation(principal, operationId)
        if (operation === null) throw operationNotFound(request.params.id)
        const lastId = request.headers['last-event-id'] ?? ''
        const afterVersion = /^\d{1,15}$/.test(lastId) ? Number(lastId) : null
        const wanted = { principal, operationId, afterVersion, services }
        if (await isAllTold(wanted, operation)) return reply.code(204).send(null)
        const place = waiters.enter('stream')
        const stream = openEventStream({ ...wanted, signal: place.signal })
        stream.once('close', () => waiters.leave(place))
        // The stream itself notices a client that is gone only when it next has something to say.
        reply.raw.once('close', () => waiters.leave(place))
        // Proxies must neither collect nor recompress a stream, else the first event arrives with the last.
        reply.header('x-accel-buffering', 'no').header('cache-control', 'no-store, no-transform')
        return sendStream(request, reply, EVENT_STREAM, stream)
      }
      const list = { name: 'events', filters: operationId, position: z.object({ version: sequence }) }
      const page = await services.listEvents(principal, operationId, pageRequestOf(query, list))
      if (page === null) throw operationNotFound(request.params.id)
      return answerPage(request, reply, page, list, toEvent)
    },
  )
}
