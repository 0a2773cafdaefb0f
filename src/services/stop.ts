import { AppError } from '../domain/errors.ts'
import { cancelDecision, isFinal, pauseDecision, resumeDecision } from '../domain/operation.ts'
import type { OperationState } from '../storage/operation-state.ts'
import { requestCancel, requestPause, resume } from '../storage/stops.ts'
import type { ServiceContext } from './context.ts'
import type { StateReader } from './get-operation.ts'
import { refuseStale } from './if-match.ts'
import type { Principal } from './principal.ts'
import type { CancelRequest, PauseRequest } from './requests.ts'
import { settleOperation } from './settle.ts'

/** How long the reply to a cancel waits for the workers' acknowledgement, so that it normally carries it. */
const ACKNOWLEDGEMENT_WAIT_MS = 250
const ACKNOWLEDGEMENT_POLL_MS = 15
/** The operation changed between reading and writing; after so many times somebody is in a loop. */
const TRIES_MAX = 10

type StopContext = Pick<ServiceContext, 'database' | 'wakeUps'> & { readState: StateReader }

const readOrThrow = async (
  { readState }: StopContext,
  principal: Principal,
  id: string,
  ifMatchVersion: number | null,
): Promise<OperationState> => {
  const state = await readState({ tenantId: principal.tenantId, id })
  if (!state) throw new AppError('operation-not-found', 'there is no such operation')
  refuseStale(state.version, ifMatchVersion)
  return state
}

/**
 * Cancels an operation: stores the intent, settles what has already stopped, and waits briefly for the acknowledgement.
 * The answer's status is 200 when it is over, 202 while it is stopping. Errors: operation-not-found, operation-already-final,
 * version-conflict.
 */
export const cancelOperation = async (
  context: StopContext,
  principal: Principal,
  id: string,
  request: CancelRequest,
): Promise<{ status: 200 | 202 }> => {
  const { database, wakeUps, readState } = context
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const state = await readOrThrow(context, principal, id, tries === 0 ? request.ifMatchVersion : null)
    const decision = cancelDecision(state.status, state.cancelRequestedAt !== null)
    if (decision.kind === 'already-final') {
      throw new AppError(
        'operation-already-final',
        `the operation is already ${decision.status}; nothing was cancelled`,
        {
          extra: { operation_status: decision.status },
        },
      )
    }
    if (decision.kind === 'receipt') return { status: decision.httpFinal ? 200 : 202 }
    const stored = await requestCancel(database, {
      tenantId: principal.tenantId,
      operationId: id,
      actor: principal.name,
      reason: request.reason,
    })
    if (!stored) continue
    wakeUps.send('stop')
    const settled = await settleOperation(context, principal.tenantId, id)
    if (settled !== null && isFinal(settled) && state.startedAt === null) return { status: 200 }
    if (settled === 'cancelled' && state.status === 'paused') return { status: 200 }
    const deadline = performance.now() + ACKNOWLEDGEMENT_WAIT_MS
    while (performance.now() < deadline) {
      const now = await readState({ tenantId: principal.tenantId, id })
      if (!now || now.cancelAcknowledgedAt !== null || isFinal(now.status)) break
      await new Promise((resolve) => setTimeout(resolve, ACKNOWLEDGEMENT_POLL_MS))
    }
    return { status: 202 }
  }
  throw new AppError('version-conflict', 'the operation keeps changing: try again')
}

/** The system's own cancel, for example `system:deadline`. False: it was cancelled already, or is final. */
export const cancelBySystem = async (
  { database, wakeUps }: Pick<ServiceContext, 'database' | 'wakeUps'>,
  key: { tenantId: number; operationId: string },
  actor: `system:${string}`,
  reason: string,
): Promise<boolean> => {
  const stored = await requestCancel(database, { ...key, actor, reason })
  if (!stored) return false
  wakeUps.send('stop')
  await settleOperation({ database, wakeUps }, key.tenantId, key.operationId)
  return true
}

/** The system's own pause, with what is shown as the operation's `error`. False: it is not running any more. */
export const pauseBySystem = async (
  { database, wakeUps }: Pick<ServiceContext, 'database' | 'wakeUps'>,
  { tenantId, operationId }: { tenantId: number; operationId: string },
  actor: `system:${string}`,
  error: { code: string; detail: string },
): Promise<boolean> => {
  const stored = await requestPause(database, { tenantId, operationId, actor, reason: error.detail, error })
  if (!stored) return false
  wakeUps.send('stop')
  await settleOperation({ database, wakeUps }, tenantId, operationId)
  return true
}

/** Pauses an operation at its next safe boundary. Errors: operation-not-found, operation-not-pausable, version-conflict. */
export const pauseOperation = async (
  context: StopContext,
  principal: Principal,
  id: string,
  request: PauseRequest,
): Promise<{ status: 200 | 202 }> => {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const state = await readOrThrow(context, principal, id, tries === 0 ? request.ifMatchVersion : null)
    const decision = pauseDecision(state.status)
    if (decision.kind === 'receipt') return { status: decision.reached ? 200 : 202 }
    if (decision.kind === 'not-pausable') {
      throw new AppError('operation-not-pausable', `an operation that is ${decision.status} cannot be paused`, {
        extra: { operation_status: decision.status },
      })
    }
    const stored = await requestPause(context.database, {
      tenantId: principal.tenantId,
      operationId: id,
      actor: principal.name,
      reason: request.reason,
    })
    if (!stored) continue
    context.wakeUps.send('stop')
    const settled = await settleOperation(context, principal.tenantId, id)
    return { status: settled === 'paused' ? 200 : 202 }
  }
  throw new AppError('version-conflict', 'the operation keeps changing: try again')
}

/** Lets a paused operation go on at its checkpoints. Errors: operation-not-found, operation-not-paused, version-conflict. */
export const resumeOperation = async (
  context: StopContext,
  principal: Principal,
  id: string,
  request: PauseRequest,
): Promise<{ status: 200 | 202 }> => {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const state = await readOrThrow(context, principal, id, tries === 0 ? request.ifMatchVersion : null)
    const decision = resumeDecision(state.status)
    if (decision.kind === 'not-paused') {
      throw new AppError('operation-not-paused', `an operation that is ${decision.status} cannot be resumed`, {
        extra: { operation_status: decision.status },
      })
    }
    const stored = await resume(context.database, {
      tenantId: principal.tenantId,
      operationId: id,
      actor: principal.name,
      reason: request.reason,
    })
    if (!stored) continue
    context.wakeUps.send('work')
    await settleOperation(context, principal.tenantId, id)
    return { status: 200 }
  }
  throw new AppError('version-conflict', 'the operation keeps changing: try again')
}
