/** Forgets chains of operations by age; the protocol is in the header of storage/retention.ts. */
import { formatId } from '../domain/ids.ts'
import type { OperationType } from '../domain/operation-type.ts'
import { keptBecause, keptDays, PURGE_STAGES, type PurgeStage } from '../domain/retention.ts'
import type { Log } from '../log.ts'
import { probe } from '../probe.ts'
import type { ServiceContext } from '../services/context.ts'
import { purgeRows, readMarked } from '../storage/purge-rows.ts'
import { type ChainPlace, markChain, readAgedChains } from '../storage/retention.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 10_000
/** Of a type, looked at in one run. */
const CHAINS_PER_RUN = 100
const OPERATIONS_PER_RUN = 20

/**
 * Chains are looked at from the oldest on, and each run goes on behind the last one: those that are kept, however many, stand
 * in nobody's way. Operations of types that no worker has any more are kept.
 */
export const retention = (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  log: Pick<Log, 'warn' | 'info'>,
): MaintenanceService => {
  const places = new Map<string, ChainPlace>()

  const mark = async (type: OperationType, stage: PurgeStage): Promise<number> => {
    const name = `${type.name}/${stage}`
    const days = keptDays(stage, type.retention)
    const chains = await database.query((connection) =>
      readAgedChains(connection, {
        stage,
        type: type.name,
        olderThanDays: days,
        after: places.get(name) ?? null,
        limit: CHAINS_PER_RUN,
      }),
    )
    const last = chains.at(-1)
    if (last && chains.length === CHAINS_PER_RUN) places.set(name, last)
    else places.delete(name)
    let marked = 0
    await workOnEach(chains, log, 'marking a chain of operations as purged', async (chain) => {
      const ids = await markChain(database, chain, stage, (facts) => ({
        goes: keptBecause(stage, facts, type.retention).length === 0,
        reason: `kept for ${days} days`,
      }))
      if (ids === null) return
      marked++
      log.info(
        { operation_id: formatId('op', chain.operationId), type: type.name, stage, operations: ids.length },
        'operations are purged, as their time is over',
      )
      await probe('chain-marked', { operationId: chain.operationId })
    })
    return marked
  }

  return {
    name: 'retention',
    everyMs: EVERY_MS,
    async runOnce() {
      let changed = 0
      const marked = await database.query((connection) => readMarked(connection, OPERATIONS_PER_RUN))
      await workOnEach(marked, log, 'deleting purged rows', async (operation) => {
        const purged = await purgeRows(database, operation)
        if (purged !== null) changed++
        await probe('rows-purged', { operationId: operation.operationId })
      })
      for (const type of types.list()) for (const stage of PURGE_STAGES) changed += await mark(type, stage)
      return { more: changed > 0 }
    },
  }
}
