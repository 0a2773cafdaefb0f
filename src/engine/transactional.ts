/**
 * Running a shard of a transactional type: batch after batch, each one transaction of effects, handler, ledger and cursor
 * (storage/run/transactional.ts). A batch whose handler fails is halved until the failing items stand alone; faults of the
 * database abort the batch and never fail an item. A stop between two batches is a safe boundary; a stop within one rolls
 * it back, as its fence no longer holds.
 */
import { formatId } from '../domain/ids.ts'
import type { Executor } from '../domain/operation-type.ts'
import { probe } from '../probe.ts'
import { assertWindow } from '../services/assert-window.ts'
import { failureFate } from '../services/outcome-reports.ts'
import type { Database } from '../storage/database.ts'
import { abortsBatch } from '../storage/database-faults.ts'
import { explainKnownKeys } from '../storage/run/claim-retries.ts'
import { lockUndone, markCompensated, undoingsOf } from '../storage/run/compensation.ts'
import { KeyKnown, type Range, takeNewEffects } from '../storage/run/plain-batch.ts'
import {
  type BatchAttempt,
  type BatchOf,
  type BatchOutcome,
  commitBatch,
  takeBatchEffects,
} from '../storage/run/transactional.ts'
import {
  type RunnableItem,
  readDueRetries,
  readItems,
  readPosition,
  readRetryAttempts,
  readWindow,
} from '../storage/run/window.ts'
import { executeBatch } from './batch-handler.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'
import { charge, uncharge, workerCrash } from './suspects.ts'

export type TransactionalExecutor = Extract<Executor, { kind: 'transactional' }>

export interface BatchEntry extends RunnableItem, BatchAttempt {}

type Batch = BatchOf<BatchEntry>

/** Windows read ahead of the cursor. */
const WINDOWS_AHEAD = 4
const RETRY_LOOK_MS = 500
const DATABASE_WAIT_MS = 250
const DATABASE_TRIES_MAX = 40

class FenceLost extends Error {
  override readonly name = 'FenceLost'
}

export const runTransactional = async (
  context: RunContext,
  held: HeldShard,
  executor: TransactionalExecutor,
): Promise<void> => {
  const { database, meter, log } = context
  const { lease, type } = held
  let cursor = lease.cursor
  let ahead: RunnableItem[] = []
  let size = type.batch.maxItems
  let retriesLookedAt = Number.NEGATIVE_INFINITY
  let faults = 0
  /** Until one of them was not: then this run looks at each, as the next ones are likely to be known too. */
  let keysAreNew = true

  const nextRetries = async (limit: number): Promise<Batch | null> => {
    retriesLookedAt = performance.now()
    const ords = await database.query((connection) => readDueRetries(connection, lease, limit))
    if (ords.length === 0) return null
    await explainKnownKeys(database, lease, ords, type.codeVersion)
    const attempts = await database.query((connection) => readRetryAttempts(connection, lease, ords))
    if (attempts.size === 0) return null
    const items = await database.query((connection) => readItems(connection, lease, [...attempts.keys()]))
    meter.retries(type.name, [...attempts.values()].filter((attempt) => attempt > 1).length)
    return { items: items.map((item) => ({ ...item, attempt: attempts.get(item.ord) ?? 1 })), range: null }
  }

  const nextBatch = async (): Promise<Batch | null> => {
    // while isolated, waiting items are suspects like those at the cursor, and come first
    if (held.isIsolated || cursor >= lease.toOrd || performance.now() - retriesLookedAt >= RETRY_LOOK_MS) {
      const retries = await nextRetries(held.isIsolated ? 1 : size)
      if (retries) return retries
    }
    if (held.isIsolated && cursor >= (lease.isolateUntil ?? 0)) held.endIsolation()
    if (cursor >= lease.toOrd) return null
    if (ahead.length === 0) {
      ahead = await database.query((connection) =>
        readWindow(connection, lease, cursor, Math.min(lease.toOrd, cursor + WINDOWS_AHEAD * type.batch.maxItems)),
      )
    }
    const items = ahead.slice(0, held.isIsolated ? 1 : size)
    assertWindow(items, cursor)
    return { items: items.map((item) => ({ ...item, attempt: 1 })), range: { from: cursor, to: cursor + items.length } }
  }

  const run = async (batch: Batch): Promise<BatchOutcome[] | null> => {
    if (held.isIsolated) return runSuspect(context, held, executor, batch)
    if (keysAreNew && batch.range) {
      try {
        return await runBatch(database, held, executor, batch, { newKeysIn: batch.range })
      } catch (error) {
        if (!(error instanceof KeyKnown)) throw error
        keysAreNew = false
      }
    }
    return runBatch(database, held, executor, batch)
  }

  const done = (batch: Batch, tookMs: number): void => {
    faults = 0
    if (batch.range) {
      cursor = batch.range.to
      ahead = ahead.slice(batch.items.length)
    }
    // a batch is at most max_items long and about max_ms, whichever comes first
    size = tookMs > type.batch.maxMs ? Math.max(1, Math.floor(size / 2)) : Math.min(type.batch.maxItems, size * 2)
    held.step()
  }

  while (held.mayGoOn) {
    try {
      const batch = await nextBatch()
      if (!batch) return
      const startedAtMs = performance.now()
      const outcomes = await inSpan(held, batch, () => run(batch))
      if (outcomes === null) return
      held.charge = null // the commit has cleared it
      await probe('batch-committed', { operationId: lease.operationId })
      const tookMs = performance.now() - startedAtMs
      meter.record({ type: type.name, durationMs: tookMs, downstreamError: false })
      meter.items(
        type.name,
        outcomes.length,
        outcomes.filter((outcome) => outcome.failureClass === 'validation_rejected').length,
      )
      context.wakeUps.send('change')
      done(batch, tookMs)
    } catch (error) {
      if (held.isIsolated) await uncharge(context, held)
      if (error instanceof FenceLost) {
        const position = await database.query((connection) => readPosition(connection, lease)).catch(() => null)
        if (!position) held.lost = true
        else if (position.stopRequested !== null) held.stopped(position.stopRequested)
        return
      }
      if (!abortsBatch(error) || ++faults > DATABASE_TRIES_MAX) throw error
      log.warn({ err: error, operation_id: lease.operationId, shard: lease.shard }, 'a batch was rolled back')
      await new Promise((resolve) => setTimeout(resolve, DATABASE_WAIT_MS))
      // the reply to a COMMIT may have been lost: only the cursor in the database tells
      const position = await database.query((connection) => readPosition(connection, lease)).catch(() => undefined)
      if (position === null) {
        held.lost = true
        return
      }
      if (position && position.cursor !== cursor) {
        cursor = position.cursor
        ahead = []
      }
    }
  }
}

const inSpan = async <T>(held: HeldShard, { items }: Batch, work: () => Promise<T>): Promise<T> => {
  const span = held.trace('batch', { 'opledger.type': held.type.name, 'opledger.items': items.length })
  try {
    const result = await work()
    span.end('ok')
    return result
  } catch (error) {
    span.end('error')
    throw error
  }
}

/**
 * The item that may have killed a worker runs alone, and its run is counted before it begins. When the runs are used up it
 * becomes a dead letter without running again. Null: the lease is lost.
 */
const runSuspect = async (
  context: RunContext,
  held: HeldShard,
  executor: TransactionalExecutor,
  batch: Batch,
): Promise<BatchOutcome[] | null> => {
  const [item] = batch.items
  if (!item) return []
  const crashes = await charge(context, held, item.ord)
  if (crashes === null) return null
  const { maxAttempts } = held.type.retry
  if (crashes <= maxAttempts) return runBatch(context.database, held, executor, batch)
  const { state, ...failure } = workerCrash(maxAttempts)
  const charged = { ...item, attempt: maxAttempts }
  const fate = failureFate(held.type, failure, charged)
  return runBatch(
    context.database,
    held,
    executor,
    { ...batch, items: [charged] },
    {
      verdict: {
        ord: item.ord,
        item: state,
        ...failure,
        effectRef: null,
        retryMs: fate.retryMs,
        fingerprint: fate.fingerprint,
      },
    },
  )
}

/**
 * One transaction. `newKeysIn` is the window whose keys are taken for new ones; `KeyKnown` is thrown where they are not.
 * `verdict` is given instead of a run for an item that must not run any more.
 */
const runBatch = (
  database: Database,
  held: HeldShard,
  executor: TransactionalExecutor,
  batch: Batch,
  { newKeysIn, verdict }: { newKeysIn?: Range; verdict?: BatchOutcome } = {},
): Promise<BatchOutcome[]> =>
  database.transaction(async (connection) => {
    const { sql } = connection
    const { lease, type } = held
    const subject = { operationId: lease.operationId }
    const lost = await (newKeysIn ? takeNewEffects(sql, lease, newKeysIn) : takeBatchEffects(sql, lease, batch))
    await probe('batch-effects-taken', subject)
    const winners = batch.items.filter(({ ord }) => !lost.has(ord))
    const undoings = lease.compensating ? undoingsOf(winners) : []
    if (undoings.length > 0) await lockUndone(sql, lease.tenantId, undoings)
    const outcomes = verdict
      ? winners.map(() => verdict)
      : await executeBatch({
          connection,
          type,
          executor,
          items: winners,
          run: { tenantId: lease.tenantId, operationId: formatId('op', lease.operationId) },
        })
    await probe('batch-handled', subject)
    const failed = new Set(outcomes.filter(({ item }) => item === 'failed').map(({ ord }) => ord))
    const undone = lease.compensating ? undoingsOf(winners.filter(({ ord }) => !failed.has(ord))) : []
    if (undone.length > 0) {
      await markCompensated(sql, lease, undone, {
        ...lease,
        source: 'worker',
        actor: null,
        codeVersion: type.codeVersion,
      })
    }
    const committed = await commitBatch(sql, lease, {
      ...batch,
      outcomes,
      lost,
      codeVersion: type.codeVersion,
    })
    if (!committed) throw new FenceLost('the lease was lost or a stop came first')
    return outcomes
  })
