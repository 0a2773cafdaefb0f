/** How the status of an operation follows from the facts, and what a cancel says of items between two steps. */
import { canTransition, isFinal, settle } from '../../src/domain/operation.ts'
import { countsOf, intentsOf, type Operation, operationOf, outcomeOf, stepsOf, type World } from './world.ts'

const isOpen = (operation: Operation): boolean => operation.shards.some((shard) => shard.state !== 'done')

/** An item that a cancel stopped between two steps is `failed`, so that nobody reads that nothing happened to it. */
const explainStopped = (operation: Operation): void => {
  if (!operation.cancelled || isOpen(operation) || isFinal(operation.status)) return
  const [first] = stepsOf(operation.flavour)
  if (first === undefined) return
  for (const item of operation.items) {
    const { retry } = item
    if (!retry || retry.step === first) continue
    if (outcomeOf(item) !== null && retry.reason !== 'next_step') continue
    item.entries.push({
      step: retry.step,
      attempt: retry.attempt,
      state: 'failed',
      failureClass: 'transient',
      reasonCode: 'STOPPED_BETWEEN_STEPS',
      send: null,
      source: 'recovery',
    })
    retry.reason = 'stopped'
  }
}

/** Whoever finishes a shard or brings evidence settles; the sweep repeats it. */
export const settleOperation = (world: World, operationId: string): void => {
  const operation = operationOf(world, operationId)
  explainStopped(operation)
  const status = settle({
    status: operation.status,
    stop: operation.cancelled ? 'cancel' : operation.paused ? 'pause' : null,
    started: operation.started,
    shardsOpen: isOpen(operation),
    inFlight: operation.shards.reduce((sum, shard) => sum + intentsOf(world, operation, shard).length, 0),
    waiting: operation.items.filter((item) => item.retry !== null).length,
    counts: countsOf(operation.items),
  })
  if (status === operation.status) return
  if (!canTransition(operation.status, status)) throw new Error(`the model wants ${operation.status} → ${status}`)
  operation.status = status
  if (!['pending', 'pause_requested', 'paused', 'cancelled'].includes(status)) operation.started = true
}

/** Operations whose last worker died between finishing and settling. */
export const sweep = (world: World): void => {
  for (const operation of world.operations) {
    if (isFinal(operation.status) || operation.status === 'paused' || isOpen(operation)) continue
    if (operation.status === 'reconciliation_required' && countsOf(operation.items).uncertain > 0) continue
    settleOperation(world, operation.id)
  }
}
