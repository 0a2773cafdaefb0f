/**
 * The path of a shard through a worker, as a list of steps. The protocol that makes each step safe under a crash is
 * described in storage/run/lease.ts.
 */
import { probe } from '../probe.ts'
import { convergeEvidence } from '../services/converge.ts'
import { report } from '../services/evidence-reports.ts'
import { settleOperation } from '../services/settle.ts'
import type { Evidence } from '../storage/run/converge.ts'
import { finishShard } from '../storage/run/finish.ts'
import { readOrphanedIntents } from '../storage/run/window.ts'
import { markStarted } from '../storage/settle.ts'
import { runArtifact } from './artifact.ts'
import type { RunContext } from './context.ts'
import { runExternal } from './external.ts'
import type { HeldShard } from './held-shard.ts'
import { firstLookupMs, unsentReport } from './reports.ts'
import { runTransactional } from './transactional.ts'

const ORPHANS_PER_STEP = 500
/** Windows of a shard are at most 10,000 items: this bound is never reached, and a loop without one has no end. */
const ORPHAN_STEPS_MAX = 1_000

/** Runs a shard until it has nothing to do, is told to stop, or is lost. Answers with the milliseconds until it is due again. */
export const runShard = async (context: RunContext, held: HeldShard): Promise<number | null> => {
  const subject = { operationId: held.lease.operationId }
  await probe('shard-claimed', subject)
  await explainOrphans(context, held)
  await probe('orphans-explained', subject)
  const traceparent = await start(context, held)
  await probe('run-started', subject)
  const { executor } = held
  switch (executor.kind) {
    case 'external':
      await runExternal(context, held, executor, traceparent)
      break
    case 'transactional':
      await runTransactional(context, held, executor)
      break
    case 'artifact':
      await runArtifact(context, held, executor, traceparent)
  }
  await probe('run-ended', subject)
  return finish(context, held)
}

/**
 * Intents that an earlier holder left behind become `uncertain`, with a case: nobody knows whether they were sent. Those of
 * an artifact are tried again: what was written and is not named by any row is nothing (storage/run/publish.ts).
 */
const explainOrphans = async (context: RunContext, held: HeldShard): Promise<void> => {
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
    held.step()
  }
}

/** The operation becomes `running` with its first shard; a path that starts at a shard has committed before (L2). */
const start = async ({ database, wakeUps }: RunContext, { lease, stop }: HeldShard): Promise<string | null> => {
  if (stop !== null) return null
  const traceparent = await database.query((connection) => markStarted(connection, lease.tenantId, lease.operationId))
  wakeUps.send('change')
  return traceparent
}

const finish = async (context: RunContext, held: HeldShard): Promise<number | null> => {
  const { lease, type } = held
  held.finishing = true
  // a lease that ran out on our clock may still be ours in the database: the fence decides
  const finished = held.lost
    ? null
    : await finishShard(context.database, lease, { lastWaits: type.effect === 'artifact' })
  await probe('shard-finished', { operationId: lease.operationId })
  if (finished?.state === 'done') await settleOperation(context, lease.tenantId, lease.operationId)
  context.wakeUps.send('change')
  return finished?.state === 'ready' ? finished.dueInMs : null
}
