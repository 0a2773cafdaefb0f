/** What a worker elsewhere is handed behind the results that it has told. */
import { isIsolated, remoteRoom, sendWithinMs } from '../domain/remote-work.ts'
import { othersWait } from '../storage/run/claim-shards.ts'
import type { Holding } from '../storage/run/remote.ts'
import { addTypeMinutes, emptyDelta } from '../storage/type-minutes.ts'
import type { WorkContext } from './claim-work.ts'
import { type HandedItem, handOut } from './hand-out.ts'
import { type RemoteHold, runnableOf } from './remote-hold.ts'
import type { WorkBatchView } from './views.ts'
import { batchView } from './work-batch.ts'
import type { LeaseTicket } from './worker-tokens.ts'

/** As long as a worker process keeps a shard while others wait. */
const TURN_MS = 10_000

export interface NextWork {
  batch: WorkBatchView | null
  giveBack: boolean
  rateWaitMs: number | null
}

/** The next items of a held lease, or why there are none: it is wanted back, told to stop, or too short. */
export const takeNext = async (
  context: WorkContext,
  facts: {
    key: string
    ticket: LeaseTicket
    hold: RemoteHold
    holding: Holding
    within: number
    startedMs: number
    wanted: number
    stalled: boolean
  },
): Promise<NextWork> => {
  const { ticket, hold, holding, within } = facts
  const { type, executor } = hold
  const giveBack =
    facts.stalled ||
    holding.switchedOff ||
    type.version !== ticket.typeVersion ||
    (await isTurnOver(context, ticket, hold))
  const fits = sendWithinMs({ leaseWithinMs: within, callTimeoutMs: executor.callTimeoutMs }) > 0
  if (giveBack || holding.stopRequested !== null || !fits) return { batch: null, giveBack, rateWaitMs: null }
  const isolated = isIsolated({ ...holding, isolated: ticket.isolated })
  const room = remoteRoom({
    wanted: facts.wanted,
    concurrency: type.concurrency,
    inFlight: holding.inFlight,
    isolated,
    ratePerSecond: type.ratePerSecond,
  })
  const { items, rateWaitMs } = await handOut(context, hold, holding, room)
  if (items.length === 0) return { batch: null, giveBack, rateWaitMs }
  await measureRetries(context, hold, items)
  const next = { items, leaseWithinMs: within, traceparent: holding.traceparent, startedMs: facts.startedMs }
  return { batch: batchView(facts.key, hold, { ...ticket, isolated }, next), giveBack, rateWaitMs }
}

const measureRetries = async (
  { database }: WorkContext,
  { lease, type }: RemoteHold,
  items: readonly HandedItem[],
): Promise<void> => {
  const retries = items.filter(({ attempt }) => attempt > 1).length
  if (retries === 0) return
  const delta = { ...emptyDelta(type.name), retries }
  await database.query((connection) => addTypeMinutes(connection, lease.workerId, [delta])).catch(() => {})
}

const isTurnOver = async ({ database }: WorkContext, ticket: LeaseTicket, { type }: RemoteHold): Promise<boolean> =>
  Date.now() - ticket.sinceMs > TURN_MS &&
  database.query((connection) => othersWait(connection, [runnableOf(type)], ticket.tenantId))
