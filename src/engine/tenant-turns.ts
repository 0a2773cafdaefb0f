/**
 * Tenants take turns: each turn begins behind the tenant that was served last and comes around to it again, so that no tenant
 * waits behind others that have more to do, or that have nothing that is due.
 *
 * Where the last turn ended is kept in memory only: a worker that starts anew begins with the first tenant.
 */

import { LAST_TENANT, type ReadyClaim } from '../storage/run/claim-shards.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'

export interface Stretch {
  limit: number
  perTenant: number
  afterTenant: number
  lastTenant: number
}

export interface TenantTurns {
  /**
   * Claims at most `perTenant` shards of each tenant while there is room. Says how many. It ends, since each claim goes on
   * behind the tenants that the one before it has looked at.
   */
  take(perTenant: number): Promise<number>
}

export const openTenantTurns = (options: {
  claim(stretch: Stretch): Promise<ReadyClaim>
  /** `askedAtMs`: from when on their leases count. */
  adopt(shards: readonly ClaimedShard[], askedAtMs: number): void
  /** Shards that may be claimed now. */
  room(): number
}): TenantTurns => {
  const { claim, adopt, room } = options
  let afterTenant = 0
  return {
    async take(perTenant) {
      let taken = 0
      for (const lastTenant of afterTenant === 0 ? [LAST_TENANT] : [LAST_TENANT, afterTenant]) {
        do {
          const limit = room()
          if (limit <= 0) return taken
          const askedAtMs = performance.now()
          const { shards, behind } = await claim({ limit, perTenant, afterTenant, lastTenant })
          adopt(shards, askedAtMs)
          taken += shards.length
          afterTenant = behind ?? 0
        } while (afterTenant !== 0)
      }
      return taken
    },
  }
}
