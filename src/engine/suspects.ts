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
  const { lease, type } = held
  const crashes = await context.database.query((connection) => chargeSuspect(connection, lease, ord))
  if (crashes === null) return 'lost'
  if (crashes > type.retry.maxAttempts) return 'used-up'
  try {
    return await run()
  } finally {
    await uncharge(context, held)
  }
}

/** Who lives to tell takes its charge back: only a crash charges an item. */
export const uncharge = async ({ database, log }: RunContext, { lease }: HeldShard): Promise<void> => {
  await database
    .query((connection) => unchargeSuspect(connection, lease))
    .catch((error: unknown) => log.warn({ err: error, operation_id: lease.operationId }, 'a charge was not taken back'))
}

/** What becomes of an item that killed the process each time it ran alone. */
export const workerCrash = (runs: number) =>
  ({
    state: 'failed',
    failureClass: 'bug_suspected',
    reasonCode: 'WORKER_CRASH',
    message: `the worker process died ${runs} times while it ran this item alone`,
  }) as const
