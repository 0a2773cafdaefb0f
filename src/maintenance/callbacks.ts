/**
 * Judges the events of providers that still wait: deferred ones, when their call has ended or the absence cannot change any
 * more, and those whose receiver died before it judged them. The protocol stands in storage/callbacks.ts.
 */
import { formatId } from '../domain/ids.ts'
import type { Log } from '../log.ts'
import type { ServiceContext } from '../services/context.ts'
import { judgeCallback } from '../services/judge-callback.ts'
import { takePendingCallbacks } from '../storage/callbacks.ts'
import type { MaintenanceService } from './service.ts'
import { workOnEach } from './work-on-each.ts'

const EVERY_MS = 500
const CALLBACKS_PER_RUN = 100
/** How long a taken event belongs to whoever took it: longer than judging it may take. */
const HOLD_MS = 60_000

export const callbacks = (context: ServiceContext, log: Pick<Log, 'info' | 'warn'>): MaintenanceService => {
  const types = context.types
    .list()
    .filter((type) => type.callback !== null)
    .map((type) => type.name)

  return {
    name: 'callbacks',
    everyMs: EVERY_MS,
    async runOnce() {
      if (types.length === 0) return { more: false }
      const pending = await context.database.query((connection) =>
        takePendingCallbacks(connection, { types, limit: CALLBACKS_PER_RUN, holdMs: HOLD_MS }),
      )
      const done = await workOnEach(pending, log, 'judging a callback', async (event) => {
        const type = context.types.get(event.type)
        if (!type) return
        const { outcome, target, statement } = await judgeCallback(context, type, event)
        log.info(
          {
            operation_id: target && formatId('op', target.operationId),
            item_key: target?.itemKey,
            effect_key: statement?.effectKey,
            outcome,
          },
          'callback judged',
        )
      })
      return { more: pending.length === CALLBACKS_PER_RUN && done > 0 }
    },
  }
}
