import type { OperationStatus } from '../domain/operation.ts'
import type { ServiceContext } from './context.ts'
import { lookBehind } from './dependents.ts'
import { settleStatus } from './settle-status.ts'

/**
 * Brings the status of an operation in line with the facts, and looks at those that wait for it when it has become final.
 * Whoever finishes a shard or converges an effect calls it, any number of times. Null: no such operation, or it keeps changing
 * (the sweep comes back to it).
 */
export const settleOperation = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  tenantId: number,
  operationId: string,
): Promise<OperationStatus | null> => {
  const settled = await settleStatus(context, tenantId, operationId)
  if (settled?.awaited) await lookBehind(context, { tenantId, operationId })
  return settled?.status ?? null
}
