import type { Database } from '../storage/database.ts'
import { chargeSuspect, unchargeSuspect } from '../storage/run/window.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'

/**
 * Runs one item of a shard that lost workers before. Its run is counted before it begins, so that a crash is counted too,
 * and taken back by whoever lives to tell. `used-up`: it may not run any more.
 */
export const runSuspected = async <T>(
  context: RunContext,
  held: HeldShard,
  ord: number,
  run: () => Promise<T>,
): Promise<T | 'used-up' | 'lost'> => {
  if (!held.isIsolated) return run()
  const crashes = await charge(context, held, ord)
  if (crashes === null) return 'lost'
  if (crashes > held.type.retry.maxAttempts) return 'used-up'
  try {
    return await run()
  } finally {
    await uncharge(context, held)
  }
}

/**
 * Counts a run of the item that is to run alone, and answers with the runs that were counted; null: the lease is lost. A charge
 * that could not be taken back goes first, as two for one run would be a death that nobody died.
 */
export const charge = async ({ database }: RunContext, held: HeldShard, ord: number): Promise<number | null> => {
  await takeBack(database, held)
  held.charge = { ord, before: null }
  const crashes = await database.query((connection) => chargeSuspect(connection, held.lease, ord))
  held.charge = crashes === null ? null : { ord, before: crashes - 1 }
  return crashes
}

/**
 * Who lives to tell takes its charge back: only a crash charges an item. What the database does not take now goes with the next
 * charge, or with the end of the lease.
 */
export const uncharge = async ({ database, log }: RunContext, held: HeldShard): Promise<void> => {
  await takeBack(database, held).catch((error: unknown) =>
    log.warn({ err: error, operation_id: held.lease.operationId }, 'a charge was not taken back'),
  )
}

const takeBack = async (database: Database, held: HeldShard): Promise<void> => {
  const charged = held.charge
  if (charged === null) return
  await database.query((connection) => unchargeSuspect(connection, held.lease, charged))
  held.charge = null
}

/** What becomes of an item that killed the process each time it ran alone. */
export const workerCrash = (runs: number) =>
  ({
    state: 'failed',
    failureClass: 'bug_suspected',
    reasonCode: 'WORKER_CRASH',
    message: `the worker process died ${runs} times while it ran this item alone`,
  }) as const
