/**
 * The path of a shard through a worker, as a list of steps. The protocol that makes each step safe under a crash is
 * described in storage/run/lease.ts.
 */
import { probe } from '../probe.ts'
import { explainOrphans } from '../services/explain-orphans.ts'
import { settleOperation } from '../services/settle.ts'
import { finishShard } from '../storage/run/finish.ts'
import { markStarted } from '../storage/settle.ts'
import { runArtifact } from './artifact.ts'
import type { RunContext } from './context.ts'
import { runExternal } from './external.ts'
import type { HeldShard } from './held-shard.ts'
import { runTransactional } from './transactional.ts'

/** Runs a shard until it has nothing to do, is told to stop, or is lost. Answers with the milliseconds until it is due again. */
export const runShard = async (context: RunContext, held: HeldShard): Promise<number | null> => {
  const subject = { operationId: held.lease.operationId }
  await probe('shard-claimed', subject)
  await explainOrphans(context, held, () => held.step())
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
