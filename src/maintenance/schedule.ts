import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { ServiceContext } from '../services/context.ts'
import { artifactObjects } from './artifacts.ts'
import { abandonedUploads, deadlines, housekeeping } from './janitor.ts'
import { reconciler } from './reconciler.ts'
import { repeat } from './service.ts'
import { settleSweep } from './settle-sweep.ts'
import { stopConditions } from './stop-conditions.ts'

/** The maintenance loops of a worker. Every worker runs them: each claims what it works on, so more of them do no harm. */
export const startMaintenance = (
  context: ServiceContext & { objects: ObjectStore },
  log: Log,
): { stop(): Promise<void> } => {
  const services = [
    repeat(reconciler(context, log), log),
    repeat(settleSweep(context, log), log),
    repeat(deadlines(context, log), log),
    repeat(abandonedUploads(context), log),
    repeat(housekeeping(context, log), log),
    repeat(stopConditions(context, log), log),
    repeat(artifactObjects(context, log), log),
  ]
  return {
    async stop() {
      await Promise.all(services.map((service) => service.stop()))
    },
  }
}
