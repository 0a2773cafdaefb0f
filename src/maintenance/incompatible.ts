/**
 * Pauses operations whose checkpoint no worker goes on with (domain/checkpoint.ts): their type has another version by now, or a
 * newer opledger had them in hand. The operation's `error` says why. Who resumes one without such a worker finds it paused
 * again. What is in flight there is explained first, where its form is known, so that the pause, or a cancel, is reached.
 *
 * A rolling upgrade has both versions for a while, and a host that starts again has none for a moment: so a worker counts as
 * long as it was seen within GRACE_MS, and a process says nothing before it has looked on for so long itself.
 */
import { randomUUID } from 'node:crypto'
import { incompatibility } from '../domain/checkpoint.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { recoverStrandedShards, type StrandedType } from '../services/recover-stranded.ts'
import { pauseBySystem } from '../services/stop.ts'
import { FIRST_CHECKPOINT, readOpenCheckpoints, readRunners } from '../storage/checkpoints.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 5_000
const OPERATIONS_PER_RUN = 1_000
const SHARDS_PER_RUN = 16
const GRACE_MS = 60_000

export const incompatibleCheckpoints = (
  context: ServiceContext,
  log: Pick<Log, 'warn'>,
  { graceMs = GRACE_MS, operationsPerRun = OPERATIONS_PER_RUN } = {},
): MaintenanceService => {
  const { database, types } = context
  const startedMs = performance.now()
  // of this process and nobody else: what it claims is never taken for a worker's
  const workerId = randomUUID()
  /** Where the last run ended: each operation has its turn, however many there are. */
  let after = FIRST_CHECKPOINT

  return {
    name: 'incompatible-checkpoints',
    everyMs: EVERY_MS,
    async runOnce() {
      if (performance.now() - startedMs < graceMs) return { more: false }
      const page = await database.query((connection) => readOpenCheckpoints(connection, after, operationsPerRun))
      after = (page.length === operationsPerRun && page.at(-1)) || FIRST_CHECKPOINT
      const due = page.filter(({ isDue }) => isDue)
      if (due.length === 0) return { more: false }
      const runners = await database.query((connection) => readRunners(connection, graceMs))
      const stranded = new Map<string, StrandedType>()
      await workOnEach(due, log, 'pausing what no worker can go on with', async (checkpoint) => {
        const type = types.get(checkpoint.type)
        const name = `${checkpoint.type}@${checkpoint.typeVersion}`
        const found = incompatibility(checkpoint, type?.version ?? null, runners.get(name) ?? null)
        if (found === null || type === undefined) return
        if (found.because === 'type-version') stranded.set(name, { type, version: checkpoint.typeVersion })
        if (checkpoint.status !== 'pending' && checkpoint.status !== 'running') return
        await pauseBySystem(context, checkpoint, 'system:checkpoint', {
          code: 'checkpoint-incompatible',
          detail: found.detail,
        })
      })
      await recoverStrandedShards(context, [...stranded.values()], { workerId, limit: SHARDS_PER_RUN })
      // nobody waits for it: the rest has its turn at the next time
      return { more: false }
    },
  }
}
