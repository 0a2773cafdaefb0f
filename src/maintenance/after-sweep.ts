import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { lookAt } from '../services/dependents.ts'
import { readOverdueDependents } from '../storage/dependencies.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 1_000
const OPERATIONS_PER_RUN = 100

/**
 * Looks at operations that wait for one that has ended: whoever settled that one died before it looked, or left it here
 * because there were too many. What is cancelled here may be waited for itself; the next run finds those.
 */
export const afterSweep = (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  log: Pick<Log, 'warn'>,
): MaintenanceService => ({
  name: 'after-sweep',
  everyMs: EVERY_MS,
  async runOnce() {
    const overdue = await context.database.query((connection) => readOverdueDependents(connection, OPERATIONS_PER_RUN))
    const looked = await workOnEach(overdue, log, 'letting an operation go', (key) => lookAt(context, key))
    return { more: looked > 0 }
  },
})
