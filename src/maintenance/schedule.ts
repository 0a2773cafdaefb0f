import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { ServiceContext } from '../services/context.ts'
import { afterSweep } from './after-sweep.ts'
import { artifactObjects } from './artifacts.ts'
import { bulkActions } from './bulk-actions.ts'
import { callbacks } from './callbacks.ts'
import { abandonedUploads, deadlines, housekeeping } from './janitor.ts'
import { reconciler } from './reconciler.ts'
import { repeat } from './service.ts'
import { settleSweep } from './settle-sweep.ts'
import { stopConditions } from './stop-conditions.ts'
import { openWebhookSender, type WebhookSettings } from './webhooks.ts'

/** The maintenance loops of a worker. Every worker runs them: each claims what it works on, so more of them do no harm. */
export const startMaintenance = (
  context: ServiceContext & { objects: ObjectStore },
  log: Log,
  webhooks: WebhookSettings,
): { stop(): Promise<void> } => {
  const sender = openWebhookSender(context, webhooks, log)
  const services = [
    repeat(reconciler(context, log), log),
    repeat(callbacks(context, log), log),
    repeat(settleSweep(context, log), log),
    repeat(afterSweep(context, log), log),
    repeat(bulkActions(context, log), log),
    repeat(deadlines(context, log), log),
    repeat(abandonedUploads(context), log),
    repeat(housekeeping(context, log), log),
    repeat(stopConditions(context, log), log),
    repeat(sender, log),
    repeat(artifactObjects(context, log), log),
  ]
  return {
    async stop() {
      await Promise.all(services.map((service) => service.stop()))
      await sender.close()
    },
  }
}
