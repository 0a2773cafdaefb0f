/**
 * Asks providers what became of uncertain effects, and closes doubts that hang on another item's effect.
 *
 * A case is taken by pushing its next lookup out (SKIP LOCKED), asked about outside any transaction, and brought home by the
 * one converge. Two reconcilers take different cases; if one dies, its cases come due again. An answer that arrives after
 * somebody else closed the case moves nothing.
 */
import pLimit from 'p-limit'
import { lookupAfterMs } from '../domain/operation-type.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { LOOKUP_TURNS, lookUp, lookupHoldMs } from '../services/lookup-case.ts'
import { settleOperation } from '../services/settle.ts'
import { closeExplainedDoubts, readExplainedDoubts, takeDueLookups } from '../storage/lookups.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 250
const LOOKUPS_AT_ONCE = 16
const CASES_PER_RUN = LOOKUPS_AT_ONCE * LOOKUP_TURNS

export const reconciler = (context: ServiceContext, log: Log): MaintenanceService => {
  const limit = pLimit(LOOKUPS_AT_ONCE)
  const types = context.types
    .list()
    .filter(
      ({ executor, compensator, providerIdempotentMs }) =>
        (executor.kind === 'external' && (lookupAfterMs(executor) !== null || providerIdempotentMs > 0)) ||
        (compensator?.kind === 'external' && compensator.lookup),
    )
  const names = types.map((type) => type.name)
  const holdMs = lookupHoldMs(types)

  const lookUpDue = async (): Promise<number> => {
    if (names.length === 0) return 0
    const due = await context.database.query((connection) =>
      takeDueLookups(connection, { types: names, limit: CASES_PER_RUN, holdMs, only: null }),
    )
    await Promise.all(
      due.map((found) =>
        limit(() =>
          lookUp(context, found, null).catch((error: unknown) =>
            log.warn({ err: error, effect_key: found.effectKey }, 'a lookup failed; it is tried again'),
          ),
        ),
      ),
    )
    return due.length
  }

  const closeDoubts = async (): Promise<number> => {
    const shards = await context.database.query((connection) => readExplainedDoubts(connection, CASES_PER_RUN))
    return workOnEach(shards, log, 'closing doubts', async (shard) => {
      const closed = await closeExplainedDoubts(context.database, shard)
      if (closed === 0) return
      await settleOperation(context, shard.tenantId, shard.operationId)
      context.wakeUps.send('work')
    })
  }

  return {
    name: 'reconciler',
    everyMs: EVERY_MS,
    async runOnce() {
      const [asked, closed] = [await lookUpDue(), await closeDoubts()]
      return { more: asked === CASES_PER_RUN || closed === CASES_PER_RUN }
    },
  }
}
