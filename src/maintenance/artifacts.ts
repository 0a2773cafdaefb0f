/**
 * Removes what nobody can reach any more in the object store.
 *
 *  - An operation that is over: its chunks, and what it assembled and did not publish. When it is over no publish can be
 *    committed (its shards are not leased), so whatever no row names is garbage for good. A second sweep, STRAGGLER_HOURS
 *    later, takes what a paused worker may have written after the first.
 *  - An artifact that expired or was superseded: from that instant its downloads are refused; then its object is deleted,
 *    and then the row says so.
 *
 * Each step may be repeated: deleting what is not there is no fault, and a janitor that dies between two lines leaves the
 * row that makes the next one do it again.
 */
import { artifactFolder, chunkFolder, STRAGGLER_HOURS } from '../domain/artifact.ts'
import type { Log } from '../log.ts'
import type { ObjectStore } from '../objects/object-store.ts'
import type { ServiceContext } from '../services/context.ts'
import { endSweep, markRemoved, readEndedArtifacts, readKeptObjects, takeDueWorkspaces } from '../storage/artifacts.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 5_000
const WORKSPACES_PER_RUN = 20
const ARTIFACTS_PER_RUN = 50
/** A janitor that died with workspaces in hand is followed by another one after so long. */
const HOLD_SECONDS = 300

interface ObjectsContext extends Pick<ServiceContext, 'database'> {
  objects: ObjectStore
}

export const artifactObjects = ({ database, objects }: ObjectsContext, log: Pick<Log, 'warn'>): MaintenanceService => {
  const sweep = async (workspace: {
    tenantId: number
    operationId: string
    stragglersPast: boolean
  }): Promise<void> => {
    await objects.deleteFolder(chunkFolder(workspace))
    const kept = await database.query((connection) => readKeptObjects(connection, workspace))
    if (kept.size === 0) await objects.deleteFolder(artifactFolder(workspace))
    else {
      for (const name of await objects.list(artifactFolder(workspace))) if (!kept.has(name)) await objects.delete(name)
    }
    await database.query((connection) => endSweep(connection, workspace, STRAGGLER_HOURS))
  }

  const remove = async (artifact: { tenantId: number; id: string; object: string }): Promise<void> => {
    await objects.delete(artifact.object)
    await database.query((connection) => markRemoved(connection, artifact))
  }

  return {
    name: 'artifact-objects',
    everyMs: EVERY_MS,
    async runOnce() {
      const workspaces = await database.query((connection) =>
        takeDueWorkspaces(connection, { limit: WORKSPACES_PER_RUN, holdSeconds: HOLD_SECONDS }),
      )
      const swept = await workOnEach(workspaces, log, 'sweeping the objects of an operation', sweep)
      const ended = await database.query((connection) => readEndedArtifacts(connection, ARTIFACTS_PER_RUN))
      const removed = await workOnEach(ended, log, 'removing an artifact', remove)
      const more = workspaces.length === WORKSPACES_PER_RUN || ended.length === ARTIFACTS_PER_RUN
      return { more: more && swept + removed > 0 }
    },
  }
}
