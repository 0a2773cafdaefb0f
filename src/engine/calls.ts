/**
 * The call of one claimed item: whether it may begin, what is asked before it, and what is to be reported of it.
 *
 * It is asked for twice whether a call may begin: when it is taken from the queue, and right before its first byte, as it may
 * wait for a connection in between (`mayStart`).
 */
import { formatId } from '../domain/ids.ts'
import { fitsLease, maySend } from '../domain/lease.ts'
import type { CallReport, SendCall } from '../domain/operation-type.ts'
import { probe } from '../probe.ts'
import { askBeforeSend, mustAskFirst } from '../services/doubted-send.ts'
import { sentReport, unsentReport } from '../services/outcome-reports.ts'
import type { Report } from '../storage/run/evidence.ts'
import type { RunnableItem } from '../storage/run/window.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'

/** What makes the calls: an external type's executor, or the writer of an artifact's chunks. */
export interface Sender {
  callTimeoutMs: number
  /** Never throws. */
  send(call: SendCall, claimed: { ord: number; send: number }): Promise<CallReport>
}

export interface ClaimedItem extends RunnableItem {
  send: number
  attempt: number
  resend: boolean
  explained: boolean
  /** Last instant, on our clock, at which the call may start. */
  sendByMs: number
}

export interface Calls {
  /** Whether a call that begins now is within its time, and nobody has told the run to stop. */
  maySend(item: ClaimedItem): boolean
  /** Whether what is left of the lease holds a call: without that nothing should be claimed, as it could only go back. */
  fitsLease(): boolean
  make(item: ClaimedItem): Promise<Report>
}

export const openCalls = ({ meter }: Pick<RunContext, 'meter'>, held: HeldShard, executor: Sender): Calls => {
  const { lease, type } = held
  const { traceparent } = lease
  const { callTimeoutMs } = executor

  const mayGoOnFrom = (item: ClaimedItem, nowMs: number): boolean =>
    held.mayGoOn && maySend({ nowMs, leaseEndsMs: held.leaseEndsMs, sendByMs: item.sendByMs, callTimeoutMs })
  const maySendNow = (item: ClaimedItem): boolean => mayGoOnFrom(item, performance.now())

  /** The call's time began at `startedAtMs`, and is over at its deadline, however late its first byte is. */
  const mayStartNow = (item: ClaimedItem, startedAtMs: number): boolean =>
    performance.now() < startedAtMs + callTimeoutMs && mayGoOnFrom(item, startedAtMs)

  return {
    maySend: maySendNow,
    fitsLease: () => fitsLease({ nowMs: performance.now(), leaseEndsMs: held.leaseEndsMs, callTimeoutMs }),
    async make(item) {
      const standing = { operationId: lease.operationId, itemKey: item.key }
      await probe('send-allowed', standing)
      const call = {
        effectKey: item.effectKey,
        step: item.step,
        itemKey: item.key,
        input: item.input,
        operationId: formatId('op', lease.operationId),
        type: type.name,
        attempt: item.attempt,
        traceparent,
      }
      if (mustAskFirst(held, item, call)) {
        const found = await askBeforeSend(held, item, call)
        held.step()
        if (found !== null) return found
        // asking took time, in which the gate may have closed
        if (!maySendNow(item)) return unsentReport(item)
      }
      const startedAtMs = performance.now()
      const span = held.trace('call', {
        'opledger.type': type.name,
        'opledger.step': item.step,
        'opledger.attempt': item.attempt,
      })
      const sending = executor.send(
        { ...call, traceparent: span.traceparent ?? traceparent, mayStart: () => mayStartNow(item, startedAtMs) },
        item,
      )
      await probe('send-begun', standing)
      const { outcome, downstreamError } = await sending
      span.set({ 'opledger.outcome': outcome.state })
      span.end(downstreamError ? 'error' : 'ok')
      await probe('send-answered', standing)
      if (outcome.state === 'unsent') return unsentReport(item)
      meter.record({ type: type.name, durationMs: performance.now() - startedAtMs, downstreamError })
      return sentReport(type, item, outcome)
    },
  }
}
