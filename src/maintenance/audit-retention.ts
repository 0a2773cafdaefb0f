import type { ServiceContext } from '../services/context.ts'
import { AUDIT_PURGE_MAX, purgeAudit } from '../storage/audit.ts'
import type { MaintenanceService } from './service.ts'

const EVERY_MS = 60_000

/** Forgets entries of the audit by age, oldest first, in small batches; the table itself refuses what is young. */
export const auditRetention = (
  { database }: Pick<ServiceContext, 'database'>,
  days: number,
  batchMax = AUDIT_PURGE_MAX,
): MaintenanceService => ({
  name: 'audit-retention',
  everyMs: EVERY_MS,
  async runOnce() {
    return { more: (await purgeAudit(database, days, batchMax)) === batchMax }
  },
})
