/**
 * `POST /worker/results` and `POST /worker/give-back`: what became of items, and the next ones. The contract is
 * docs/worker-api.md. What was observed is written first, whatever has become of the lease; then the lease is renewed and looked
 * at, and only then is anything handed out.
 */
import { hiderOf, hideTexts, maskedValues } from '../domain/hidden-values.ts'
import { addDuration } from '../domain/latency.ts'
import type { SendOutcome } from '../domain/operation-type.ts'
import { isIsolated, leaseWithinMs, remoteRoom, sendWithinMs } from '../domain/remote-work.ts'
import { othersWait } from '../storage/run/claim-shards.ts'
import type { Report } from '../storage/run/converge.ts'
import { acknowledgeStops, renewLeases } from '../storage/run/heartbeat.ts'
import {
  advanceEpoch,
  findStalled,
  type Holding,
  readHolding,
  readSentEffects,
  type SentEffect,
} from '../storage/run/remote.ts'
import { readItems } from '../storage/run/window.ts'
import { addTypeMinutes, emptyDelta } from '../storage/type-minutes.ts'
import { noteRemoteWorker } from '../storage/worker-presence.ts'
import { batchView, type WorkContext } from './claim-work.ts'
import { convergeEvidence } from './converge.ts'
import { type HandedItem, handOut } from './hand-out.ts'
import { sentReport, unsentReport, workerEvidence } from './outcome-reports.ts'
import type { Principal } from './principal.ts'
import { explainInHand, finishHold, holdOf, type RemoteHold, runnableOf } from './remote-hold.ts'
import type { GiveBackWorkRequest, ReportWorkRequest, WorkResult } from './requests.ts'
import type { ReportedWorkView, WorkBatchView } from './views.ts'
import { type LeaseTicket, openLease, sealLease } from './worker-tokens.ts'

/** As long as a worker process keeps a shard while others wait. */
const TURN_MS = 10_000

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

/** Writes outcomes, also those of a lease that is lost: late evidence overwrites nothing (storage/run/converge.ts). */
const writeResults = async (
  context: WorkContext,
  hold: RemoteHold,
  results: readonly WorkResult[],
): Promise<{ recorded: number; unknown: string[] }> => {
  if (results.length === 0) return { recorded: 0, unknown: [] }
  const keys = results.map(({ effectKey }) => effectKey)
  const sent = await context.database.query((connection) => readSentEffects(connection, hold.lease, keys))
  const masked = await readMasked(context, hold, [...sent.values()])
  const said = results.flatMap((result) => {
    const effect = sent.get(result.effectKey)
    if (!effect) return []
    return [{ result, report: reportOf(hold, effect, withoutMasked(result, masked.get(effect.ord))) }]
  })
  let recorded = 0
  for (const group of oneOfEachItem(said)) {
    const evidence = workerEvidence(
      hold,
      group.map(({ report }) => report),
    )
    const { moved } = await convergeEvidence(context, hold.lease, evidence)
    const counted = group.filter(({ report }) => moved.has(report.ord))
    recorded += counted.length
    await measure(context, hold, counted)
  }
  return { recorded, unknown: keys.filter((key) => !sent.has(key)) }
}

/** By item, what its worker was given and must not say: it was not masked for it. */
const readMasked = async (
  { database }: WorkContext,
  { lease, type }: RemoteHold,
  effects: readonly SentEffect[],
): Promise<Map<number, string[]>> => {
  if (type.mask.length === 0) return new Map()
  const ords = effects.map(({ ord }) => ord)
  const items = await database.query((connection) => readItems(connection, lease, ords))
  return new Map(items.map(({ ord, input }) => [ord, maskedValues(input, type.mask)]))
}

const withoutMasked = (result: WorkResult, values: readonly string[] = []): WorkResult => ({
  ...result,
  outcome: hideTexts(result.outcome, hiderOf(values)),
})

type Said = { result: WorkResult; report: Report }

/** Two steps of one item cannot be told of in one statement: in the order of the list, each item once a group. */
const oneOfEachItem = (said: readonly Said[]): Said[][] => {
  const groups: Map<number, Said>[] = []
  for (const one of said) {
    const group = groups.find((known) => !known.has(one.report.ord))
    if (group) group.set(one.report.ord, one)
    else groups.push(new Map([[one.report.ord, one]]))
  }
  return groups.map((group) => [...group.values()])
}

/**
 * Whether a send was a repeat under its provider's promise is known while it is in flight. Later it is taken for one where it
 * may have been: then anything but `applied` says nothing about the first send.
 */
const reportOf = ({ type }: RemoteHold, effect: SentEffect, { send, outcome }: WorkResult): Report => {
  const resend = effect.inFlight ? effect.resend : type.providerIdempotentMs > 0 && send > 1
  const intent = {
    ord: effect.ord,
    effectKey: effect.effectKey,
    send,
    key: effect.key,
    attempt: effect.attempt,
    resend,
  }
  return outcome.state === 'unsent' ? unsentReport(intent) : sentReport(type, intent, outcomeOf(outcome))
}

const outcomeOf = (outcome: Exclude<WorkResult['outcome'], { state: 'unsent' }>): SendOutcome => {
  switch (outcome.state) {
    case 'applied':
      return { state: 'applied', ...(outcome.effectRef !== null && { effectRef: outcome.effectRef }) }
    case 'skipped':
      return {
        state: 'skipped',
        reasonCode: outcome.reasonCode ?? 'ALREADY_AT_TARGET',
        ...(outcome.effectRef !== null && { effectRef: outcome.effectRef }),
      }
    case 'failed':
      return {
        state: 'failed',
        failureClass: outcome.failureClass,
        ...(outcome.reasonCode !== null && { reasonCode: outcome.reasonCode }),
        ...(outcome.message !== null && { message: outcome.message }),
      }
    case 'uncertain':
      return {
        state: 'uncertain',
        reasonCode: outcome.reasonCode ?? 'OUTCOME_UNKNOWN',
        ...(outcome.message !== null && { message: outcome.message }),
      }
  }
}

/** Statistics, not facts: what cannot be written is not counted. */
const measure = async (
  { database }: WorkContext,
  { lease, type }: RemoteHold,
  counted: readonly Said[],
): Promise<void> => {
  const delta = emptyDelta(type.name)
  for (const { result, report } of counted) {
    if (result.outcome.state === 'unsent') continue
    delta.calls++
    if (result.downstreamError) delta.errors++
    if (result.durationMs !== null) delta.latency = addDuration(delta.latency, result.durationMs)
    if (report.item !== null) delta.items++
    if (report.failureClass === 'validation_rejected') delta.rejected++
  }
  if (delta.calls === 0) return
  await database.query((connection) => addTypeMinutes(connection, lease.workerId, [delta])).catch(() => {})
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

interface Next {
  batch: WorkBatchView | null
  giveBack: boolean
  rateWaitMs: number | null
}

const takeNext = async (
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
): Promise<Next> => {
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
