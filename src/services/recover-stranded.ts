import { executorOf, type OperationType, providerIdempotentMsOf } from '../domain/operation-type.ts'
import { claimExpiredShards } from '../storage/run/claim-shards.ts'
import { endLease } from '../storage/run/end-lease.ts'
import type { ServiceContext } from './context.ts'
import { explainOrphans } from './explain-orphans.ts'
import { finishHold } from './remote-hold.ts'

/** A type in a version that no worker has any more. */
export interface StrandedType {
  /** As it is installed. */
  type: OperationType
  /** The other one. */
  version: number
}

/**
 * Explains what workers with another version of a type left behind in a tenant when they went, where nobody with that version comes for
 * it: what was in flight becomes `uncertain`, and a shard that is told to stop is done, so that a pause or a cancel comes to its
 * end. Nothing is run. Answers with the number of shards that it looked after.
 */
export const recoverStrandedShards = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps'>,
  stranded: readonly StrandedType[],
  { workerId, tenantId, limit }: { workerId: string; tenantId: number; limit: number },
): Promise<number> => {
  if (stranded.length === 0) return 0
  const runnable = stranded.map(({ type, version }) => ({
    name: type.name,
    version,
    leaseMs: type.leaseMs,
    windowMax: 1,
    compensates: true,
    codeVersion: type.codeVersion,
  }))
  const claimed = await context.database.query((connection) =>
    claimExpiredShards(connection, { workerId, types: runnable, limit, tenantId, unexplained: true }),
  )
  const types = new Map(stranded.map(({ type }) => [type.name, type]))
  for (const lease of claimed) {
    const type = types.get(lease.type)
    if (!type) continue
    await explainOrphans(context, {
      lease,
      // whatever kind the other version was of: that it was sent cannot be ruled out
      type: { ...type, effect: 'external' },
      executor: executorOf(type, lease.compensating) ?? type.executor,
      providerIdempotentMs: providerIdempotentMsOf(type, lease.compensating),
    })
    if (lease.stopRequested !== null) {
      await finishHold(context, lease)
      continue
    }
    await context.database.query((connection) =>
      endLease(connection, lease, { dueInMs: 0, claims: lease.claimsBefore, charge: null }),
    )
  }
  return claimed.length
}
