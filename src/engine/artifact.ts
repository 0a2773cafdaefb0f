/**
 * Running the shard of an artifact type (the protocol: storage/run/publish.ts). Its chunks go the way of external items,
 * intent → send → converge, where to send means to write a temporary object; the last item assembles and publishes them:
 *
 *   write chunks ─▶ none is open or waits ─▶ claim the publish ─▶ assemble ─▶ commit under the fence
 *        └─ some wait: the shard is given back until they are due
 */
import { mayPublish } from '../domain/artifact.ts'
import type { Executor } from '../domain/operation-type.ts'
import { assertWindow } from '../services/assert-window.ts'
import { claimIntents } from '../storage/run/claim-intents.ts'
import { claimRetries } from '../storage/run/claim-retries.ts'
import { openWorkspace, readPublishPosition } from '../storage/run/publish.ts'
import { readDueRetries, readItems } from '../storage/run/window.ts'
import { chunkWriter } from './chunk-writer.ts'
import type { RunContext } from './context.ts'
import { runExternal } from './external.ts'
import type { HeldShard } from './held-shard.ts'
import { returnUnclear } from './outcomes.ts'
import { type ClaimedPublish, publish } from './publish.ts'

export const runArtifact = async (
  context: RunContext,
  held: HeldShard,
  executor: Extract<Executor, { kind: 'artifact' }>,
): Promise<void> => {
  const { lease } = held
  await context.database.query((connection) => openWorkspace(connection, lease))
  await runExternal(context, held, chunkWriter(context, held, executor), lease.toOrd - 1)
  if (!held.mayGoOn) return
  const claimed = await claimPublish(context, held)
  if (claimed) await publish(context, held, executor, claimed)
}

/** Null: it is not its turn, it has its outcome already, or the fence did not hold. */
const claimPublish = async (context: RunContext, held: HeldShard): Promise<ClaimedPublish | null> => {
  const { database, log, meter } = context
  const { lease, type } = held
  const ord = lease.toOrd - 1
  const position = await database.query((connection) => readPublishPosition(connection, lease))
  if (position === null) held.lost = true
  if (position === null || !mayPublish(position)) return null
  const [item] = await database.query((connection) => readItems(connection, lease, [ord]))
  if (!item) throw new Error(`the publish of operation ${lease.operationId} is missing`)
  assertWindow([item], ord)
  // an assembly that outlives its lease does no harm: the commit is fenced
  const sendByMs = type.leaseMs
  try {
    if (!position.claimed) {
      const window = { from: ord, to: ord + 1, sendByMs }
      const won = await database.query((connection) => claimIntents(connection, lease, window))
      return won?.has(ord) ? { ...item, send: 1, attempt: 1 } : null
    }
    const due = await database.query((connection) => readDueRetries(connection, lease, 1))
    const won = due.length === 0 ? null : await claimRetries(database, lease, due, { sendByMs, resendWithinMs: 0 })
    const retry = won?.[0]
    if (!retry) return null
    if (retry.attempt > 1) meter.retries(type.name, 1)
    return { ...item, send: retry.send, attempt: retry.attempt }
  } catch (error) {
    log.warn({ err: error, operation_id: lease.operationId }, 'claiming a publish failed')
    await returnUnclear(context, held, new Set([ord]))
    return null
  }
}
