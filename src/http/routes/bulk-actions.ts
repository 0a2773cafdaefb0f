import { z } from 'zod'
import {
  BULK_ACTIONS,
  BULK_RATE_DEFAULT,
  BULK_RATE_MAX,
  BULK_STATUSES,
  BULK_TARGET_STATES,
  BULK_TARGETS_MAX,
  DRY_RUN_HOURS,
} from '../../domain/bulk-action.ts'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import { OPERATION_STATUSES } from '../../domain/operation.ts'
import type { BulkActionRequest } from '../../services/requests.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { dbTimeField, filterField, listFilterField, pageFields, pageOf, textField, timeField } from '../fields.ts'
import { idempotencyKeyOf } from '../idempotency-keys.ts'
import { MAX_FILTER_VALUES, MAX_LABEL_KEY_BYTES, MAX_LABELS, MAX_REASON_BYTES } from '../limits.ts'
import { answerPage, pageRequestOf } from '../pages.ts'
import {
  BulkActionResource,
  BulkTargetResource,
  bulkActionPath,
  toBulkAction,
  toBulkTarget,
} from '../resources/bulk-action.ts'
import { ReasonBody } from './operations.ts'
import { ScopeBody } from './replay.ts'
import { LabelValue } from './submit-body.ts'

const TAGS = ['Bulk actions']
const BulkActionParams = z.object({ id: z.string().describe('The id of a bulk action.') })

const bulkActionNotFound = (id: string): AppError =>
  new AppError('bulk-action-not-found', `There is no bulk action ${id}`)

const bulkActionIdOf = (params: { id: string }): string => {
  const id = parseId('bulk', params.id)
  if (id === null) throw bulkActionNotFound(params.id)
  return id
}

export const addBulkActionRoutes = (app: App, deps: RouteDeps): void => {
  addCreate(app, deps)
  addList(app, deps)
  addGet(app, deps)
  addTargets(app, deps)
  addStart(app, deps)
  addAbort(app, deps)
}

const FilterBody = z
  .strictObject({
    status: z.array(z.enum(OPERATION_STATUSES)).max(MAX_FILTER_VALUES).nullish(),
    type: filterField.nullish(),
    requested_by: filterField.nullish(),
    labels: z
      .record(textField(MAX_LABEL_KEY_BYTES), LabelValue)
      .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `must be at most ${MAX_LABELS} labels`)
      .nullish(),
    created_after: timeField.nullish(),
    created_before: timeField.nullish(),
    replay_of: z
      .string()
      .refine((id) => parseId('op', id) !== null, 'is not the id of an operation')
      .nullish()
      .describe('The id of an operation.'),
  })
  .describe('The filters of `GET /operations`. All that are given have to hold, and they must leave something out.')

const BulkActionBody = z
  .strictObject({
    action: z.enum(BULK_ACTIONS),
    filter: FilterBody,
    reason: textField(MAX_REASON_BYTES).describe('Kept with each operation that is cancelled or made.'),
    dry_run: z.boolean().optional().describe('Default true: freeze and count the targets, and do nothing.'),
    scope: ScopeBody.describe('Of a replay: which items of each operation, as in its preflight.'),
    rate_per_second: z
      .int()
      .min(1)
      .max(BULK_RATE_MAX)
      .optional()
      .describe(`Targets a second, over all workers; default ${BULK_RATE_DEFAULT}.`),
  })
  .meta({ id: 'CreateBulkAction' })

const toBulkActionRequest = (
  body: z.infer<typeof BulkActionBody>,
  sent: Pick<BulkActionRequest, 'idempotencyKey' | 'body'>,
): BulkActionRequest => {
  const { filter, scope } = body
  return {
    action: body.action,
    filter: {
      status: filter.status ?? [],
      type: filter.type ?? null,
      requestedBy: filter.requested_by ?? null,
      labels: filter.labels ?? {},
      createdAfter: filter.created_after ?? null,
      createdBefore: filter.created_before ?? null,
      replayOf: filter.replay_of ? parseId('op', filter.replay_of) : null,
    },
    scope: scope
      ? {
          states: scope.states ?? null,
          failureClasses: scope.failure_classes ?? null,
          itemKeys: scope.item_keys ?? null,
        }
      : null,
    reason: body.reason,
    dryRun: body.dry_run ?? true,
    ratePerSecond: body.rate_per_second ?? BULK_RATE_DEFAULT,
    ...sent,
  }
}

const addCreate = (app: App, { services, config }: RouteDeps): void => {
  app.post(
    '/bulk-actions',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'createBulkAction',
        summary: 'Cancel or replay many operations, chosen by a filter',
        description: `The operations that match now are the targets, at most ${BULK_TARGETS_MAX}; the set never grows. A dry run, the default, can be started within ${DRY_RUN_HOURS} hours. Each target is worked on as by its own route, and no replay is forced. With an \`Idempotency-Key\` a repeat of the same body answers with the same bulk action.`,
        headers: z.object({ 'idempotency-key': z.string().optional() }),
        body: BulkActionBody,
        response: {
          202: BulkActionResource,
          ...refusals({
            400: 'Malformed, or against the schema of the route.',
            422: 'The filter leaves nothing out, or matches too many; nothing was stored.',
          }),
        },
      },
    },
    async (request, reply) => {
      const { action, replayed } = await services.createBulkAction(
        request.principal,
        toBulkActionRequest(request.body, {
          body: request.rawJson,
          idempotencyKey: idempotencyKeyOf(request.headers['idempotency-key']),
        }),
      )
      reply.code(202).header('location', `${config.publicUrl ?? ''}${bulkActionPath(action.id)}`)
      if (replayed) reply.header('idempotent-replayed', 'true')
      return toBulkAction(action)
    },
  )
}

const BulkActionQuery = z.strictObject({
  action: listFilterField(BULK_ACTIONS).optional(),
  status: listFilterField(BULK_STATUSES).optional(),
  ...pageFields,
})
const BulkActionPosition = z.object({ createdAt: dbTimeField, id: z.uuid() })

const addList = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/bulk-actions',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listBulkActions',
        summary: 'List bulk actions, newest first',
        querystring: BulkActionQuery,
        response: {
          200: pageOf(BulkActionResource),
          ...refusals({ 400: 'An unknown filter, or a cursor of another list.' }),
        },
      },
    },
    async (request, reply) => {
      const { query } = request
      const filters = { action: query.action ?? [], status: query.status ?? [] }
      const list = { name: 'bulk-actions', filters, position: BulkActionPosition }
      const page = await services.listBulkActions(request.principal, filters, pageRequestOf(query, list))
      return answerPage(request, reply, page, list, toBulkAction)
    },
  )
}

const addGet = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/bulk-actions/:id',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'getBulkAction',
        summary: 'Read a bulk action',
        params: BulkActionParams,
        response: { 200: BulkActionResource, ...refusals({ 404: 'No such bulk action.' }) },
      },
    },
    async (request) => {
      const found = await services.getBulkAction(request.principal, bulkActionIdOf(request.params))
      if (found === null) throw bulkActionNotFound(request.params.id)
      return toBulkAction(found)
    },
  )
}

const BulkTargetQuery = z.strictObject({ state: listFilterField(BULK_TARGET_STATES).optional(), ...pageFields })
const BulkTargetPosition = z.object({ ord: z.int().min(0) })

const addTargets = (app: App, { services }: RouteDeps): void => {
  app.get(
    '/bulk-actions/:id/targets',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: TAGS,
        operationId: 'listBulkActionTargets',
        summary: 'The operations of a bulk action, and what became of each',
        params: BulkActionParams,
        querystring: BulkTargetQuery,
        response: { 200: pageOf(BulkTargetResource), ...refusals({ 404: 'No such bulk action.' }) },
      },
    },
    async (request, reply) => {
      const id = bulkActionIdOf(request.params)
      const { query } = request
      const state = query.state ?? []
      const list = { name: 'bulk-action-targets', filters: { id, state }, position: BulkTargetPosition }
      const page = await services.listBulkTargets(request.principal, id, state, pageRequestOf(query, list))
      if (page === null) throw bulkActionNotFound(request.params.id)
      return answerPage(request, reply, page, list, toBulkTarget)
    },
  )
}

const addStart = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/bulk-actions/:id/start',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: TAGS,
        operationId: 'startBulkAction',
        summary: 'Run exactly what a dry run has frozen',
        params: BulkActionParams,
        body: ReasonBody,
        response: {
          202: BulkActionResource,
          ...refusals({ 404: 'No such bulk action.', 409: 'It is no dry run, or has expired.' }),
        },
      },
    },
    async (request, reply) => {
      const id = bulkActionIdOf(request.params)
      const started = await services.startBulkAction(request.principal, id, { reason: request.body.reason ?? null })
      reply.code(202)
      return toBulkAction(started)
    },
  )
}

const AbortBody = z.strictObject({ reason: textField(MAX_REASON_BYTES) }).meta({ id: 'AbortBulkAction' })

const addAbort = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/bulk-actions/:id/abort',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE], refusal: 'last' },
      schema: {
        tags: TAGS,
        operationId: 'abortBulkAction',
        summary: 'Begin no further target',
        description:
          'What is done stays done; what nobody has begun is `skipped`; a target that is in hand still gets its outcome. A repeat answers the same.',
        params: BulkActionParams,
        body: AbortBody,
        response: {
          200: BulkActionResource,
          ...refusals({ 400: 'No reason.', 404: 'No such bulk action.', 409: 'Every target has its outcome.' }),
        },
      },
    },
    async (request) => {
      const id = bulkActionIdOf(request.params)
      return toBulkAction(await services.abortBulkAction(request.principal, id, { reason: request.body.reason }))
    },
  )
}
