/**
 * Running a shard of an external type. Three steps an item, each committed before the next: the intent (claim), the call
 * (send), the outcome (converge). They overlap: while one window is sent the next is claimed, a whole one where there are so
 * many items. Outcomes are written in groups: as many as `concurrency`, or what there is when nothing else is under way, or when
 * the first of them has waited its share (GROUP). A commit for each would keep the next window waiting, which then claims as few.
 *
 * The first window is read while the operation becomes `running`, and claimed once that has committed.
 *
 *   claim ≤ concurrency ─▶ queue ─▶ in the air ≤ concurrency ─▶ answered ─▶ converge (one at a time)
 *   └──────────────────── outstanding ≤ 2 × concurrency ────────────────────┘  = what a crash can leave uncertain
 *
 * An item with steps passes through this once a step; between two of them it waits in the database (`item_retries`), not here.
 *
 * Where what is left of the lease is shorter than a call, nothing is claimed until it was renewed: it could only go back.
 *
 * A stop, a lost lease or a give-back closes the gate: what is queued goes back unsent, what is in the air is awaited (to
 * break it off would only make it uncertain), and every answer is written, also after the lease is lost. A call in the air may
 * still wait for its connection, so the gate is asked a second time right before the first byte (`mayStart`): between that look
 * and the byte nothing else runs in this process, and a stop is acknowledged only after the gate was closed in its memory. What
 * is written after the acknowledgement therefore began before it.
 */

import { sendByMs } from '../domain/lease.ts'
import { hasStep } from '../domain/steps.ts'
import { probe } from '../probe.ts'
import { assertWindow } from '../services/assert-window.ts'
import { sentReport, unknownStep, unsentReport } from '../services/outcome-reports.ts'
import { reserveCalls } from '../storage/rate-limits.ts'
import { claimIntents } from '../storage/run/claim-intents.ts'
import { claimRetries, explainKnownKeys } from '../storage/run/claim-retries.ts'
import type { Report } from '../storage/run/evidence.ts'
import { type RunnableItem, readDueRetries, readItems, readRetryAttempts, readWindow } from '../storage/run/window.ts'
import { type ClaimedItem, openCalls, type Sender } from './calls.ts'
import type { RunContext } from './context.ts'
import type { HeldShard } from './held-shard.ts'
import { returnUnclear, writePatiently } from './outcomes.ts'

/** Items read ahead of the cursor. */
const READ_AHEAD = 500
/** Due retries are looked for this often while new items are left, and always at the end. */
const RETRY_LOOK_MS = 200
const WAKE_MS = 1_000
/** How often it is looked whether a lease that is too short for a call was renewed. */
const LEASE_LOOK_MS = 100
const REPORTS_MAX = 1_000
/**
 * For how long an outcome waits for others that could share its commit: a share of what its call took, within bounds. It has been
 * in doubt for as long as that call, so this adds little to what a crash leaves in doubt.
 */
const GROUP = { share: 0.1, minMs: 2, maxMs: 10 }

export const runExternal = async (
  context: RunContext,
  held: HeldShard,
  executor: Sender,
  /** Items from here on are not run. */
  toOrd = held.lease.toOrd,
): Promise<void> => {
  const { database, meter, log } = context
  const { lease, type } = held
  const concurrency = (): number => (held.isIsolated ? 1 : type.concurrency)
  // a window uses half a second of the rate at most, so that calls are spread and a stop never waits long for its turn
  const rateMax = Math.max(1, Math.ceil((type.ratePerSecond ?? Number.POSITIVE_INFINITY) / 2))
  const hasSteps = lease.steps.length > 0
  // a compensation undoes an item as a whole
  const steps = lease.compensating ? [] : type.steps
  const subject = { operationId: lease.operationId }
  const calls = openCalls(context, held, executor)
  const queue: ClaimedItem[] = []
  const answered: Report[] = []
  /** Until when the first of `answered` waits. */
  let groupEndsMs = 0
  let ahead: RunnableItem[] = []
  let cursor = lease.cursor
  let inTheAir = 0
  let writing = 0
  /** Writes that have ended. */
  let written = 0
  let claiming = false
  let exhausted = false
  /** No claim may follow, whatever becomes due. */
  let closed = false
  /**
   * What the claim in progress asks for. If it ends without an answer, these are looked for at the end of the run: intents that
   * nobody sent. What an earlier claim won is not among them, as it may have been sent.
   */
  let offered: readonly number[] = []
  let unclear: readonly number[] = []
  /** Of writes that threw: a bug, with which the run ends as soon as everything else is home. */
  const thrown: unknown[] = []
  let retriesLookedAt = Number.NEGATIVE_INFINITY

  const outstanding = (): number => queue.length + inTheAir + answered.length + writing
  /** For a whole window; a suspect is alone. */
  const hasRoom = (): boolean => outstanding() <= (held.isIsolated ? 0 : concurrency())

  const claimWindow = async (room: number): Promise<void> => {
    const writtenBefore = written
    offered = []
    // what was begun is ended first: a stop then finds few items between two steps; and while isolated, waiting items are
    // suspects like those at the cursor
    const isDue = hasSteps || held.isIsolated || cursor >= toOrd || performance.now() - retriesLookedAt >= RETRY_LOOK_MS
    if (isDue && (await claimDueRetries(room))) return
    if (held.isIsolated && cursor >= (lease.isolateUntil ?? 0)) held.endIsolation()
    if (cursor >= toOrd) {
      // an item that has passed a step meanwhile is due again, at its next one
      exhausted = !hasSteps || written === writtenBefore
      return
    }
    if (ahead.length === 0) {
      ahead = await database.query((connection) =>
        readWindow(connection, lease, cursor, Math.min(toOrd, cursor + READ_AHEAD)),
      )
    }
    const items = ahead.slice(0, room)
    assertWindow(items, cursor)
    await held.started
    if (!(await awaitRate(items.length))) return
    await probe('window-read', subject)
    offered = items.map((item) => item.ord)
    const askedAtMs = performance.now()
    const won = await database.query((connection) =>
      claimIntents(connection, lease, {
        from: cursor,
        to: cursor + items.length,
        sendByMs: type.leaseMs - executor.callTimeoutMs,
      }),
    )
    await probe('intents-committed', subject)
    if (won === null) return refused()
    ahead = ahead.slice(items.length)
    cursor += items.length
    for (const item of items) {
      if (won.has(item.ord))
        queue.push({
          ...item,
          send: 1,
          attempt: 1,
          resend: false,
          explained: false,
          sendByMs: lastSendMs(askedAtMs),
        })
    }
  }

  /** True when retries were claimed, or may not be any more. */
  const claimDueRetries = async (room: number): Promise<boolean> => {
    retriesLookedAt = performance.now()
    const ords = await database.query((connection) => readDueRetries(connection, lease, room, toOrd))
    if (ords.length === 0) return false
    await held.started
    if (!(await awaitRate(await countFree(ords)))) return true
    offered = ords
    const askedAtMs = performance.now()
    const won = await claimRetries(database, lease, ords, {
      sendByMs: type.leaseMs - executor.callTimeoutMs,
      resendWithinMs: held.providerIdempotentMs - executor.callTimeoutMs,
    })
    await probe('intents-committed', subject)
    if (won === null) {
      refused()
      return true
    }
    const explained = won.length < ords.length ? await explainKnownKeys(database, lease, ords, type.codeVersion) : 0
    // explained items may be due again at once, at their next step
    if (won.length === 0) return hasSteps && explained > 0
    const items = await database.query((connection) =>
      readItems(
        connection,
        lease,
        won.map((retry) => retry.ord),
      ),
    )
    const byOrd = new Map(items.map((item) => [item.ord, item]))
    for (const retry of won) {
      const item = byOrd.get(retry.ord)
      if (item) queue.push({ ...item, ...retry, sendByMs: lastSendMs(askedAtMs) })
    }
    meter.retries(type.name, won.filter((retry) => retry.attempt > 1).length)
    return true
  }

  /** Of waiting items, those that a call may follow: keys in flight elsewhere must not use up the type's rate. */
  const countFree = async (ords: readonly number[]): Promise<number> => {
    if (type.ratePerSecond === null) return ords.length
    await explainKnownKeys(database, lease, ords, type.codeVersion)
    return (await database.query((connection) => readRetryAttempts(connection, lease, ords))).size
  }

  const lastSendMs = (askedAtMs: number): number =>
    sendByMs({ leaseEndsMs: askedAtMs + type.leaseMs, callTimeoutMs: executor.callTimeoutMs })

  /** The fence did not hold: a stop or a loss that the heartbeat has not told yet. No more claims in this run. */
  const refused = (): void => {
    closed = true
  }

  /** Waits for the type's rate over all workers. False: the gate was closed meanwhile. */
  const awaitRate = async (calls: number): Promise<boolean> => {
    const { ratePerSecond } = type
    if (ratePerSecond === null || calls === 0) return held.mayGoOn
    const waitMs = await database.query((connection) => reserveCalls(connection, type.name, ratePerSecond, calls))
    const readyAtMs = performance.now() + waitMs
    for (let left = waitMs; left > 0 && held.mayGoOn; left = readyAtMs - performance.now()) {
      held.step()
      await held.nextWake(Math.min(left, WAKE_MS))
    }
    return held.mayGoOn
  }

  const claim = (): void => {
    claiming = true
    claimWindow(Math.min(rateMax, concurrency()))
      .catch((error: unknown) => {
        unclear = offered
        closed = true
        log.warn({ err: error, operation_id: lease.operationId, shard: lease.shard }, 'claiming a window failed')
      })
      .finally(() => {
        claiming = false
        held.step()
        held.wake()
      })
  }

  const answer = (found: Report, tookMs = 0): void => {
    if (answered.length === 0)
      groupEndsMs = performance.now() + Math.min(GROUP.maxMs, Math.max(GROUP.minMs, tookMs * GROUP.share))
    answered.push(found)
  }

  const send = (item: ClaimedItem): void => {
    if (!calls.maySend(item)) {
      answer(unsentReport(item))
      return
    }
    if (!hasStep(steps, item.step)) {
      answer(sentReport(type, item, unknownStep(item.step)))
      return
    }
    inTheAir++
    const sentAtMs = performance.now()
    calls
      .make(item)
      .then((found) => answer(found, performance.now() - sentAtMs))
      .catch((error: unknown) => {
        // an executor promises not to throw; if one does, the call may have happened
        log.error({ err: error, effect_key: item.effectKey }, 'an executor threw')
        answer(sentReport(type, item, { state: 'uncertain', reasonCode: 'EXECUTOR_ERROR' }))
      })
      .finally(() => {
        inTheAir--
        held.step()
        held.wake()
      })
  }

  const write = (reports: Report[]): void => {
    writing = reports.length
    writePatiently(context, held, reports)
      .catch((error: unknown) => {
        thrown.push(error)
        closed = true
      })
      .finally(() => {
        writing = 0
        written++
        if (hasSteps) exhausted = false
        held.step()
        held.wake()
      })
  }

  /** For how long what was answered still waits for others; 0: it is a group. */
  const groupWaitMs = (): number =>
    inTheAir === 0 || answered.length >= concurrency() || !held.mayGoOn
      ? 0
      : Math.max(0, groupEndsMs - performance.now())

  for (;;) {
    while (queue.length > 0 && (inTheAir < concurrency() || !held.mayGoOn)) send(queue.shift() as ClaimedItem)
    const waitsForOthers = writing === 0 && answered.length > 0 ? groupWaitMs() : null
    if (waitsForOthers === 0) write(answered.splice(0, REPORTS_MAX))
    const wantsMore = held.mayGoOn && !exhausted && !closed && !claiming && hasRoom()
    const waitsForLease = wantsMore && !calls.fitsLease()
    if (wantsMore && !waitsForLease) claim()
    if (!claiming && outstanding() === 0 && (exhausted || closed || !held.mayGoOn)) break
    await held.nextWake(waitsForOthers || (waitsForLease ? LEASE_LOOK_MS : WAKE_MS))
  }
  if (unclear.length > 0) await returnUnclear(context, held, new Set(unclear))
  if (thrown.length > 0) throw thrown[0]
}
