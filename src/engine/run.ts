/**
 * The path of a shard through a worker, as a list of steps. The protocol that makes each step safe under a crash is
 * described in storage/run/lease.ts.
 */
import { traceIdOf } from '../domain/audit.ts'
import { formatId } from '../domain/ids.ts'
import { probe } from '../probe.ts'
import { explainOrphans } from '../services/explain-orphans.ts'
import { settleOperation } from '../services/settle.ts'
import { finishShard } from '../storage/run/finish.ts'
import { markStarted } from '../storage/settle.ts'
import { NO_SPAN, type Span } from '../tracing.ts'
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
  held.started = start(context, held)
  held.started.catch(() => {}) // it is waited for below
  const span = startSpan(context, held)
  try {
    await work(inTrace(context, held), held)
    await probe('run-ended', subject)
    const dueInMs = await finish(context, held)
    span.end('ok')
    return dueInMs
  } catch (error) {
    span.end('error')
    throw error
  }
}

const work = async (context: RunContext, held: HeldShard): Promise<void> => {
  const { executor } = held
  // an external run waits for it behind its first reads
  if (executor.kind !== 'external') await held.started
  switch (executor.kind) {
    case 'external':
      await runExternal(context, held, executor)
      await held.started // a run that claimed nothing has not seen that it failed
      break
    case 'transactional':
      await runTransactional(context, held, executor)
      break
    case 'artifact':
      await runArtifact(context, held, executor)
  }
}

/** Lines of the run name the trace of its submission. */
const inTrace = (context: RunContext, { lease: { traceparent } }: HeldShard): RunContext =>
  traceparent === null ? context : { ...context, log: context.log.child({ trace_id: traceIdOf(traceparent) }) }

/** The span of the run; what the run does is below it, and all of it is linked to the submission. */
const startSpan = ({ tracing }: RunContext, held: HeldShard): Span => {
  if (!tracing) return NO_SPAN
  const { lease, type } = held
  const { traceparent } = lease
  const run = tracing.start('shard run', {
    kind: 'consumer',
    link: traceparent,
    attributes: {
      'opledger.operation_id': formatId('op', lease.operationId),
      'opledger.type': type.name,
      'opledger.shard': lease.shard,
      'opledger.epoch': lease.epoch,
    },
  })
  if (run.traceparent === null) return NO_SPAN
  const parent = run.traceparent
  held.trace = (name, attributes) =>
    tracing.start(name, { kind: name === 'call' ? 'client' : 'internal', parent, link: traceparent, attributes })
  return run
}

/** The operation becomes `running` with its first shard; a path that starts at a shard has committed before (L2). */
const start = async ({ database, wakeUps }: RunContext, { lease, stop }: HeldShard): Promise<void> => {
  if (stop === null) {
    await database.query((connection) => markStarted(connection, lease.tenantId, lease.operationId))
    wakeUps.send('change')
  }
  await probe('run-started', { operationId: lease.operationId })
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
