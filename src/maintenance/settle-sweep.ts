import type { Log } from '../log.ts'
import { probe } from '../probe.ts'
import type { ServiceContext } from '../services/context.ts'
import { settleOperation } from '../services/settle.ts'
import { readUnsettled } from '../storage/settle.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 2_000
const OPERATIONS_PER_RUN = 100

/** Settles operations whose last worker died between finishing its shard and settling. */
export const settleSweep = (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  log: Pick<Log, 'warn'>,
): MaintenanceService => ({
  name: 'settle-sweep',
  everyMs: EVERY_MS,
  async runOnce() {
    const unsettled = await context.database.query((connection) => readUnsettled(connection, OPERATIONS_PER_RUN))
    await workOnEach(unsettled, log, 'settling an operation', async ({ tenantId, operationId }) => {
      await probe('unsettled-read', { operationId })
      await settleOperation(context, tenantId, operationId)
    })
    return { more: false }
  },
})
