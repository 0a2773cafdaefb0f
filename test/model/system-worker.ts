/** The steps of a worker in the real system, each by itself: the statements of src/engine in their order. */
import { randomUUID } from 'node:crypto'
import { convergeEvidence } from '../../src/services/converge.ts'
import { report } from '../../src/services/evidence-reports.ts'
import { firstLookupMs } from '../../src/services/outcome-reports.ts'
import { settleOperation } from '../../src/services/settle.ts'
import { claimIntents } from '../../src/storage/run/claim-intents.ts'
import { type ClaimedRetry, claimRetries, explainKnownKeys } from '../../src/storage/run/claim-retries.ts'
import { claimExpiredShards, claimReadyShards, type RunnableType } from '../../src/storage/run/claim-shards.ts'
import type { Converged } from '../../src/storage/run/converge.ts'
import type { Report } from '../../src/storage/run/evidence.ts'
import { finishShard } from '../../src/storage/run/finish.ts'
import { acknowledgeStops, readLeases, renewLeases } from '../../src/storage/run/heartbeat.ts'
import type { ClaimedShard, Lease } from '../../src/storage/run/lease.ts'
import { KeyKnown, type Range, takeNewEffects } from '../../src/storage/run/plain-batch.ts'
import {
  type BatchAttempt,
  type BatchOutcome,
  commitBatch,
  takeBatchEffects,
} from '../../src/storage/run/transactional.ts'
import {
  type RunnableItem,
  readDueRetries,
  readItems,
  readOrphanedIntents,
  readRetryAttempts,
  readWindow,
} from '../../src/storage/run/window.ts'
import { markStarted } from '../../src/storage/settle.ts'
import { putOff, type System } from './system.ts'
import { CONCURRENCY, type Flavour, type Run, stepsOf } from './world.ts'

const LIMIT = 100
const RESEND_WITHIN_MS = 3_600_000

export const leaseOf = ({ operationId, shard, workerId, epoch }: Run): Lease => ({
  tenantId: 1,
  operationId,
  shard,
  workerId,
  epoch,
})

/** At most one shard, which had run out or was ready. */
export const claim = async (system: System, from: 'expired' | 'ready'): Promise<ClaimedShard | undefined> => {
  const types = system.types.list().map(
    (type): RunnableType => ({
      name: type.name,
      version: type.version,
      leaseMs: type.leaseMs,
      windowMax: CONCURRENCY,
      compensates: false,
      codeVersion: type.codeVersion,
    }),
  )
  const workerId = randomUUID()
  const shards = await system.database.query(async (connection) =>
    from === 'expired'
      ? claimExpiredShards(connection, { workerId, types, limit: 1 })
      : (await claimReadyShards(connection, { workerId, types, limit: 1, perTenant: 1, afterTenant: 0 })).shards,
  )
  return shards[0]
}

export const explainOrphans = async (system: System, run: Run, typeName: string): Promise<void> => {
  const orphans = await system.database.query((connection) => readOrphanedIntents(connection, leaseOf(run), LIMIT))
  if (orphans.length === 0) return
  const reports = orphans.map((orphan) =>
    report(orphan, { effect: 'uncertain', item: 'uncertain', reasonCode: 'WORKER_LOST' }),
  )
  await tell(system, run, typeName, 'recovery', reports)
}

export const start = (system: System, run: Run): Promise<unknown> =>
  system.database.query((connection) => markStarted(connection, 1, run.operationId))

/** Null: refused. */
export const claimWindow = async (
  system: System,
  run: Run,
  flavour: Flavour,
  to: number,
): Promise<Set<number> | null> => {
  const lease = { ...leaseOf(run), steps: stepsOf(flavour) }
  return system.database.query((connection) =>
    claimIntents(connection, lease, { from: run.cursor, to, sendByMs: 30_000 }),
  )
}

export const readDue = (system: System, run: Run): Promise<number[]> =>
  system.database.query((connection) => readDueRetries(connection, leaseOf(run), LIMIT))

/** Null: refused. */
export const claimDue = async (system: System, run: Run, ords: readonly number[]): Promise<ClaimedRetry[] | null> => {
  const lease = leaseOf(run)
  const limits = { sendByMs: 30_000, resendWithinMs: RESEND_WITHIN_MS }
  const won = await claimRetries(system.database, lease, ords, limits)
  if (won && won.length < ords.length) await explain(system, run, ords)
  return won
}

const explain = async (system: System, run: Run, ords: readonly number[]): Promise<void> => {
  await explainKnownKeys(system.database, leaseOf(run), ords, 'c1')
  await putOff(system)
}

export const tell = (
  system: System,
  run: Run,
  typeName: string,
  source: 'worker' | 'recovery',
  reports: Report[],
): Promise<Converged> => {
  const { executor, providerIdempotentMs } = system.typeOf(typeName)
  return convergeEvidence(system, leaseOf(run), {
    source,
    epoch: run.epoch,
    workerId: run.workerId,
    actor: null,
    codeVersion: 'c1',
    lookupAfterMs: firstLookupMs({ executor, providerIdempotentMs }),
    reports,
  })
}

export const finish = async (system: System, run: Run): Promise<'ready' | 'done' | null> => {
  const finished = await finishShard(system.database, leaseOf(run))
  if (finished?.state === 'done') await settleOperation(system, 1, run.operationId)
  return finished?.state ?? null
}

/** Whether the lease still stands, and the stop that was asked for. */
export const beat = async (system: System, run: Run): Promise<{ stop: 'pause' | 'cancel' | null } | null> => {
  const lease = leaseOf(run)
  const [renewed] = await system.database.query((connection) => renewLeases(connection, run.workerId, [lease]))
  const [found] = renewed ? [renewed] : await system.database.query((connection) => readLeases(connection, [lease]))
  if (!found) return null
  const stop = run.stop === 'cancel' ? 'cancel' : found.stopRequested
  if (stop !== null) await system.database.query((connection) => acknowledgeStops(connection, [{ ...lease, stop }]))
  return { stop: found.stopRequested }
}

export type BatchItem = RunnableItem & BatchAttempt

/** Waiting items that a batch may take, after the others are explained. */
export const dueBatch = async (system: System, run: Run): Promise<BatchItem[]> => {
  const ords = await readDue(system, run)
  await explain(system, run, ords)
  const attempts = await system.database.query((connection) => readRetryAttempts(connection, leaseOf(run), ords))
  const items = await system.database.query((connection) => readItems(connection, leaseOf(run), [...attempts.keys()]))
  return items.map((item) => ({ ...item, attempt: attempts.get(item.ord) ?? 1 }))
}

export const windowBatch = async (system: System, run: Run, to: number): Promise<BatchItem[]> => {
  const lease = { ...leaseOf(run), steps: [] }
  const items = await system.database.query((connection) => readWindow(connection, lease, run.cursor, to))
  return items.map((item) => ({ ...item, attempt: 1 }))
}

class RolledBack extends Error {}

/** Null: rolled back, as the fence did not hold, or because the worker died before its commit. */
export const runBatch = async (
  system: System,
  run: Run,
  batch: { items: BatchItem[]; range: Range | null; dies: boolean },
  handle: (won: readonly BatchItem[]) => BatchOutcome[],
): Promise<BatchOutcome[] | null> => {
  const { items, range, dies } = batch
  const transaction = (newKeysIn: Range | null) =>
    system.database.transaction(async ({ sql }) => {
      const lost = await (newKeysIn
        ? takeNewEffects(sql, leaseOf(run), newKeysIn)
        : takeBatchEffects(sql, leaseOf(run), { items, range }))
      const outcomes = handle(items.filter((item) => !lost.has(item.ord)))
      if (dies) throw new RolledBack()
      const committed = await commitBatch(sql, leaseOf(run), { range, items, outcomes, lost, codeVersion: 'c1' })
      if (!committed) throw new RolledBack()
      return outcomes
    })
  try {
    return await transaction(range).catch((error: unknown) => {
      if (error instanceof KeyKnown) return transaction(null)
      throw error
    })
  } catch (error) {
    if (error instanceof RolledBack) return null
    throw error
  }
}
