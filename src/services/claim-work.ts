/** `POST /worker/claims`: a lease with its first items for a worker elsewhere. The contract is docs/worker-api.md. */

import { randomUUID } from 'node:crypto'
import type { AuditEntry } from '../domain/audit.ts'
import { AppError } from '../domain/errors.ts'
import { isRemote, type OperationType } from '../domain/operation-type.ts'
import { isIsolated, leaseWithinMs, remoteRoom } from '../domain/remote-work.ts'
import { claimExpiredShards, claimReadyShards } from '../storage/run/claim-shards.ts'
import { endLease } from '../storage/run/end-lease.ts'
import type { ClaimedShard } from '../storage/run/lease.ts'
import { readHolding, readLeasesOf } from '../storage/run/remote.ts'
import { markStarted } from '../storage/settle.ts'
import { noteRemoteWorker, registerWorker } from '../storage/worker-presence.ts'
import { auditEntry, authorOf } from './audit.ts'
import { explainOrphans } from './explain-orphans.ts'
import { type HandOut, handOut } from './hand-out.ts'
import type { Principal } from './principal.ts'
import { explainInHand, finishHold, holdOf, type RemoteContext, type RemoteHold, runnableOf } from './remote-hold.ts'
import type { ClaimWorkRequest } from './requests.ts'
import type { ClaimedWorkView, WorkBatchView } from './views.ts'
import { batchView } from './work-batch.ts'
import { type LeaseTicket, openLease, openWorker, sealWorker, type WorkerTicket } from './worker-tokens.ts'

export type WorkContext = RemoteContext & { tokenKey: () => Promise<string> }

/** Looked for work this often although nothing woke the claim. */
const POLL_MS = 1_000
/** While it waits a worker is heard of this often; without two of them it is `gone`. */
const PRESENCE_MS = 5_000
const REMOTE_BEAT_MS = 15_000

/**
 * Registers a worker, or waits until there are items for it. Errors: worker-not-found, lease-not-found, unknown-operation-type.
 */
export const claimWork = async (
  context: WorkContext,
  principal: Principal,
  request: ClaimWorkRequest,
): Promise<ClaimedWorkView> => {
  const { tenantId } = principal
  const startedMs = performance.now()
  const key = await context.tokenKey()
  const { types, notRunnable } = chooseTypes(context, request)
  const asked = request.worker === null ? null : openWorker(key, tenantId, request.worker)
  const known = request.leases.map((lease) => openLease(key, tenantId, lease))
  // under a new name: a claim of the old one that is still on its way must not speak of what is handed out from now on
  const ticket: WorkerTicket = asked === null || request.lostAnswer ? { tenantId, workerId: randomUUID() } : asked
  await context.database.query((connection) =>
    registerWorker(connection, {
      id: ticket.workerId,
      host: request.host,
      pid: request.pid,
      codeVersion: request.codeVersion,
      // of the others nothing is handed out: their operations must not look as if somebody came for them
      types: types.map(({ name, version }) => `${name}@${version}`),
      beatMs: REMOTE_BEAT_MS,
      tenantId,
      audit: ticket === asked ? null : registration(principal, ticket, request),
    }),
  )
  const answer = { worker: sealWorker(key, ticket), notRunnable, batch: null }
  // whoever has no name yet could not say later what it never received
  if (asked === null) return answer
  if (request.lostAnswer) await returnUnread(context, asked, known)
  const batch = await waitForBatch(context, { ticket, types, key, startedMs }, request)
  return { ...answer, batch }
}

/** What it does from now on stands in the ledger, under the worker's id. */
const registration = (
  principal: Principal,
  { workerId }: WorkerTicket,
  { host, codeVersion, types }: ClaimWorkRequest,
): AuditEntry =>
  auditEntry(authorOf(principal), 'worker.register', ['worker', workerId], null, {
    host,
    code_version: codeVersion,
    types: types.length,
  })

const chooseTypes = (
  { types }: RemoteContext,
  request: ClaimWorkRequest,
): { types: OperationType[]; notRunnable: string[] } => {
  const chosen: OperationType[] = []
  const notRunnable: string[] = []
  for (const [index, { name, version }] of request.types.entries()) {
    const type = types.get(name)
    if (type === undefined || !isRemote(type)) {
      const detail = `there is no operation type ${name} with \`remote\``
      throw new AppError('unknown-operation-type', detail, { errors: [{ detail, pointer: `/types/${index}/name` }] })
    }
    if (type.version === version) chosen.push(type)
    else notRunnable.push(`${name}@${version}`)
  }
  return { types: chosen, notRunnable }
}

/** Leases that the worker does not know came with an answer that it never read: nothing of them was sent. */
const returnUnread = async (
  context: WorkContext,
  ticket: WorkerTicket,
  known: readonly LeaseTicket[],
): Promise<void> => {
  const leases = await context.database.query(async (connection) => {
    await noteRemoteWorker(connection, { id: ticket.workerId, tenantId: ticket.tenantId, state: 'gone' })
    return readLeasesOf(connection, ticket)
  })
  for (const { type, ...lease } of leases) {
    const isKnown = known.some(
      ({ operationId, shard, epoch }) =>
        operationId === lease.operationId && shard === lease.shard && epoch === lease.epoch,
    )
    if (isKnown) continue
    await explainInHand(context, holdOf(context, lease, type), 'unsent')
    await finishHold(context, lease)
  }
}

/**
 * What was claimed for somebody who never got it goes back as it was. A shard that workers have died over keeps their count, so
 * it is left like a lease that ran out: to finish it would clear the count.
 */
const giveUp = async (context: WorkContext, hold: RemoteHold, lease: ClaimedShard, dueInMs = 0): Promise<void> => {
  await explainInHand(context, hold, 'unsent')
  if (lease.claims < 2) return void (await finishHold(context, lease))
  const end = { dueInMs, claims: lease.claimsBefore, charge: null }
  await context.database.query((connection) => endLease(connection, lease, end))
}

interface Claimer {
  ticket: WorkerTicket
  types: readonly OperationType[]
  key: string
  startedMs: number
}

/** Waits without a database connection: woken when shards may be due, and by a poll whatever happens to that. */
const waitForBatch = async (
  context: WorkContext,
  claimer: Claimer,
  request: ClaimWorkRequest,
): Promise<WorkBatchView | null> => {
  const { signal } = request
  const until = claimer.startedMs + request.seconds * 1_000
  let woken = false
  let wake: () => void = () => {}
  const nudge = (): void => {
    woken = true
    wake()
  }
  const off = context.wakeUps.on('work', nudge)
  signal.addEventListener('abort', nudge)
  let seenMs = performance.now()
  try {
    for (;;) {
      woken = false
      const found = signal.aborted ? null : await claimBatch(context, claimer, request)
      if (found !== null && 'lease' in found) return found
      if (found?.again) continue
      const leftMs = until - performance.now()
      if (leftMs <= 0 || signal.aborted) return null
      if (performance.now() - seenMs > PRESENCE_MS) {
        seenMs = performance.now()
        await context.database.query((connection) =>
          noteRemoteWorker(connection, { id: claimer.ticket.workerId, tenantId: claimer.ticket.tenantId, state: null }),
        )
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(leftMs, found?.afterMs ?? POLL_MS))
        wake = () => {
          // that there is work does not change that the rate is used up
          if (found !== null && !signal.aborted) return
          clearTimeout(timer)
          resolve()
        }
        if (woken) wake()
      })
    }
  } finally {
    off()
    signal.removeEventListener('abort', nudge)
  }
}

/** Null: there is nothing. `again`: a shard was ended, and there may be another one; `afterMs`: it has to wait for its rate. */
type Claimed = WorkBatchView | { again: true } | { again: false; afterMs: number } | null

const claimBatch = async (context: WorkContext, claimer: Claimer, request: ClaimWorkRequest): Promise<Claimed> => {
  const lease = await claimShard(context, claimer)
  if (lease === null) return null
  const hold = holdOf(context, lease, lease.type)
  try {
    await explainOrphans(context, hold)
    if (lease.stopRequested !== null || lease.switchedOff) {
      await finishHold(context, lease)
      return { again: true }
    }
    await context.database.query((connection) => markStarted(connection, lease.tenantId, lease.operationId))
    context.wakeUps.send('change')
    const first = await firstItems(context, hold, lease, request)
    if (first.items.length > 0 && !request.signal.aborted) return toBatch(hold, lease, first, claimer)
    if (first.items.length === 0 && first.rateWaitMs === null) {
      await finishHold(context, lease)
      return { again: true }
    }
    const afterMs = first.rateWaitMs ?? 0
    await giveUp(context, hold, lease, afterMs)
    return { again: false, afterMs }
  } catch (error) {
    // nobody has got anything of it; where even this fails the lease runs out, as after a crash
    await giveUp(context, hold, lease).catch(() => {})
    throw error
  }
}

const claimShard = async (
  { database }: WorkContext,
  { ticket: { tenantId, workerId }, types }: Claimer,
): Promise<ClaimedShard | null> => {
  if (types.length === 0) return null
  const claim = { workerId, types: types.map(runnableOf), limit: 1 }
  const [expired] = await database.query((connection) => claimExpiredShards(connection, { ...claim, tenantId }))
  if (expired) return expired
  const turn = { perTenant: 1, afterTenant: tenantId - 1, lastTenant: tenantId }
  const ready = await database.query((connection) => claimReadyShards(connection, { ...claim, ...turn }))
  return ready.shards[0] ?? null
}

type FirstItems = HandOut & {
  leaseReadMs: number
  leaseLeftMs: number
  isolated: boolean
  traceparent: string | null
}

const firstItems = async (
  context: WorkContext,
  hold: RemoteHold,
  lease: ClaimedShard,
  { maxItems }: ClaimWorkRequest,
): Promise<FirstItems> => {
  const { type } = hold
  const leaseReadMs = performance.now()
  const holding = await context.database.query((connection) => readHolding(connection, lease))
  if (holding === null) {
    return { items: [], rateWaitMs: null, leaseReadMs, leaseLeftMs: 0, isolated: false, traceparent: null }
  }
  const isolated = isIsolated({ ...holding, isolated: lease.claims >= 2 })
  const room = remoteRoom({
    wanted: maxItems ?? type.concurrency,
    concurrency: type.concurrency,
    inFlight: holding.inFlight,
    isolated,
    ratePerSecond: type.ratePerSecond,
  })
  const { leaseLeftMs, traceparent } = holding
  return { ...(await handOut(context, hold, holding, room)), leaseReadMs, leaseLeftMs, isolated, traceparent }
}

const toBatch = (hold: RemoteHold, lease: ClaimedShard, first: FirstItems, claimer: Claimer): WorkBatchView => {
  const { type } = hold
  const ticket: LeaseTicket = {
    tenantId: lease.tenantId,
    operationId: lease.operationId,
    shard: lease.shard,
    epoch: lease.epoch,
    workerId: lease.workerId,
    type: type.name,
    typeVersion: type.version,
    isolated: first.isolated,
    sinceMs: Date.now(),
  }
  const waitedMs = first.leaseReadMs - claimer.startedMs
  const within = leaseWithinMs({ waitedMs, leaseLeftMs: first.leaseLeftMs, leaseMs: type.leaseMs })
  return batchView(claimer.key, hold, ticket, { ...first, leaseWithinMs: within, startedMs: claimer.startedMs })
}
