import { AUDIT_DAYS_DEFAULT } from '../domain/audit.ts'
import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { ServiceContext } from '../services/context.ts'
import { afterSweep } from './after-sweep.ts'
import { artifactObjects } from './artifacts.ts'
import { auditRetention } from './audit-retention.ts'
import { bulkActions } from './bulk-actions.ts'
import { callbacks } from './callbacks.ts'
import { incompatibleCheckpoints } from './incompatible.ts'
import { abandonedUploads, deadlines, housekeeping } from './janitor.ts'
import { reconciler } from './reconciler.ts'
import { remoteRecovery } from './remote-recovery.ts'
import { retention } from './retention.ts'
import { type MaintenanceService, repeat } from './service.ts'
import { settleSweep } from './settle-sweep.ts'
import { stopConditions } from './stop-conditions.ts'
import { openWebhookSender, type WebhookSettings } from './webhooks.ts'

type MaintenanceContext = ServiceContext & {
  objects: ObjectStore
  /** Of the audit. */
  auditDays?: number
}

/** Every maintenance service that there is; `close` ends what they share. */
export const openMaintenance = (
  context: MaintenanceContext,
  log: Log,
  webhooks: WebhookSettings,
): { services: MaintenanceService[]; close(): Promise<void> } => {
  const sender = openWebhookSender(context, webhooks, log)
  const services = [
    reconciler(context, log),
    callbacks(context, log),
    settleSweep(context, log),
    remoteRecovery(context),
    afterSweep(context, log),
    bulkActions(context, log),
    deadlines(context, log),
    abandonedUploads(context),
    housekeeping(context, log),
    retention(context, log),
    auditRetention(context, context.auditDays ?? AUDIT_DAYS_DEFAULT),
    stopConditions(context, log),
    incompatibleCheckpoints(context, log),
    sender,
    artifactObjects(context, log),
  ]
  return { services, close: () => sender.close() }
}

/** The maintenance loops of a worker. Every worker runs them: each claims what it works on, so more of them do no harm. */
export const startMaintenance = (
  context: MaintenanceContext,
  log: Log,
  webhooks: WebhookSettings,
): { stop(): Promise<void> } => {
  const { services, close } = openMaintenance(context, log, webhooks)
  const running = services.map((service) => repeat(service, log))
  return {
    async stop() {
      await Promise.all(running.map((service) => service.stop()))
      await close()
    },
  }
}
