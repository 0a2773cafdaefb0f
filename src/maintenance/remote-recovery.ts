import { randomUUID } from 'node:crypto'
import type { ServiceContext } from '../services/context.ts'
import { recoverRemoteShards } from '../services/recover-remote.ts'
import type { MaintenanceService } from './service.ts'

const EVERY_MS = 1_000
const SHARDS_PER_RUN = 16

/** Explains what workers elsewhere have left behind. */
export const remoteRecovery = (
  context: Pick<ServiceContext, 'database' | 'types' | 'wakeUps' | 'ended'>,
): MaintenanceService => {
  // of this process and nobody else: what it claims is never taken for a worker's
  const workerId = randomUUID()
  return {
    name: 'remote-recovery',
    everyMs: EVERY_MS,
    runOnce: async () => ({
      more: (await recoverRemoteShards(context, { workerId, limit: SHARDS_PER_RUN })) === SHARDS_PER_RUN,
    }),
  }
}
