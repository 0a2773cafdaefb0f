import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import type { CallbackReceiver, Json } from '../domain/operation-type.ts'
import {
  type CallbackTarget,
  findCallbackTargets,
  insertCallback,
  readCallback,
  type StoredCallback,
} from '../storage/callbacks.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { judgeCallback } from './judge-callback.ts'
import { DEFAULT_TENANT_ID } from './principal.ts'
import type { CallbackRequest } from './requests.ts'
import type { CallbackView } from './views.ts'

type ReceiveContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'types' | 'ended'>

/**
 * Takes a provider's signed event: verifies, keeps, judges, in this order. A repeat is answered as the first was; the same
 * id with another body changes nothing. No tenant and no key is asked for: the signature is the authentication.
 * Errors: operation-type-not-found, callback-not-configured, invalid-signature, malformed-json, event-id-reused,
 * callback-ambiguous.
 */
export const receiveCallback = async (context: ReceiveContext, request: CallbackRequest): Promise<CallbackView> => {
  const type = context.types.get(request.type)
  if (!type) throw new AppError('operation-type-not-found', `There is no operation type ${request.type}`)
  if (type.callback === null) throw new AppError('callback-not-configured', `${type.name} takes no callbacks`)
  const eventId = verifiedId(type.callback, request)
  const event = parse(request.body)
  const bodyHash = createHash('sha256').update(request.body).digest('hex')
  const { callback } = type
  const { stored, isNew } = await keep(context, { type: type.name, eventId, bodyHash }, request, () =>
    callback.read(event),
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

/** An event was there when we stored it, and forgotten when we read it; after so many times somebody is in a loop. */
const TRIES_MAX = 10

/**
 * The event as it is kept: an earlier delivery, or a new one with the effect that it speaks of. Of two deliveries at once one
 * is the first; one that is forgotten in between is new again.
 */
const keep = async (
  { database }: ReceiveContext,
  event: Pick<StoredCallback, 'type' | 'eventId' | 'bodyHash'>,
  request: Pick<CallbackRequest, 'tenantId' | 'origin'>,
  read: () => StoredCallback['statement'],
): Promise<{ stored: StoredCallback; isNew: boolean }> => {
  let isNew = false
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const stored = await database.query((connection) => readCallback(connection, event))
    if (stored) return { stored, isNew }
    const statement = read()
    const target = await findTarget({ database }, { type: event.type, statement, tenantId: request.tenantId })
    const audit = callbackAudit(event, target, request)
    isNew = await database.query((connection) => insertCallback(connection, { ...event, statement, target }, audit))
  }
  throw new Error('a callback is forgotten as often as it is received')
}

/** Of the tenant whose effect it is; where there is none, of the one that was named, or else of the service's own. */
const callbackAudit = (
  { type, eventId }: Pick<StoredCallback, 'type' | 'eventId'>,
  target: CallbackTarget | null,
  { tenantId, origin }: Pick<CallbackRequest, 'tenantId' | 'origin'>,
) => ({
  tenantId: target?.tenantId ?? tenantId ?? DEFAULT_TENANT_ID,
  entry: auditEntry(
    authorOf({ name: `provider:${type}`, ...(origin && { origin }) }),
    'callback.receive',
    ['callback', eventId],
    null,
    target === null ? {} : { operation: formatId('op', target.operationId) },
  ),
})

/** The effect that an event speaks of. Null: there is none, or the event says nothing. */
const findTarget = async (
  { database }: Pick<ReceiveContext, 'database'>,
  { type, statement, tenantId }: { type: string; statement: StoredCallback['statement']; tenantId: number | null },
): Promise<CallbackTarget | null> => {
  const targets =
    statement === null
      ? []
      : await database.query((connection) =>
          findCallbackTargets(connection, { type, effectKey: statement.effectKey, tenantId }),
        )
  if (targets.length > 1) {
    throw new AppError('callback-ambiguous', 'Several tenants have an effect with this key: name one with ?tenant=<id>')
  }
  return targets[0] ?? null
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
