import type { Evidence } from '../storage/run/evidence.ts'
import { readOrphanedIntents } from '../storage/run/window.ts'
import type { ServiceContext } from './context.ts'
import { convergeEvidence } from './converge.ts'
import { report } from './evidence-reports.ts'
import { firstLookupMs, type Holder, unsentReport } from './outcome-reports.ts'

const ORPHANS_PER_STEP = 500
/** Windows of a shard are at most 10,000 items: this bound is never reached, and a loop without one has no end. */
const ORPHAN_STEPS_MAX = 1_000

/**
 * Intents that an earlier holder left behind become `uncertain`, with a case: nobody knows whether they were sent. Those of
 * an artifact are tried again: what was written and is not named by any row is nothing (storage/run/publish.ts). `step` is
 * told of each piece of it that is done.
 */
export const explainOrphans = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  held: Holder,
  step: () => void = () => {},
): Promise<void> => {
  const { lease, type } = held
  if (lease.epoch === 1) return
  for (let steps = 0; steps < ORPHAN_STEPS_MAX; steps++) {
    const orphans = await context.database.query((connection) =>
      readOrphanedIntents(connection, lease, ORPHANS_PER_STEP),
    )
    if (orphans.length === 0) return
    const evidence = {
      source: 'recovery',
      epoch: lease.epoch,
      workerId: lease.workerId,
      actor: null,
      codeVersion: type.codeVersion,
      lookupAfterMs: firstLookupMs(held),
      reports: orphans.map((orphan) =>
        type.effect === 'artifact'
          ? unsentReport({ ...orphan, resend: false })
          : report(orphan, { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' }),
      ),
    } satisfies Evidence
    await convergeEvidence(context, lease, evidence, { doublesMatter: type.effect !== 'artifact' })
    step()
  }
}
