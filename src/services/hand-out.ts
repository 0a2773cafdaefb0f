/**
 * Takes the next items of a shard for a worker elsewhere. It is the claim of engine/external.ts, one window at a time and without
 * anything kept in memory: due retries first, then the items behind the cursor, each claimed by the statements that the worker
 * processes use.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { formatId } from '../domain/ids.ts'
import type { Json } from '../domain/operation-type.ts'
import { fitInputs } from '../domain/remote-work.ts'
import { hasStep } from '../domain/steps.ts'
import { reserveCallsWithin } from '../storage/rate-limits.ts'
import { claimIntents } from '../storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../storage/run/claim-retries.ts'
import type { Report } from '../storage/run/evidence.ts'
import type { Holding } from '../storage/run/remote.ts'
import { type RunnableItem, readDueRetries, readItems, readRetryAttempts, readWindow } from '../storage/run/window.ts'
import { assertWindow } from './assert-window.ts'
import { convergeEvidence } from './converge.ts'
import { askBeforeSend, mustAskFirst } from './doubted-send.ts'
import { sentReport, unknownStep, workerEvidence } from './outcome-reports.ts'
import type { RemoteContext, RemoteHold } from './remote-hold.ts'

/** An item that is in flight from now on. */
export interface HandedItem extends RunnableItem {
  send: number
  attempt: number
  resend: boolean
  explained: boolean
}

export interface HandOut {
  items: HandedItem[]
  /** The type's rate is used up: there are items, but not before so many milliseconds. */
  rateWaitMs: number | null
}

/** Windows whose items all went elsewhere (known keys, doubts), one after the other. The next call goes on behind them. */
const ROUNDS_MAX = 20
/** A wait for the rate that is longer is the worker's, not that of a request. */
const RATE_WAIT_MAX_MS = 1_000

const NOTHING: HandOut = { items: [], rateWaitMs: null }

type Round = HandOut & { again: boolean; cursor: number }

export const handOut = async (
  context: RemoteContext,
  hold: RemoteHold,
  holding: Holding,
  room: number,
): Promise<HandOut> => {
  let { cursor } = holding
  for (let rounds = 0; rounds < ROUNDS_MAX && room > 0; rounds++) {
    const due = await takeDueRetries(context, hold, holding, { cursor, room })
    const round = due ?? (await takeWindow(context, hold, holding, { cursor, room }))
    const items = await withoutDoubts(context, hold, holding, round.items)
    if (items.length > 0) return { items, rateWaitMs: null }
    if (!round.again && round.items.length === 0) return round
    cursor = round.cursor
  }
  return NOTHING
}

const inputBytes = (item: { input: Json }): number => JSON.stringify(item.input).length

/** Null: nothing is due, or nothing of it can be sent now. */
const takeDueRetries = async (
  { database }: RemoteContext,
  hold: RemoteHold,
  holding: Holding,
  { cursor, room }: { cursor: number; room: number },
): Promise<Round | null> => {
  const { lease, type, executor, providerIdempotentMs } = hold
  const due = await database.query(async (connection) => {
    const ords = await readDueRetries(connection, lease, room)
    return ords.length === 0 ? [] : readItems(connection, lease, ords)
  })
  const items = fitInputs(due, inputBytes)
  const ords = items.map((item) => item.ord)
  if (ords.length === 0) return null
  if (type.ratePerSecond !== null) {
    // keys in flight elsewhere must not use up the type's rate
    await explainKnownKeys(database, lease, ords, type.codeVersion)
    const free = await database.query((connection) => readRetryAttempts(connection, lease, ords))
    const waitMs = await awaitRate(database, hold, free.size)
    if (waitMs !== null) return { items: [], rateWaitMs: waitMs, again: false, cursor }
  }
  const won = await claimRetries(database, lease, ords, {
    sendByMs: type.leaseMs - executor.callTimeoutMs,
    resendWithinMs: providerIdempotentMs - executor.callTimeoutMs,
  })
  if (won === null) return { ...NOTHING, again: false, cursor }
  const explained = won.length < ords.length ? await explainKnownKeys(database, lease, ords, type.codeVersion) : 0
  if (won.length === 0) {
    // explained items may be due again at once, at their next step
    return holding.steps.length > 0 && explained > 0 ? { ...NOTHING, again: true, cursor } : null
  }
  const byOrd = new Map(items.map((item) => [item.ord, item]))
  const claimed = won.flatMap((retry) => {
    const item = byOrd.get(retry.ord)
    return item ? [{ ...item, ...retry }] : []
  })
  return { items: claimed, rateWaitMs: null, again: false, cursor }
}

const takeWindow = async (
  { database }: RemoteContext,
  hold: RemoteHold,
  holding: Holding,
  { cursor, room }: { cursor: number; room: number },
): Promise<Round> => {
  const { lease, type, executor } = hold
  const none = { ...NOTHING, again: false, cursor }
  if (cursor >= holding.toOrd) return none
  const read = await database.query((connection) =>
    readWindow(connection, { ...lease, steps: holding.steps }, cursor, Math.min(holding.toOrd, cursor + room)),
  )
  assertWindow(read, cursor)
  const items = fitInputs(read, inputBytes)
  const waitMs = await awaitRate(database, hold, items.length)
  if (waitMs !== null) return { ...none, rateWaitMs: waitMs }
  const to = cursor + items.length
  const sendByMs = type.leaseMs - executor.callTimeoutMs
  const won = await database.query((connection) => claimIntents(connection, lease, { from: cursor, to, sendByMs }))
  if (won === null) return none
  const claimed = items
    .filter((item) => won.has(item.ord))
    .map((item) => ({ ...item, send: 1, attempt: 1, resend: false, explained: false }))
  return { items: claimed, rateWaitMs: null, again: true, cursor: to }
}

/** Waits for the type's rate over all workers, without a connection. Not null: it would take too long; so many milliseconds. */
const awaitRate = async (
  database: RemoteContext['database'],
  { type }: RemoteHold,
  calls: number,
): Promise<number | null> => {
  const { ratePerSecond } = type
  if (ratePerSecond === null || calls === 0) return null
  const { reserved, waitMs } = await database.query((connection) =>
    reserveCallsWithin(connection, type.name, { perSecond: ratePerSecond, calls, maxWaitMs: RATE_WAIT_MAX_MS }),
  )
  if (!reserved) return Math.ceil(waitMs)
  if (waitMs > 0) await sleep(waitMs)
  return null
}

/**
 * What must not be sent is not handed out: an item at a step that its type does not have, and one that may have been sent in a
 * time that a restore has lost, unless the provider says that it was not.
 */
const withoutDoubts = async (
  context: RemoteContext,
  hold: RemoteHold,
  holding: Holding,
  items: readonly HandedItem[],
): Promise<HandedItem[]> => {
  const standing = { ...hold, lease: { ...hold.lease, doubt: holding.doubt } }
  const reports = await Promise.all(
    items.map(async (item): Promise<Report | null> => {
      if (!hasStep(hold.type.steps, item.step)) return sentReport(hold.type, item, unknownStep(item.step))
      const call = {
        effectKey: item.effectKey,
        step: item.step,
        itemKey: item.key,
        input: item.input,
        operationId: formatId('op', hold.lease.operationId),
        type: hold.type.name,
        attempt: item.attempt,
        traceparent: holding.traceparent,
      }
      return mustAskFirst(standing, item, call) ? askBeforeSend(standing, item, call) : null
    }),
  )
  const said = reports.filter((report) => report !== null)
  if (said.length > 0) await convergeEvidence(context, hold.lease, workerEvidence(hold, said))
  return items.filter((_item, index) => reports[index] === null)
}
