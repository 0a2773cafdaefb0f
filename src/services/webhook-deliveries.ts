import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { operationExists } from '../storage/operations.ts'
import { findDeliveryRow, listDeliveryRows, redeliver } from '../storage/webhook-deliveries.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { PageRequest, WebhookDeliveryPosition } from './requests.ts'
import type { Page } from './views.ts'
import type { WebhookDeliveryView } from './webhook-views.ts'

type DatabaseContext = Pick<ServiceContext, 'database'>

/** Those of one operation, with their log, in the order of its events. Null: the tenant has no such operation. */
export const listWebhookDeliveries = (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  operationId: string,
  { limit, position }: PageRequest<WebhookDeliveryPosition>,
): Promise<Page<WebhookDeliveryView, WebhookDeliveryPosition> | null> =>
  database.query(async (connection) => {
    if (!(await operationExists(connection, tenantId, operationId))) return null
    return readPage(
      limit,
      (rows) => listDeliveryRows(connection, tenantId, operationId, position?.eventVersion ?? null, rows),
      ({ eventVersion }): WebhookDeliveryPosition => ({ eventVersion }),
    )
  })

export const getWebhookDelivery = (
  { database }: DatabaseContext,
  { tenantId }: Principal,
  id: string,
): Promise<WebhookDeliveryView | null> => database.query((connection) => findDeliveryRow(connection, tenantId, id))

/**
 * Has a delivery sent again, with the same id and the same bytes, whatever became of it: also one whose receiver said that it
 * is gone, as the person who asks may know better. Errors: webhook-delivery-not-found, webhook-delivery-in-progress.
 */
export const redeliverWebhook = async (
  { database }: DatabaseContext,
  principal: Principal,
  id: string,
): Promise<WebhookDeliveryView> => {
  const { tenantId } = principal
  const audit = auditEntry(authorOf(principal), 'webhook.redeliver', ['webhook_delivery', formatId('wh', id)], null)
  const { isDue, delivery } = await database.query(async (connection) => ({
    isDue: await redeliver(connection, tenantId, id, audit),
    delivery: await findDeliveryRow(connection, tenantId, id),
  }))
  if (!delivery) throw new AppError('webhook-delivery-not-found', 'there is no such webhook delivery')
  if (!isDue) {
    throw new AppError('webhook-delivery-in-progress', 'the delivery is being sent just now: read what becomes of it')
  }
  return delivery
}
