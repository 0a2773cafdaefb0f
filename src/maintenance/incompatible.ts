/**
 * Pauses operations whose checkpoint no worker goes on with (domain/checkpoint.ts): their type has a newer version by now, or a
 * newer opledger had them in hand. The operation's `error` says why. Who resumes one without such a worker finds it paused
 * again. What is in flight there is explained first, where its form is known, so that the pause, or a cancel, is reached.
 *
 * A rolling upgrade has both versions for a while, and a host that starts again has none for a moment: so a worker counts as
 * long as it was seen within GRACE_MS, a checkpoint as soon as it has been due for so long, and a process says nothing before
 * it has looked on for so long itself. While the database is away no worker is seen, and nobody looks on: that time begins anew.
 */
import { randomUUID } from 'node:crypto'
import { incompatibility } from '../domain/checkpoint.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { recoverStrandedShards, type StrandedType } from '../services/recover-stranded.ts'
import { pauseBySystem } from '../services/stop.ts'
import { FIRST_CHECKPOINT, type OpenCheckpoint, readOpenCheckpoints, readRunners } from '../storage/checkpoints.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 5_000
const OPERATIONS_PER_RUN = 1_000
const SHARDS_PER_RUN = 16
const GRACE_MS = 60_000
/** Who has looked away for longer may have missed that the database was away, or was stopped itself. */
const GAP_MS = 4 * EVERY_MS

export const incompatibleCheckpoints = (
  context: ServiceContext,
  log: Pick<Log, 'warn'>,
  { graceMs = GRACE_MS, operationsPerRun = OPERATIONS_PER_RUN } = {},
): MaintenanceService => {
  const { database, types } = context
  // of this process and nobody else: what it claims is never taken for a worker's
  const workerId = randomUUID()
  const watch = openWatch()
  /** Where the last run ended: each operation has its turn, however many there are. */
  let after = FIRST_CHECKPOINT

  const pauseThose = async (due: readonly OpenCheckpoint[]): Promise<void> => {
    const runners = await database.query((connection) => readRunners(connection, graceMs))
    const stranded = new Map<string, Stranded>()
    await workOnEach(due, log, 'pausing what no worker can go on with', async (checkpoint) => {
      const type = types.get(checkpoint.type)
      const name = `${checkpoint.type}@${checkpoint.typeVersion}`
      const found = incompatibility(checkpoint, type?.version ?? null, runners(checkpoint.tenantId, name))
      if (found === null || type === undefined) return
      if (found.because === 'type-version') {
        const { tenantId, typeVersion: version } = checkpoint
        stranded.set(`${tenantId} ${name}`, { tenantId, type, version })
      }
      if (checkpoint.status !== 'pending' && checkpoint.status !== 'running') return
      await pauseBySystem(context, checkpoint, 'system:checkpoint', {
        code: 'checkpoint-incompatible',
        detail: found.detail,
      })
    })
    await recover([...stranded.values()])
  }

  /** Of each tenant by itself: another one may have a worker that takes its own over. */
  const recover = async (stranded: readonly Stranded[]): Promise<void> => {
    let limit = SHARDS_PER_RUN
    for (const tenantId of new Set(stranded.map((one) => one.tenantId))) {
      if (limit <= 0) return
      const theirs = stranded.filter((one) => one.tenantId === tenantId)
      limit -= await recoverStrandedShards(context, theirs, { workerId, tenantId, limit })
    }
  }

  return {
    name: 'incompatible-checkpoints',
    everyMs: EVERY_MS,
    async runOnce() {
      watch.begin()
      try {
        const page = await database.query((connection) =>
          readOpenCheckpoints(connection, after, operationsPerRun, graceMs),
        )
        after = (page.length === operationsPerRun && page.at(-1)) || FIRST_CHECKPOINT
        const due = page.filter(({ isDue }) => isDue)
        if (watch.forMs() >= graceMs && due.length > 0) await pauseThose(due)
      } catch (error) {
        watch.lose()
        throw error
      }
      watch.end()
      // nobody waits for it: the rest has its turn at the next time
      return { more: false }
    },
  }
}

interface Stranded extends StrandedType {
  tenantId: number
}

/** For how long runs have gone well, one soon after the other. */
const openWatch = () => {
  let sinceMs = performance.now()
  let endedMs = sinceMs
  return {
    begin(): void {
      if (performance.now() - endedMs > GAP_MS) sinceMs = performance.now()
    },
    forMs: (): number => performance.now() - sinceMs,
    end(): void {
      endedMs = performance.now()
    },
    lose(): void {
      sinceMs = performance.now()
      endedMs = sinceMs
    },
  }
}
