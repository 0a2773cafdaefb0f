import { evidenceDecision } from '../domain/effect.ts'
import { type Converged, converge } from '../storage/run/converge.ts'
import type { Evidence } from '../storage/run/evidence.ts'
import type { ShardKey } from '../storage/run/lease.ts'
import { readEffects, recordObservation } from '../storage/run/observations.ts'
import type { ServiceContext } from './context.ts'
import { settleOperation } from './settle.ts'

/**
 * Brings evidence home, from whatever source. What moves an effect is written by one statement; what does not is looked at
 * one by one: known already, or a contradiction or evidence for an older send, which open a case and overwrite nothing.
 * Settles the operation when the shard has nothing left to run.
 *
 * `doublesMatter`: whether a send that did its work beside another one is of interest; a temporary object is not.
 */
export const convergeEvidence = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  shard: ShardKey,
  evidence: Evidence,
  { doublesMatter } = { doublesMatter: true },
): Promise<Converged> => {
  const { database, wakeUps } = context
  const converged = await converge(database, shard, evidence)
  // a person whose evidence moved nothing is refused and told the outcome: then nothing of the request stays behind
  if (converged.moved.size < evidence.reports.length && evidence.source !== 'operator' && doublesMatter) {
    await explainUnmoved(context, shard, evidence, converged)
  }
  if (converged.moved.size > 0) {
    // a running worker settles when it finishes; everybody else may just have closed the last open question
    if (evidence.source !== 'worker' || !converged.mine) {
      wakeUps.send('work')
      await settleOperation(context, shard.tenantId, shard.operationId)
    }
    wakeUps.send('change')
  }
  return converged
}

const explainUnmoved = async (
  { database }: Pick<ServiceContext, 'database'>,
  shard: ShardKey,
  evidence: Evidence,
  converged: Converged,
): Promise<void> => {
  const unmoved = evidence.reports.filter((report) => !converged.moved.has(report.ord))
  const effects = await readEffects(
    database,
    shard.tenantId,
    unmoved.map((report) => report.effectKey),
  )
  for (const report of unmoved) {
    const effect = effects.get(report.effectKey)
    if (!effect) continue
    const decision = evidenceDecision({
      effect,
      evidence: { to: report.effect, send: report.send, operationId: shard.operationId },
    })
    const cause =
      decision === 'contradiction'
        ? 'contradiction'
        : decision === 'older-send' && report.effect === 'applied'
          ? 'duplicate_suspected'
          : null
    if (cause === null) continue
    await recordObservation(database, shard, {
      cause,
      source: evidence.source === 'worker' && !converged.mine ? 'late_worker' : evidence.source,
      actor: evidence.actor,
      workerId: evidence.workerId,
      codeVersion: evidence.codeVersion,
      report,
    })
  }
}
