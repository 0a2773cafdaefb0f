import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import { OPERATION_STATUSES } from '../../domain/operation.ts'
import { toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import { DELIVERY_STATES, WEBHOOK_EVENTS } from '../../domain/webhook.ts'
import type { WebhookDeliveryView } from '../../services/webhook-views.ts'
import { openEnum, time } from '../fields.ts'

const status = z.int().nullable().describe('Of the answer; null: there was none.')
const error = z.string().nullable().describe('Why there was no whole answer, for example ECONNREFUSED or TIMEOUT.')

export const WebhookDeliveryResource = z
  .object({
    id: z.string().describe('Also the `webhook-id` of every try.'),
    operation_id: z.string(),
    event: openEnum(WEBHOOK_EVENTS, 'What it tells of.'),
    operation_status: openEnum(OPERATION_STATUSES, 'Of the operation at the event.'),
    url: z.string(),
    state: openEnum(DELIVERY_STATES, 'Where it stands; `disabled`: the receiver of the operation answered 410.'),
    sending: z.boolean().describe('A try is under way.'),
    attempts: z.int().describe('Tries that were ever begun.'),
    next_attempt_at: time.nullable(),
    created_at: time,
    delivered_at: time.nullable(),
    last_status: status,
    last_error: error,
    log: z
      .array(
        z.object({
          attempt: z.int(),
          at: time,
          status,
          error,
          duration_ms: z.int().nullable().describe('Null: it is under way, or its sender was lost.'),
        }),
      )
      .describe('The last 50 tries, oldest first.'),
  })
  .meta({ id: 'WebhookDelivery' })

export const toWebhookDelivery = (view: WebhookDeliveryView): z.infer<typeof WebhookDeliveryResource> => ({
  id: formatId('wh', view.id),
  operation_id: formatId('op', view.operationId),
  event: view.event,
  operation_status: view.operationStatus,
  url: view.url,
  state: view.state,
  sending: view.sending,
  attempts: view.attempts,
  next_attempt_at: toRfc3339OrNull(view.nextAttemptAt),
  created_at: toRfc3339(view.createdAt),
  delivered_at: toRfc3339OrNull(view.deliveredAt),
  last_status: view.lastStatus,
  last_error: view.lastError,
  log: view.log.map(({ attempt, at, status, error, durationMs }) => ({
    attempt,
    at: toRfc3339(at),
    status,
    error,
    duration_ms: durationMs,
  })),
})
