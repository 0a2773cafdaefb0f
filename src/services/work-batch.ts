import { sendWithinMs } from '../domain/remote-work.ts'
import type { HandOut } from './hand-out.ts'
import type { RemoteHold } from './remote-hold.ts'
import type { WorkBatchView } from './views.ts'
import { type LeaseTicket, sealLease } from './worker-tokens.ts'

/** Items with their lease, as both claims and results answer with them. */
export const batchView = (
  key: string,
  hold: RemoteHold,
  ticket: LeaseTicket,
  batch: { items: HandOut['items']; leaseWithinMs: number; traceparent: string | null; startedMs: number },
): WorkBatchView => {
  const { callTimeoutMs } = hold.executor
  const within = sendWithinMs({ leaseWithinMs: batch.leaseWithinMs, callTimeoutMs })
  return {
    lease: sealLease(key, ticket),
    type: ticket.type,
    operationId: ticket.operationId,
    isolated: ticket.isolated,
    leaseWithinMs: batch.leaseWithinMs,
    sendWithinMs: within,
    sendBy: new Date(Date.now() - (performance.now() - batch.startedMs) + within).toISOString(),
    traceparent: batch.traceparent,
    items: batch.items.map((item) => ({
      effectKey: item.effectKey,
      send: item.send,
      key: item.key,
      step: item.step,
      input: item.input,
      attempt: item.attempt,
      resend: item.resend,
    })),
  }
}
