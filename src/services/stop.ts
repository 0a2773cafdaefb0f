import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { cancelDecision, isFinal, type OperationStatus, pauseDecision, resumeDecision } from '../domain/operation.ts'
import { probe } from '../probe.ts'
import type { OperationState } from '../storage/operation-state.ts'
import { requestCancel, requestPause, resume, type StopRequest } from '../storage/stops.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import type { StateReader } from './get-operation.ts'
import { refuseStale } from './if-match.ts'
import type { Principal } from './principal.ts'
import type { CancelRequest, PauseRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'
import { settleOperation } from './settle.ts'

/** How long the reply to a cancel waits for the workers' acknowledgement, so that it normally carries it. */
const ACKNOWLEDGEMENT_WAIT_MS = 250
const ACKNOWLEDGEMENT_POLL_MS = 15
/** The operation changed between reading and writing; after so many times somebody is in a loop. */
const TRIES_MAX = 10

type StopContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'> & { readState: StateReader }

type Answer = { status: 200 | 202 }

/**
 * Reads the operation, lets `decide` store what follows from it, and begins anew when it changed in between. `If-Match` is
 * held against the first read: what comes after is no staleness of the caller's. Errors: operation-not-found, version-conflict.
 */
const decideUntilStored = async (
  { readState }: StopContext,
  principal: Principal,
  id: string,
  { reason, ifMatchVersion }: CancelRequest | PauseRequest,
  action: 'operation.cancel' | 'operation.pause' | 'operation.resume',
  decide: (state: OperationState, change: StopRequest) => Promise<Answer | 'changed'>,
): Promise<Answer> => {
  const audit = auditEntry(authorOf(principal), action, ['operation', formatId('op', id)], reason)
  const change: StopRequest = { tenantId: principal.tenantId, operationId: id, actor: principal.name, reason, audit }
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const state = await readState({ tenantId: principal.tenantId, id })
    if (!state) throw noOperation()
    if (tries === 0) refuseStale(state.version, ifMatchVersion)
    const answer = await decide(state, change)
    if (answer !== 'changed') return answer
  }
  throw new AppError('version-conflict', 'the operation keeps changing: try again')
}

const refused = (
  code: 'operation-already-final' | 'operation-not-pausable' | 'operation-not-paused',
  status: OperationStatus,
  detail: string,
): AppError => new AppError(code, detail, { extra: { operation_status: status } })

/**
 * Cancels an operation: stores the intent, settles what has already stopped, and waits briefly for the acknowledgement.
 * The answer's status is 200 when it is over, 202 while it is stopping. Errors: operation-not-found, operation-already-final,
 * version-conflict.
 */
export const cancelOperation = (
  context: StopContext,
  principal: Principal,
  id: string,
  request: CancelRequest,
): Promise<Answer> =>
  decideUntilStored(context, principal, id, request, 'operation.cancel', async (state, change) => {
    const decision = cancelDecision(state.status, state.cancelRequestedAt !== null)
    switch (decision.kind) {
      case 'already-final':
        throw refused(
          'operation-already-final',
          decision.status,
          `the operation is already ${decision.status}; nothing was cancelled`,
        )
      case 'receipt':
        return { status: decision.httpFinal ? 200 : 202 }
      case 'stop': {
        if (!(await requestCancel(context.database, change))) return 'changed'
        await probe('cancel-committed', { operationId: id })
        context.wakeUps.send('stop')
        const settled = await settleOperation(context, principal.tenantId, id)
        const ranNothing = state.startedAt === null || state.status === 'paused'
        if (settled !== null && isFinal(settled) && ranNothing) return { status: 200 }
        await awaitAcknowledgement(context, principal, id)
        return { status: 202 }
      }
    }
  })

const awaitAcknowledgement = async ({ readState }: StopContext, principal: Principal, id: string): Promise<void> => {
  const deadline = performance.now() + ACKNOWLEDGEMENT_WAIT_MS
  while (performance.now() < deadline) {
    const state = await readState({ tenantId: principal.tenantId, id })
    if (!state || state.cancelAcknowledgedAt !== null || isFinal(state.status)) return
    await new Promise((resolve) => setTimeout(resolve, ACKNOWLEDGEMENT_POLL_MS))
  }
}

/** The system's own cancel, for example `system:deadline`. False: it was cancelled already, or is final. */
export const cancelBySystem = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  key: { tenantId: number; operationId: string },
  actor: `system:${string}`,
  reason: string,
): Promise<boolean> => {
  const { database, wakeUps } = context
  const stored = await requestCancel(database, { ...key, actor, reason })
  if (!stored) return false
  wakeUps.send('stop')
  await settleOperation(context, key.tenantId, key.operationId)
  return true
}

/** The system's own pause, with what is shown as the operation's `error`. False: it is not running any more. */
export const pauseBySystem = async (
  context: Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>,
  { tenantId, operationId }: { tenantId: number; operationId: string },
  actor: `system:${string}`,
  error: { code: string; detail: string },
): Promise<boolean> => {
  const { database, wakeUps } = context
  const stored = await requestPause(database, { tenantId, operationId, actor, reason: error.detail, error })
  if (!stored) return false
  wakeUps.send('stop')
  await settleOperation(context, tenantId, operationId)
  return true
}

/** Pauses an operation at its next safe boundary. Errors: operation-not-found, operation-not-pausable, version-conflict. */
export const pauseOperation = (
  context: StopContext,
  principal: Principal,
  id: string,
  request: PauseRequest,
): Promise<Answer> =>
  decideUntilStored(context, principal, id, request, 'operation.pause', async (state, change) => {
    const decision = pauseDecision(state.status)
    switch (decision.kind) {
      case 'receipt':
        return { status: decision.reached ? 200 : 202 }
      case 'not-pausable':
        throw refused(
          'operation-not-pausable',
          decision.status,
          `an operation that is ${decision.status} cannot be paused`,
        )
      case 'stop': {
        if (!(await requestPause(context.database, change))) return 'changed'
        context.wakeUps.send('stop')
        const settled = await settleOperation(context, principal.tenantId, id)
        return { status: settled === 'paused' ? 200 : 202 }
      }
    }
  })

/** Lets a paused operation go on at its checkpoints. Errors: operation-not-found, operation-not-paused, version-conflict. */
export const resumeOperation = (
  context: StopContext,
  principal: Principal,
  id: string,
  request: PauseRequest,
): Promise<Answer> =>
  decideUntilStored(context, principal, id, request, 'operation.resume', async (state, change) => {
    const decision = resumeDecision(state.status)
    if (decision.kind === 'not-paused') {
      throw refused(
        'operation-not-paused',
        decision.status,
        `an operation that is ${decision.status} cannot be resumed`,
      )
    }
    if (!(await resume(context.database, change))) return 'changed'
    context.wakeUps.send('work')
    await settleOperation(context, principal.tenantId, id)
    return { status: 200 }
  })
