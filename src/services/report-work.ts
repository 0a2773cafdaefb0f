/**
 * `POST /worker/results` and `POST /worker/give-back`: what became of items, and the next ones. The contract is
 * docs/worker-api.md. What was observed is written first, whatever has become of the lease; then the lease is renewed and looked
 * at, and only then is anything handed out.
 */
import { leaseWithinMs } from '../domain/remote-work.ts'
import { acknowledgeStops, renewLeases } from '../storage/run/heartbeat.ts'
import { advanceEpoch, findStalled, type Holding, readHolding } from '../storage/run/remote.ts'
import { noteRemoteWorker } from '../storage/worker-presence.ts'
import type { WorkContext } from './claim-work.ts'
import { takeNext } from './next-work.ts'
import type { Principal } from './principal.ts'
import { explainInHand, finishHold, holdOf, type RemoteHold } from './remote-hold.ts'
import type { GiveBackWorkRequest, ReportWorkRequest } from './requests.ts'
import type { ReportedWorkView } from './views.ts'
import { writeResults } from './work-results.ts'
import { type LeaseTicket, openLease, sealLease } from './worker-tokens.ts'

/** Errors: lease-not-found, unknown-operation-type. */
export const reportWork = async (
  context: WorkContext,
  { tenantId }: Principal,
  request: ReportWorkRequest,
): Promise<ReportedWorkView> => {
  const startedMs = performance.now()
  const key = await context.tokenKey()
  const asked = openLease(key, tenantId, request.lease)
  const written = await writeResults(context, holdOf(context, asked, asked.type), request.results)
  const ticket = request.lostAnswer ? await returnUnread(context, asked, request.inHand) : asked
  if (ticket === null) return { ...LOST, ...written }
  const hold = holdOf(context, ticket, ticket.type)
  const { holding, readMs, stalled } = await renew(context, { ticket, hold }, request.stopSeen)
  if (holding === null) return { ...LOST, ...written }
  const within = leaseWithinMs({
    waitedMs: readMs - startedMs,
    leaseLeftMs: holding.leaseLeftMs,
    leaseMs: hold.type.leaseMs,
  })
  const wanted = request.maxItems ?? hold.type.concurrency
  const next = await takeNext(context, { key, ticket, hold, holding, within, startedMs, wanted, stalled })
  if (next.batch === null && holding.inFlight === 0) {
    const finished = await finishHold(context, ticket)
    if (finished) {
      const dueInMs = finished.dueInMs === null ? null : Math.max(finished.dueInMs, next.rateWaitMs ?? 0)
      return { ...LOST, ...written, leaseState: 'finished', dueInMs }
    }
  }
  return answerNow(context, ticket, { ...written, ...next, lease: sealLease(key, ticket), leaseWithinMs: within })
}

/**
 * What an answer that was never read had handed out goes back. Under a new epoch: a call of the worker that is still on its way,
 * and says the same of an earlier moment, must not speak of what is handed out from now on. Null: the lease is lost.
 */
const returnUnread = async (
  context: WorkContext,
  asked: LeaseTicket,
  inHand: ReportWorkRequest['inHand'],
): Promise<LeaseTicket | null> => {
  const epoch = await advanceEpoch(context.database, asked)
  if (epoch === null) return null
  const ticket = { ...asked, epoch }
  const kept = new Set(inHand.map(({ effectKey, send }) => `${send} ${effectKey}`))
  await explainInHand(context, holdOf(context, ticket, ticket.type), 'unsent', ({ effectKey, send }) =>
    kept.has(`${send} ${effectKey}`),
  )
  return ticket
}

/** The holder ends its lease in order. Errors: lease-not-found, unknown-operation-type. */
export const giveBackWork = async (
  context: WorkContext,
  { tenantId }: Principal,
  request: GiveBackWorkRequest,
): Promise<ReportedWorkView> => {
  const ticket = openLease(await context.tokenKey(), tenantId, request.lease)
  const hold = holdOf(context, ticket, ticket.type)
  const written = await writeResults(context, hold, request.results)
  await explainInHand(context, hold, request.rest)
  const finished = await finishHold(context, ticket)
  return { ...LOST, ...written, ...(finished && { leaseState: 'finished' as const, dueInMs: finished.dueInMs }) }
}

const LOST: ReportedWorkView = {
  lease: null,
  leaseState: 'lost',
  stop: null,
  giveBack: false,
  leaseWithinMs: 0,
  recorded: 0,
  unknown: [],
  inHand: 0,
  batch: null,
  dueInMs: null,
}

/** A lease with an item that should have been reported long ago is not renewed, as in a heartbeat. */
const renew = async (
  { database }: WorkContext,
  { ticket, hold }: { ticket: LeaseTicket; hold: RemoteHold },
  stopSeen: 'pause' | 'cancel' | null,
): Promise<{ holding: Holding | null; readMs: number; stalled: boolean }> =>
  database.query(async (connection) => {
    const stalled = (await findStalled(connection, [{ ...ticket, stallMs: hold.type.stallMs }])).size > 0
    if (!stalled) await renewLeases(connection, ticket.workerId, [ticket])
    if (stopSeen !== null) await acknowledgeStops(connection, [{ ...ticket, stop: stopSeen }])
    await noteRemoteWorker(connection, { id: ticket.workerId, tenantId: ticket.tenantId, state: null })
    const readMs = performance.now()
    return { holding: await readHolding(connection, ticket), readMs, stalled }
  })

/** The lease is still held: what is in hand, and whether a stop came meanwhile, is said as it is now. */
const answerNow = async (
  { database }: WorkContext,
  ticket: LeaseTicket,
  answer: Pick<ReportedWorkView, 'lease' | 'recorded' | 'unknown' | 'batch' | 'giveBack' | 'leaseWithinMs'>,
): Promise<ReportedWorkView> => {
  const { lease, recorded, unknown, batch, giveBack, leaseWithinMs: within } = answer
  const now = await database.query((connection) => readHolding(connection, ticket))
  if (now === null) return { ...LOST, recorded, unknown }
  return {
    lease: batch?.lease ?? lease,
    leaseState: 'held',
    stop: now.stopRequested,
    giveBack,
    leaseWithinMs: within,
    recorded,
    unknown,
    inHand: now.inFlight,
    batch,
    dueInMs: null,
  }
}
