import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import { AppError } from '../domain/errors.ts'
import type { CallbackReceiver, Json } from '../domain/operation-type.ts'
import { findCallbackTargets, insertCallback, readCallback, type StoredCallback } from '../storage/callbacks.ts'
import type { ServiceContext } from './context.ts'
import { judgeCallback } from './judge-callback.ts'
import type { CallbackRequest } from './requests.ts'
import type { CallbackView } from './views.ts'

type ReceiveContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'types'>

/**
 * Takes a provider's signed event: verifies, keeps, judges, in this order. A repeat is answered as the first was; the same
 * id with another body changes nothing. No tenant and no key is asked for: the signature is the authentication.
 * Errors: operation-type-not-found, callback-not-configured, invalid-signature, malformed-json, event-id-reused,
 * callback-ambiguous.
 */
export const receiveCallback = async (context: ReceiveContext, request: CallbackRequest): Promise<CallbackView> => {
  const { database } = context
  const type = context.types.get(request.type)
  if (!type) throw new AppError('operation-type-not-found', `There is no operation type ${request.type}`)
  if (type.callback === null) throw new AppError('callback-not-configured', `${type.name} takes no callbacks`)
  const eventId = verifiedId(type.callback, request)
  const event = parse(request.body)
  const bodyHash = createHash('sha256').update(request.body).digest('hex')
  const known = await database.query((connection) => readCallback(connection, { type: type.name, eventId }))
  const { stored, isNew } = known
    ? { stored: known, isNew: false }
    : await keep(
        context,
        { type: type.name, eventId, bodyHash, statement: type.callback.read(event) },
        request.tenantId,
      )
  if (stored.bodyHash !== bodyHash) {
    throw new AppError('event-id-reused', `The event ${eventId} was received before with another body`)
  }
  const judged = await judgeCallback(context, type, stored)
  return view(judged, { duplicate: !isNew, judged: isNew || !stored.processed })
}

/** The headers' event id, once the signature vouches for it. */
const verifiedId = (callback: CallbackReceiver, { headers, body }: CallbackRequest): string => {
  const id = headers['webhook-id']
  if (callback.verify(headers, body) && typeof id === 'string') return id
  throw new AppError(
    'invalid-signature',
    'webhook-id, webhook-timestamp and webhook-signature must sign exactly this body, with a secret of the type, and recently',
  )
}

const parse = (body: Buffer): Json => {
  try {
    if (isUtf8(body)) return JSON.parse(body.toString('utf8').replace(/^\uFEFF/, '')) as Json
  } catch (cause) {
    throw new AppError('malformed-json', 'The body is signed, but is not valid JSON', { cause })
  }
  throw new AppError('malformed-json', 'The body is signed, but is not valid UTF-8')
}

/** Keeps a new event with the effect that it speaks of; of two deliveries at once one is the first. */
const keep = async (
  { database }: ReceiveContext,
  event: Pick<StoredCallback, 'type' | 'eventId' | 'bodyHash' | 'statement'>,
  tenantId: number | null,
): Promise<{ stored: StoredCallback; isNew: boolean }> => {
  const { type, statement } = event
  const targets =
    statement === null
      ? []
      : await database.query((connection) =>
          findCallbackTargets(connection, { type, effectKey: statement.effectKey, tenantId }),
        )
  if (targets.length > 1) {
    throw new AppError('callback-ambiguous', 'Several tenants have an effect with this key: name one with ?tenant=<id>')
  }
  const isNew = await database.query((connection) =>
    insertCallback(connection, { ...event, target: targets[0] ?? null }),
  )
  const stored = await database.query((connection) => readCallback(connection, event))
  if (!stored) throw new Error('a callback was forgotten while it was received')
  return { stored, isNew }
}

const view = (
  { eventId, outcome, target, statement, caseId }: StoredCallback,
  { duplicate, judged }: { duplicate: boolean; judged: boolean },
): CallbackView => {
  if (outcome === null) throw new Error('a judged callback has no outcome')
  return {
    eventId,
    outcome,
    duplicate,
    judged,
    operationId: target?.operationId ?? null,
    itemKey: target?.itemKey ?? null,
    effectKey: statement?.effectKey ?? null,
    caseId,
  }
}
