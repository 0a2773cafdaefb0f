import { readArtifact } from '../storage/artifacts.ts'
import type { Evidence } from '../storage/run/evidence.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'
import { convergePublish, type NewArtifact } from '../storage/run/publish.ts'
import type { ServiceContext } from './context.ts'

/**
 * Publishes an artifact with the outcome of its publish, under the fence. False: a stop or another worker came first, and
 * nothing was published by this lease. An earlier try whose reply was lost counts as this one.
 */
export const publishArtifact = async (
  { database, wakeUps }: Pick<ServiceContext, 'database' | 'wakeUps'>,
  lease: ClaimedShard,
  evidence: Evidence,
  artifact: NewArtifact,
): Promise<boolean> => {
  const converged = await convergePublish(database, lease, evidence, artifact)
  wakeUps.send('change')
  if (converged !== null && converged.moved.size > 0) return true
  const published = await database.query((connection) => readArtifact(connection, lease))
  return published?.id === artifact.id
}
