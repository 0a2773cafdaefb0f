import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { parseId } from '../../domain/ids.ts'
import { REPLAYABLE_STATES, SCOPE_ITEM_KEYS_MAX } from '../../domain/replay.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { matchVersionOf } from '../conditions.ts'
import { textField } from '../fields.ts'
import {
  MAX_FILTER_BYTES,
  MAX_FILTER_VALUES,
  MAX_FORCED_CODES,
  MAX_ITEM_KEY_BYTES,
  MAX_REASON_BYTES,
} from '../limits.ts'
import { OperationResource, operationPath } from '../resources/operation.ts'
import { PreflightResource, toPreflight } from '../resources/preflight.ts'
import { answerOperation, ConditionHeaders, OperationParams, operationIdOf } from './operations.ts'

export const ScopeBody = z
  .strictObject({
    states: z.array(z.enum(REPLAYABLE_STATES)).max(MAX_FILTER_VALUES).nullish(),
    failure_classes: z.array(z.enum(FAILURE_CLASSES)).max(MAX_FILTER_VALUES).nullish(),
    item_keys: z.array(textField(MAX_ITEM_KEY_BYTES)).max(SCOPE_ITEM_KEYS_MAX).nullish(),
  })
  .nullish()
  .describe('Default: failed items of the classes that may be retried, and unprocessed ones.')

const PreflightBody = z.strictObject({ scope: ScopeBody }).meta({ id: 'PreflightReplay' })

const ReplayBody = z
  .strictObject({
    preflight_id: z.string().max(MAX_FILTER_BYTES),
    reason: textField(MAX_REASON_BYTES).describe('Why it may be done again; kept with the new operation.'),
    force: z
      .array(textField(MAX_REASON_BYTES))
      .max(MAX_FORCED_CODES)
      .nullish()
      .describe(
        'Codes of `blocked_by` to override: `bug-suspected` and tripped rates. Nothing uncertain can be forced.',
      ),
  })
  .meta({ id: 'Replay' })

const ApprovalBody = z
  .strictObject({
    decision: z.enum(['approve', 'reject']),
    note: textField(MAX_REASON_BYTES).nullish().describe('Required to approve what nothing could undo.'),
  })
  .meta({ id: 'Approval' })

export const addReplayRoutes = (app: App, deps: RouteDeps): void => {
  addPreflight(app, deps)
  addReplay(app, deps)
  addApproval(app, deps)
}

const addReplay = (app: App, { services, config }: RouteDeps): void => {
  app.post(
    '/operations/:id/replay',
    {
      config: { access: 'replay', produces: [JSON_TYPE] },
      schema: {
        tags: ['Replay'],
        operationId: 'replayOperation',
        summary: 'Replay what a preflight named, as a new operation',
        description:
          'A preflight is used once: a repeat answers with the same new operation and `Idempotent-Replayed: true`. Effect keys carry over, so what was applied is never sent again.',
        params: OperationParams,
        headers: ConditionHeaders,
        body: ReplayBody,
        response: {
          202: OperationResource,
          ...refusals({
            400: 'No such preflight of this operation, or no reason.',
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
      const preflightId = parseId('pf', request.body.preflight_id)
      if (preflightId === null) {
        throw new AppError('invalid-request', 'There is no such preflight of this operation', {
          errors: [{ detail: 'is not the id of a preflight', pointer: '/preflight_id' }],
        })
      }
      const { operation, replayed } = await services.replayOperation(request.principal, id, {
        preflightId,
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

const addApproval = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/operations/:id/approval',
    {
      config: { access: 'approve', produces: [JSON_TYPE] },
      schema: {
        tags: ['Replay'],
        operationId: 'decideApproval',
        summary: 'Approve or reject an operation that waits for a second person',
        description:
          'Never by the requester, by whoever has uploaded items to it or has started it, or by whoever has started the bulk action that made it. A rejected operation ends `cancelled`, and nothing of it ever runs.',
        params: OperationParams,
        headers: ConditionHeaders,
        body: ApprovalBody,
        response: {
          200: OperationResource,
          ...refusals({
            403: 'The requester cannot decide, nor can whoever had a hand in it.',
            404: 'No such operation.',
            409: 'It does not wait for an approval.',
            412: 'It changed since the version in If-Match, or the facts of its preflight have.',
            422: 'A note is needed.',
          }),
        },
      },
    },
    async (request, reply) => {
      const operation = await services.decideApproval(request.principal, operationIdOf(request.params), {
        decision: request.body.decision,
        note: request.body.note ?? null,
        ifMatchVersion: matchVersionOf(request.headers['if-match']),
      })
      return answerOperation(request, reply, operation)
    },
  )
}

const addPreflight = (app: App, { services }: RouteDeps): void => {
  app.post(
    '/operations/:id/replay-preflight',
    {
      config: { access: 'replay', produces: [JSON_TYPE], bodyOptional: true },
      schema: {
        tags: ['Replay'],
        operationId: 'preflightReplay',
        summary: 'Ask what a replay would touch, and what forbids it',
        description: 'The answer is recorded. It changes nothing else.',
        params: OperationParams,
        body: PreflightBody,
        response: {
          200: PreflightResource,
          ...refusals({
            400: 'A scope that cannot be.',
            404: 'No such operation.',
            410: 'Its ledger was deleted, as its time was over.',
          }),
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
      return toPreflight(preflight, request.principal)
    },
  )
}
