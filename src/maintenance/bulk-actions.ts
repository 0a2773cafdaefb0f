/**
 * Works on the targets of bulk actions. Each run claims what the rate of one action allows, in the database; the claims are
 * kept while their work goes on, however long a copy of items takes.
 */
import pLimit from 'p-limit'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { openStateReader } from '../services/get-operation.ts'
import { type BulkContext, workOnTarget } from '../services/work-bulk-target.ts'
import { CLAIM_SECONDS, type ClaimedTarget, claimBulkTargets, renewClaim } from '../storage/bulk-targets.ts'
import type { MaintenanceService } from './service.ts'

const EVERY_MS = 200
/** A cancel waits a moment for its acknowledgement, so several go on beside each other. */
const TARGETS_AT_ONCE = 8
const RENEW_MS = (CLAIM_SECONDS * 1_000) / 4

export const bulkActions = (base: ServiceContext, log: Pick<Log, 'warn'>): MaintenanceService => {
  const context: BulkContext = { ...base, readState: openStateReader(base) }
  const limit = pLimit(TARGETS_AT_ONCE)

  const work = async (target: ClaimedTarget): Promise<void> => {
    const named = { tenant: target.tenantId, bulk_action: target.bulkId, operation: target.operationId }
    try {
      await workOnTarget(context, target)
    } catch (error) {
      log.warn({ ...named, err: error }, 'a target of a bulk action failed; it is tried again')
    }
  }

  return {
    name: 'bulk-actions',
    everyMs: EVERY_MS,
    async runOnce() {
      const claimed = await context.database.query(claimBulkTargets)
      if (claimed.length === 0) return { more: false }
      const inHand = new Set(claimed)
      const renewing = setInterval(() => {
        for (const target of inHand) {
          // a claim that is lost for want of a renewal is somebody else's, who finds what was done
          context.database.query((connection) => renewClaim(connection, target)).catch(() => {})
        }
      }, RENEW_MS)
      try {
        await Promise.all(claimed.map((target) => limit(() => work(target).finally(() => inHand.delete(target)))))
      } finally {
        clearInterval(renewing)
      }
      return { more: true }
    },
  }
}
