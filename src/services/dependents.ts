/** What waits for an operation (`after`) and what becomes of it. The protocol stands in storage/dependencies.ts. */
import { formatId } from '../domain/ids.ts'
import { type DependentKey, lookAtDependent, readDependents } from '../storage/dependencies.ts'
import { requestCancel } from '../storage/stops.ts'
import type { ServiceContext } from './context.ts'
import { settleStatus } from './settle-status.ts'

type DependentsContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>

/** Looked at by the one who settled, before it goes on; the sweep looks at the rest. */
const LOOKS_MAX = 32

const byAfter = 'system:after'

/**
 * Looks at one operation that waits: lets it go, cancels it, or leaves it. True: it has become final itself, and others wait
 * for it.
 */
export const lookAt = async (context: DependentsContext, key: DependentKey): Promise<boolean> => {
  const { database, wakeUps } = context
  const decision = await lookAtDependent(database, key)
  if (!decision) return false
  switch (decision.kind) {
    case 'wait':
      wakeUps.send('change')
      return false
    case 'release':
      wakeUps.send('work')
      wakeUps.send('change')
      return false
    case 'cancel': {
      const { id, status } = decision.because
      const reason = `it was to start after ${formatId('op', id)} had succeeded, and that one is ${status}`
      if (!(await requestCancel(database, { ...key, actor: byAfter, reason }))) return false
      wakeUps.send('stop')
      return (await settleStatus(context, key.tenantId, key.operationId))?.awaited ?? false
    }
  }
}

/**
 * Looks at what waits for an operation that has become final, and at what waits for those that this cancels. Never fails: the
 * one who settled has done its part, and the sweep comes back to what is left here.
 */
export const lookBehind = (context: DependentsContext, ended: DependentKey): Promise<void> =>
  leftToSweep(async () => {
    const next = [ended]
    let looks = 0
    for (const { tenantId, operationId } of next) {
      const dependents = await context.database.query((connection) =>
        readDependents(connection, tenantId, operationId, LOOKS_MAX - looks),
      )
      for (const dependent of dependents) {
        looks++
        if (await lookAt(context, dependent)) next.push(dependent)
      }
      if (looks >= LOOKS_MAX) return
    }
  })

/** Looks at an operation that was just stored: those before may have ended meanwhile. Never fails either: it is accepted. */
export const lookAtNew = (context: DependentsContext, key: DependentKey): Promise<void> =>
  leftToSweep(() => lookAt(context, key))

const leftToSweep = async (work: () => Promise<unknown>): Promise<void> => {
  try {
    await work()
  } catch {
    // what it was about is stored
  }
}
