import { canTransition, settle as decideStatus, isFinal, type OperationStatus } from '../domain/operation.ts'
import { probe } from '../probe.ts'
import { explainStopped } from '../storage/run/explain-stopped.ts'
import { readSettleFacts, writeStatus } from '../storage/settle.ts'
import type { ServiceContext } from './context.ts'

/** Somebody else changed the operation each time: the sweep comes back to it. */
const SETTLE_TRIES = 20

/** Where the facts have brought an operation. */
export interface Settled {
  status: OperationStatus
  /** This call has made it final, and others wait for it: they are next. */
  awaited: boolean
}

/**
 * Brings the status of one operation in line with the facts: decides with the pure function and writes only under the version
 * it has read. Null: no such operation, or it keeps changing.
 */
export const settleStatus = async (
  { database, wakeUps, ended }: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  tenantId: number,
  operationId: string,
): Promise<Settled | null> => {
  for (let tries = 0; tries < SETTLE_TRIES; tries++) {
    const facts = await database.query((connection) => readSettleFacts(connection, tenantId, operationId))
    if (!facts) return null
    await probe('settle-facts-read', { operationId })
    if (facts.unexplainedSteps) {
      await explainStopped(database, { tenantId, operationId })
      wakeUps.send('change')
      continue
    }
    const status = decideStatus(facts)
    if (status === facts.status) return { status, awaited: false }
    if (!canTransition(facts.status, status)) {
      throw new Error(`settle wants ${facts.status} → ${status}, which is no transition`)
    }
    const final = isFinal(status)
    const written = await database.query((connection) =>
      writeStatus(connection, {
        tenantId,
        operationId,
        seenVersion: facts.version,
        status,
        final,
        summary: final ? JSON.stringify({ status, counts: facts.counts, waiting: facts.waiting }) : null,
      }),
    )
    if (written) {
      await probe('settled', { operationId })
      wakeUps.send('change')
      if (final) {
        const { type, counts } = facts
        ended?.({ operationId, type, status, counts, tookMs: written.tookMs, traceparent: written.traceparent })
      }
      return { status, awaited: final && written.awaited }
    }
  }
  return null
}
