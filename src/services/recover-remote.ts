import { isRemote } from '../domain/operation-type.ts'
import { claimExpiredShards } from '../storage/run/claim-shards.ts'
import { endLease } from '../storage/run/end-lease.ts'
import { explainOrphans } from './explain-orphans.ts'
import { finishHold, holdOf, type RemoteContext, runnableOf } from './remote-hold.ts'

/**
 * Explains what workers elsewhere left behind when they went, where no other one of them comes for it: what was in flight
 * becomes `uncertain`, and a stopped shard is done. Nothing is run. A shard with work left stays as the next worker would have
 * found it: leased and over, and with the count of deaths that its own takeover then adds to (end-lease.ts).
 * Answers with the number of shards that it looked after.
 */
export const recoverRemoteShards = async (
  context: RemoteContext,
  { workerId, limit }: { workerId: string; limit: number },
): Promise<number> => {
  const types = context.types.list().filter(isRemote).map(runnableOf)
  if (types.length === 0) return 0
  const claimed = await context.database.query((connection) =>
    claimExpiredShards(connection, { workerId, types, limit, unexplained: true }),
  )
  for (const lease of claimed) {
    await explainOrphans(context, holdOf(context, lease, lease.type))
    if (lease.stopRequested !== null) {
      await finishHold(context, lease)
      continue
    }
    await context.database.query((connection) =>
      endLease(connection, lease, { dueInMs: 0, claims: lease.claimsBefore, charge: null }),
    )
    context.wakeUps.send('work')
  }
  return claimed.length
}
