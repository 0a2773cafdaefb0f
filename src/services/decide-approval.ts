import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { toMillis } from '../domain/times.ts'
import { approve, hasHandIn, reject } from '../storage/approvals.ts'
import type { OperationState } from '../storage/operation-state.ts'
import { readPreflight } from '../storage/replays.ts'
import { auditEntry, authorOf } from './audit.ts'
import { judgeCompensation } from './compensation-judgement.ts'
import type { ServiceContext } from './context.ts'
import { lookBehind } from './dependents.ts'
import type { StateReader } from './get-operation.ts'
import { refuseStale } from './if-match.ts'
import type { Principal } from './principal.ts'
import { judgeReplay } from './replay-judgement.ts'
import type { ApprovalRequest } from './requests.ts'
import { noOperation } from './require-operation.ts'

type ApprovalContext = ServiceContext & { readState: StateReader }

const notAwaiting = (state: OperationState): AppError =>
  new AppError('not-awaiting-approval', `the operation is ${state.status}: there is nothing to decide`, {
    extra: { operation_status: state.status },
  })

/**
 * A second person lets a waiting operation run, or ends it. An approval is bound to the facts of the preflight: when they have
 * changed since, there is nothing left that could be approved. The requester may cancel, and never approve; nor may whoever
 * has uploaded items to it, has started it, or has started the bulk action that made it.
 * Errors: operation-not-found, version-conflict, not-awaiting-approval, self-approval, preflight-outdated, approval-note-required.
 */
export const decideApproval = async (
  context: ApprovalContext,
  principal: Principal,
  operationId: string,
  request: ApprovalRequest,
): Promise<void> => {
  const { database, wakeUps, readState } = context
  const { tenantId } = principal
  const state = await readState({ tenantId, id: operationId })
  if (!state) throw noOperation()
  refuseStale(state.version, request.ifMatchVersion)
  if (state.status !== 'awaiting_approval') throw notAwaiting(state)
  if (state.requestedBy === principal.name) {
    throw new AppError('self-approval', 'whoever requested an operation cannot decide on it: another person has to')
  }
  if (await database.query((connection) => hasHandIn(connection, { tenantId, operationId, name: principal.name }))) {
    throw new AppError(
      'self-approval',
      'whoever has added items to an operation, has started it, or has started the bulk action that made it cannot decide on it: another person has to',
    )
  }
  if (request.decision === 'approve') {
    refuseSilentRisk(context, state, request)
    await refuseOutdated(context, state)
  }
  const decide = request.decision === 'approve' ? approve : reject
  const decided = await decide(database, {
    tenantId,
    operationId,
    actor: principal.name,
    note: request.note,
    audit: auditEntry(
      authorOf(principal),
      `operation.${request.decision}`,
      ['operation', formatId('op', operationId)],
      request.note,
    ),
  })
  if (!decided) throw notAwaiting((await readState({ tenantId, id: operationId })) ?? state)
  wakeUps.send('work')
  wakeUps.send('change')
  if (request.decision === 'reject') {
    const counts = { total: state.itemsTotal, applied: 0, skipped: 0, failed: 0, uncertain: 0 }
    const tookMs = toMillis(state.now) - toMillis(state.createdAt)
    context.ended?.({ operationId, type: state.type, status: 'cancelled', counts, tookMs, traceparent: null })
    await lookBehind(context, { tenantId, operationId })
  }
}

/** Where a type states that nothing could undo its effects, the approver accepts that in so many words. */
const refuseSilentRisk = ({ types }: ApprovalContext, state: OperationState, request: ApprovalRequest): void => {
  const reason = types.get(state.type)?.noCompensationReason ?? null
  if (reason === null || request.note !== null) return
  throw new AppError(
    'approval-note-required',
    `nothing can undo the effects of ${state.type} (${reason}): say in "note" that you accept this`,
    { errors: [{ detail: 'is required where there is no compensation', pointer: '/note' }] },
  )
}

const refuseOutdated = async ({ database, types }: ApprovalContext, state: OperationState): Promise<void> => {
  const { tenantId, preflightId } = state
  if (preflightId === null) return
  const recorded = await database.query((connection) => readPreflight(connection, tenantId, preflightId))
  const judgement =
    recorded &&
    (await database.query((connection): Promise<{ factsHash: string }> => {
      const { operationId, version } = recorded
      const key = { tenantId, operationId }
      return recorded.kind === 'replay'
        ? judgeReplay(connection, types, key, recorded.scope, { replay: state.id, version })
        : judgeCompensation(connection, types, key, recorded.scope, { compensation: state.id, version })
    }))
  if (judgement?.factsHash === recorded?.factsHash) return
  throw new AppError(
    'preflight-outdated',
    'the facts have changed since the preflight: reject this one and ask for a new preflight',
  )
}
