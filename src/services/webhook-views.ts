import type { DeliveryState, WebhookEvent } from '../domain/webhook.ts'
import type { DbTime } from './views.ts'

export interface WebhookAttemptView {
  attempt: number
  at: DbTime
  status: number | null
  error: string | null
  /** Null: it is being made, or its sender was lost. */
  durationMs: number | null
}

export interface WebhookDeliveryView {
  id: string
  operationId: string
  event: WebhookEvent
  /** The event of the operation that it tells of: its place in the list. */
  eventVersion: number
  operationStatus: string
  url: string
  state: DeliveryState
  /** A try is under way. */
  sending: boolean
  attempts: number
  nextAttemptAt: DbTime | null
  createdAt: DbTime
  deliveredAt: DbTime | null
  lastStatus: number | null
  lastError: string | null
  /** The last ones, oldest first. */
  log: WebhookAttemptView[]
}
