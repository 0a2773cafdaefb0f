import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import { SCOPE_ITEM_KEYS_MAX } from '../../domain/replay.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { matchVersionOf } from '../conditions.ts'
import { textField } from '../fields.ts'
import { MAX_FILTER_BYTES, MAX_FORCED_CODES, MAX_ITEM_KEY_BYTES, MAX_REASON_BYTES } from '../limits.ts'
import { CompensationPreflightResource, toCompensationPreflight } from '../resources/compensation-preflight.ts'
import { OperationResource, operationPath } from '../resources/operation.ts'
import { answerOperation, ConditionHeaders, OperationParams, operationIdOf } from './operations.ts'

const PreflightBody = z
  .strictObject({
    scope: z
      .strictObject({ item_keys: z.array(textField(MAX_ITEM_KEY_BYTES)).max(SCOPE_ITEM_KEYS_MAX).nullish() })
      .nullish()
      .describe('Default: every item whose effect the operation applied.'),
  })
  .meta({ id: 'PreflightCompensation' })

const CompensationBody = z
  .strictObject({
    preflight_id: z
      .string()
      .max(MAX_FILTER_BYTES)
      .nullish()
      .describe(
        'Without one, the service takes and records it over everything applied, and refuses if anything blocks.',
      ),
    reason: textField(MAX_REASON_BYTES).describe('Why the effects are taken back; kept with the new operation.'),
    force: z
      .array(textField(MAX_REASON_BYTES))
      .max(MAX_FORCED_CODES)
      .nullish()
      .describe('Codes of `blocked_by` to override: tripped rates. Nothing uncertain can be forced.'),
  })
  .meta({ id: 'CompensateOperation' })

export const addCompensationRoutes = (app: App, deps: RouteDeps): void => {
  addPreflight(app, deps)
  addCompensation(app, deps)
}

const addPreflight = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/operations/:id/compensation-preflight',
    {
      config: { access: 'replay', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: ['Compensation'],
        operationId: 'preflightCompensation',
        summary: 'Ask what a compensation would take back, and what forbids it',
        description: 'The answer is recorded. It changes nothing else.',
        params: OperationParams,
        body: PreflightBody,
        response: {
          200: CompensationPreflightResource,
          ...refusals({
            400: 'A scope that cannot be.',
            404: 'No such operation.',
            410: 'Its ledger was deleted, as its time was over.',
          }),
        },
      },
    },
    async (request) => {
      const scope = request.body.scope ?? null
      const preflight = await services.preflightCompensation(request.principal, operationIdOf(request.params), {
        scope: scope && { itemKeys: scope.item_keys ?? null },
      })
      return toCompensationPreflight(preflight, request.principal)
    },
  )
}

const addCompensation = (app: App, { services, config }: RouteDeps): void => {
  app.post(
    '/operations/:id/compensations',
    {
      config: { access: 'replay', produces: [JSON_TYPE] },
      schema: {
        tags: ['Compensation'],
        operationId: 'compensateOperation',
        summary: 'Take applied effects back, as a new operation',
        description:
          'In reverse order, with effect keys and a ledger of its own. A preflight is used once: a repeat answers with the same new operation and `Idempotent-Replayed: true`. What cannot be told is uncertain, as in any operation.',
        params: OperationParams,
        headers: ConditionHeaders,
        body: CompensationBody,
        response: {
          202: OperationResource,
          ...refusals({
            400: 'No such preflight of a compensation of this operation, or no reason.',
            404: 'No such operation.',
            409: 'Blocked; `blocked_by` names what by.',
            410: 'Its ledger was deleted, as its time was over.',
            412: 'It changed since the version in If-Match; or the preflight has expired, or its facts have changed.',
          }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const { operation, replayed } = await services.compensateOperation(request.principal, id, {
        preflightId: preflightIdOf(request.body.preflight_id ?? null),
        reason: request.body.reason,
        force: request.body.force ?? [],
        ifMatchVersion: matchVersionOf(request.headers['if-match']),
      })
      const location = `${config.publicUrl ?? ''}${operationPath(operation.id)}`
      reply.code(202).header('location', location).header('operation-location', location)
      if (replayed) reply.header('idempotent-replayed', 'true')
      return answerOperation(request, reply, operation)
    },
  )
}

const preflightIdOf = (text: string | null): string | null => {
  const id = text === null ? null : parseId('pf', text)
  if (id !== null || text === null) return id
  throw new AppError('invalid-request', 'There is no such preflight of a compensation of this operation', {
    errors: [{ detail: 'is not the id of a preflight', pointer: '/preflight_id' }],
  })
}
