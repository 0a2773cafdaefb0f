import type { FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { AppError } from '../../domain/errors.ts'
import { parseId } from '../../domain/ids.ts'
import { isFinal, isSettled } from '../../domain/operation.ts'
import type { OperationView } from '../../services/views.ts'
import { type App, JSON_TYPE, type RouteDeps, refusals } from '../app.ts'
import { etagOf, matchVersionOf, noneMatchHits } from '../conditions.ts'
import { textField } from '../fields.ts'
import { idempotencyKeyOf } from '../idempotency-keys.ts'
import { MAX_REASON_BYTES } from '../limits.ts'
import { waitSecondsOf } from '../preferences.ts'
import { OperationResource, operationPath, toOperation } from '../resources/operation.ts'
import { retryAfterSeconds } from '../retry-after.ts'
import { waitForOperation } from '../waiting.ts'
import { SubmitBody, toSubmitRequest } from './submit-body.ts'

export const OPERATION_TAGS = ['Operations']

export const OperationParams = z.object({ id: z.string().describe('The id of an operation.') })

/** Ids are opaque, so one that cannot be ours is simply not there. */
export const operationIdOf = (params: { id: string }): string => {
  const id = parseId('op', params.id)
  if (id === null) throw operationNotFound(params.id)
  return id
}

export const operationNotFound = (id: string): AppError =>
  new AppError('operation-not-found', `There is no operation ${id}`)

/** What polling needs besides the resource. */
const sayWhenToPoll = (reply: FastifyReply, operation: OperationView): void => {
  reply.header('etag', etagOf(operation.version))
  if (!isFinal(operation.status)) reply.header('retry-after', String(retryAfterSeconds(operation)))
}

/** The resource with the headers that polling needs. */
export const answerOperation = (
  request: FastifyRequest,
  reply: FastifyReply,
  operation: OperationView,
): OperationResource => {
  sayWhenToPoll(reply, operation)
  return toOperation(operation, request.principal)
}

const sendNotModified = (reply: FastifyReply): FastifyReply => reply.code(304).send()

export const addOperationRoutes = (app: App, deps: RouteDeps): void => {
  addSubmit(app, deps)
  addGet(app, deps)
  addCancel(app, deps)
  addPauseAndResume(app, deps)
}

const addSubmit = (app: App, { services, config }: RouteDeps): void => {
  app.post(
    '/operations',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE] },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'submitOperation',
        summary: 'Submit an operation',
        description:
          'A 202 means that the operation is stored and survives any crash. With an `Idempotency-Key` (at most 255 bytes of visible ASCII, quoted or bare) a repeat of the same body answers with the same operation and `Idempotent-Replayed: true`.',
        headers: z.object({ 'idempotency-key': z.string().optional(), traceparent: z.string().optional() }),
        body: SubmitBody,
        response: {
          202: OperationResource,
          ...refusals({
            400: 'Malformed, or against the schema of the route.',
            422: 'Refused by the type or by facts; nothing was stored.',
          }),
        },
      },
    },
    async (request, reply) => {
      const submission = toSubmitRequest(request.body, {
        rawBody: request.rawJson,
        idempotencyKey: idempotencyKeyOf(request.headers['idempotency-key']),
        traceparent: request.traceparent,
      })
      const { operation, replayed } = await services.submitOperation(request.principal, submission)
      const location = `${config.publicUrl ?? ''}${operationPath(operation.id)}`
      reply.code(202).header('location', location).header('operation-location', location)
      if (replayed) reply.header('idempotent-replayed', 'true')
      // A client that waits for a pause polls even what is final already: the first answer always says when.
      reply.header('retry-after', String(retryAfterSeconds(operation)))
      return answerOperation(request, reply, operation)
    },
  )
}

const addGet = (app: App, deps: RouteDeps): void => {
  app.get(
    '/operations/:id',
    {
      config: { access: 'operations:read', produces: [JSON_TYPE] },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'getOperation',
        summary: 'Read an operation, or wait for it',
        description:
          '`Prefer: wait=N` (at most 60) answers as soon as the version differs from `If-None-Match`, or, without it, as soon as the operation is settled; at the latest after N seconds. `Retry-After` says when to ask again, while the operation is not final.',
        params: OperationParams,
        headers: z.object({ prefer: z.string().optional(), 'if-none-match': z.string().optional() }),
        response: {
          200: OperationResource,
          304: z.null().describe('Unchanged.'),
          ...refusals({ 404: 'No such operation.' }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const condition = request.headers['if-none-match']
      const seconds = waitSecondsOf(request.headers.prefer)
      let operation = await deps.services.getOperation(request.principal, id)
      if (operation === null) throw operationNotFound(request.params.id)
      const isSeen = noneMatchHits(condition, operation.version)
      const mustWait = condition === undefined ? !isSettled(operation.status) : isSeen
      if (seconds !== null && !deps.waiters.isFull) {
        reply.header('preference-applied', `wait=${seconds}`)
        if (mustWait && seconds > 0) {
          const seenVersion = condition === undefined ? null : operation.version
          operation = (await waitForOperation(request, id, { seconds, seenVersion }, deps)) ?? operation
        }
      }
      if (!noneMatchHits(condition, operation.version)) return answerOperation(request, reply, operation)
      sayWhenToPoll(reply, operation)
      return sendNotModified(reply)
    },
  )
}

export const ReasonBody = z.strictObject({ reason: textField(MAX_REASON_BYTES).nullish() })

export const ConditionHeaders = z.object({ 'if-match': z.string().optional() })

const addCancel = (app: App, deps: RouteDeps): void => {
  app.post(
    '/operations/:id/cancel',
    {
      config: { access: 'operations:write', produces: [JSON_TYPE], bodyOptional: true, refusal: 'last' },
      schema: {
        tags: OPERATION_TAGS,
        operationId: 'cancelOperation',
        summary: 'Cancel an operation',
        description:
          'Stores the intent; the operation says `cancelled` only when it has stopped at a safe boundary. A repeat answers with the same receipt. `Prefer: wait=N` waits for the settled state.',
        params: OperationParams,
        headers: ConditionHeaders.extend({ prefer: z.string().optional() }),
        body: ReasonBody,
        response: {
          200: OperationResource,
          202: OperationResource,
          ...refusals({
            404: 'No such operation.',
            409: 'It ended before, in a state that the problem names.',
            412: 'It changed since the version in If-Match.',
          }),
        },
      },
    },
    async (request, reply) => {
      const id = operationIdOf(request.params)
      const { status, operation } = await deps.services.cancelOperation(request.principal, id, {
        reason: request.body.reason ?? null,
        ifMatchVersion: matchVersionOf(request.headers['if-match']),
      })
      const seconds = waitSecondsOf(request.headers.prefer)
      let settled = operation
      if (seconds !== null && !deps.waiters.isFull) {
        reply.header('preference-applied', `wait=${seconds}`)
        if (seconds > 0 && !isSettled(operation.status))
          settled = (await waitForOperation(request, id, { seconds, seenVersion: null }, deps)) ?? operation
      }
      reply.code(status)
      return answerOperation(request, reply, settled)
    },
  )
}

const addPauseAndResume = (app: App, { services }: RouteDeps): void => {
  for (const verb of ['pause', 'resume'] as const) {
    const isPause = verb === 'pause'
    app.post(
      `/operations/:id/${verb}`,
      {
        config: {
          access: 'operations:write',
          produces: [JSON_TYPE],
          bodyOptional: true,
          refusal: isPause ? 'last' : 'first',
        },
        schema: {
          tags: OPERATION_TAGS,
          operationId: `${verb}Operation`,
          summary: isPause ? 'Pause an operation' : 'Resume a paused operation',
          description: isPause
            ? 'It stops at a safe boundary and keeps its place. A pause survives crashes.'
            : 'It goes on at its checkpoint.',
          params: OperationParams,
          headers: ConditionHeaders,
          body: ReasonBody,
          response: {
            200: OperationResource,
            202: OperationResource,
            ...refusals({
              404: 'No such operation.',
              409: `Its state does not allow a ${verb}.`,
              412: 'It changed since the version in If-Match.',
            }),
          },
        },
      },
      async (request, reply) => {
        const id = operationIdOf(request.params)
        const change = isPause ? services.pauseOperation : services.resumeOperation
        const { status, operation } = await change(request.principal, id, {
          reason: request.body.reason ?? null,
          ifMatchVersion: matchVersionOf(request.headers['if-match']),
        })
        reply.code(status)
        return answerOperation(request, reply, operation)
      },
    )
  }
}
