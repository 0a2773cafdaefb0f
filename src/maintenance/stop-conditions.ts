/**
 * Keeps stop conditions armed while a replay or a compensation runs: what a preflight would have refused pauses it, at a
 * safe boundary, and the operation's `error` names the condition. A person looks, resolves, and resumes; if the condition still holds then, it
 * pauses again.
 */
import { areCountsSensitive } from '../domain/count-range.ts'
import { evaluateStopConditions, parseStopCondition } from '../domain/replay.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { evaluationsInRanges } from '../services/count-ranges.ts'
import { stopConditions as conditionsOf } from '../services/replay-judgement.ts'
import { pauseBySystem } from '../services/stop.ts'
import { type ArmedOperation, FIRST_OPERATION, readArmedOperations } from '../storage/stop-conditions.ts'
import { readTypeWindows, SILENT_WINDOW } from '../storage/type-minutes.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 1_000
const OPERATIONS_PER_RUN = 500
const ERROR_WINDOW_MINUTES = 5

export const stopConditions = (
  context: ServiceContext,
  log: Pick<Log, 'warn'>,
  operationsPerRun = OPERATIONS_PER_RUN,
): MaintenanceService => {
  /** Where the last run ended: each operation has its turn, however many there are. */
  let after = FIRST_OPERATION

  const conditions = (operation: ArmedOperation) => {
    const type = context.types.get(operation.type)
    // the type's conditions guard replays and compensations; any operation keeps those that it was submitted with
    if (operation.isGuarded && type) return conditionsOf(type, operation)
    return operation.stopIf.map(parseStopCondition).filter((condition) => condition !== null)
  }

  return {
    name: 'stop-conditions',
    everyMs: EVERY_MS,
    async runOnce() {
      const { database } = context
      const armed = await database.query((connection) => readArmedOperations(connection, after, operationsPerRun))
      const more = armed.length === operationsPerRun
      after = (more && armed.at(-1)) || FIRST_OPERATION
      if (armed.length === 0) return { more: false }
      const windows = await database.query((connection) => readTypeWindows(connection, ERROR_WINDOW_MINUTES))
      await workOnEach(armed, log, 'a stop condition', async (operation) => {
        const window = windows.get(operation.type) ?? SILENT_WINDOW
        const tripped = evaluateStopConditions(conditions(operation), {
          ambiguousEffectTargets: operation.uncertain,
          downstreamErrors5m: { count: window.errors, calls: window.calls },
          replayRejects: { count: operation.rejected, calls: operation.ended },
        }).filter((evaluation) => evaluation.tripped)
        if (tripped.length === 0) return
        // everybody who sees the operation reads it
        const shown = areCountsSensitive(context.types.get(operation.type)) ? evaluationsInRanges(tripped) : tripped
        const names = shown.map(({ condition, actual }) => `${condition} (now ${actual})`).join('; ')
        await pauseBySystem(context, operation, 'system:stop-condition', {
          code: 'stop-condition',
          detail: `a stop condition tripped: ${names}`,
        })
      })
      return { more }
    },
  }
}
