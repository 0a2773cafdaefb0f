import { z } from 'zod'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { textField } from '../fields.ts'
import { MAX_ITEM_KEY_BYTES, MAX_SCOPE_ITEM_KEYS } from '../limits.ts'
import { PreflightResource, toPreflight } from '../resources/preflight.ts'
import { OperationParams, operationIdOf } from './operations.ts'

/** `applied`, `skipped` and `uncertain` are no states to replay: a scope that names them is a mistake. */
const REPLAYABLE_STATES = ['failed', 'unprocessed'] as const

const PreflightBody = z
  .strictObject({
    scope: z
      .strictObject({
        states: z.array(z.enum(REPLAYABLE_STATES)).nullish(),
        failure_classes: z.array(z.enum(FAILURE_CLASSES)).nullish(),
        item_keys: z.array(textField(MAX_ITEM_KEY_BYTES)).max(MAX_SCOPE_ITEM_KEYS).nullish(),
      })
      .nullish()
      .describe('Default: failed items of the classes that may be retried, and unprocessed ones.'),
  })
  .meta({ id: 'PreflightReplay' })

export const addReplayRoutes = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/operations/:id/replay-preflight',
    {
      config: { access: 'write', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: ['Replay'],
        operationId: 'preflightReplay',
        summary: 'Ask what a replay would touch, and what forbids it',
        description: 'The answer is recorded. It changes nothing else.',
        params: OperationParams,
        body: PreflightBody,
        response: {
          200: PreflightResource,
          ...refusals({ 400: 'A scope that cannot be.', 404: 'No such operation.' }),
        },
      },
    },
    async (request) => {
      const id = operationIdOf(request.params)
      const scope = request.body.scope ?? null
      const preflight = await services.preflightReplay(request.principal, id, {
        scope: scope && {
          states: scope.states ?? null,
          failureClasses: scope.failure_classes ?? null,
          itemKeys: scope.item_keys ?? null,
        },
      })
      return toPreflight(preflight)
    },
  )
}
