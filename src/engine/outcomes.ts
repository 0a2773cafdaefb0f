/** How a run brings the outcomes of its sends home, whatever state the database and the lease are in. */
import { probe } from '../probe.ts'
import { convergeEvidence } from '../services/converge.ts'
import { unsentReport, workerEvidence } from '../services/outcome-reports.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import type { Report } from '../storage/run/evidence.ts'
import { readOwnIntents } from '../storage/run/window.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'

/** An outcome that cannot be written is kept and tried for so long; then a takeover will call it uncertain. */
const WRITE_PATIENCE_MS = 120_000
const WRITE_RETRY_MS = 250

/**
 * After a claim without an answer: the intents that it may have left behind were never sent, and this worker knows it. Only
 * those: an intent that was sent, and whose outcome could not be written, stays for a takeover to call it uncertain.
 */
export const returnUnclear = async (
  context: RunContext,
  held: HeldShard,
  offered: ReadonlySet<number>,
): Promise<void> => {
  const intents = await patiently(held, context, () =>
    context.database.query((connection) => readOwnIntents(connection, held.lease)),
  )
  if (intents === null || intents === 'refused') return
  const unsent = intents.filter((intent) => offered.has(intent.ord))
  if (unsent.length > 0) await writePatiently(context, held, unsent.map(unsentReport))
}

/** Writes outcomes, and keeps them while the database is away: what was observed is not given up with the lease. */
export const writePatiently = async (
  context: RunContext,
  held: HeldShard,
  reports: readonly Report[],
): Promise<void> => {
  const { lease, type } = held
  const converged = await patiently(held, context, () =>
    convergeEvidence(context, lease, workerEvidence(held, reports), { doublesMatter: type.effect !== 'artifact' }),
  )
  await probe('outcome-committed', { operationId: lease.operationId })
  if (converged === null) return
  if (converged === 'refused') {
    // one report that cannot be stored takes no other with it
    if (reports.length === 1) return
    const middle = Math.ceil(reports.length / 2)
    await writePatiently(context, held, reports.slice(0, middle))
    await writePatiently(context, held, reports.slice(middle))
    return
  }
  context.meter.items(
    type.name,
    reports.filter((report) => report.item !== null).length,
    reports.filter((report) => report.failureClass === 'validation_rejected').length,
  )
  if (!converged.mine) held.lost = true
  if (converged.stopRequested !== null) held.stopped(converged.stopRequested)
}

/**
 * Repeats what is safe to repeat while the database is away. Null: it did not come back in time; `refused`: it is there, and
 * does not take this.
 */
export const patiently = async <T>(
  held: HeldShard,
  { log }: RunContext,
  work: () => Promise<T>,
): Promise<T | null | 'refused'> => {
  const until = performance.now() + WRITE_PATIENCE_MS
  for (;;) {
    try {
      return await work()
    } catch (error) {
      const fields = { err: error, operation_id: held.lease.operationId, shard: held.lease.shard }
      if (!abortsBatch(error)) {
        log.error(fields, 'outcomes were refused by the database')
        return 'refused'
      }
      if (performance.now() > until) {
        log.error(fields, 'outcomes could not be written; a takeover will call them uncertain')
        return null
      }
      log.warn(fields, 'outcomes are kept until the database is back')
      await new Promise((resolve) => setTimeout(resolve, WRITE_RETRY_MS))
    }
  }
}
