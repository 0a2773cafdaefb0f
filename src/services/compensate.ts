/**
 * A compensation: a new operation that takes the applied effects of another one back, in reverse order, with effect keys and
 * a ledger of its own.
 *
 * Why nothing is undone twice: each undoing has an effect key that names the effect and its send, and the registry decides
 * about it as about any other; while anything is uncertain, or another compensation or a replay is open, it refuses.
 * Why a repeat is safe: a preflight is used once, and its row names the compensation. A caller without one asks twice for a
 * compensation, and the second time it is in progress, or nothing is left. Refusals come in the order 400, 412, 409.
 */
import { AppError } from '../domain/errors.ts'
import { insertCompensation } from '../storage/compensations.ts'
import { type RecordedPreflight, readPreflight } from '../storage/replays.ts'
import { type CompensationJudgement, judgeCompensation } from './compensation-judgement.ts'
import type { ServiceContext } from './context.ts'
import { shownEvaluations } from './count-ranges.ts'
import { refuseStale } from './if-match.ts'
import { preflightCompensation } from './preflight-compensation.ts'
import { answerInsertion, blockingCodes, derivedAudit, derivedFrom, earlierUse, type Made } from './preflight-use.ts'
import type { Principal } from './principal.ts'
import type { CompensateRequest } from './requests.ts'
import { requireOperation } from './require-operation.ts'

type CompensateContext = Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>
type Preflight = Extract<RecordedPreflight, { kind: 'compensation' }>

/** The operation changed between our own preflight and its use; after so many times it is busy, and the caller is told. */
const OWN_PREFLIGHTS_MAX = 3

/**
 * Errors: operation-not-found, unknown-operation-type, invalid-request (no such preflight of this operation),
 * version-conflict, preflight-outdated, compensation-blocked, ledger-purged. `replayed` tells that the preflight was used
 * before, and names that compensation.
 */
export const compensateOperation = async (
  context: CompensateContext,
  principal: Principal,
  operationId: string,
  request: CompensateRequest,
): Promise<Made> => {
  if (request.preflightId !== null) {
    const recorded = await findPreflight(context, principal, operationId, request.preflightId)
    return usePreflight(context, principal, recorded, request)
  }
  for (let tries = 1; ; tries++) {
    // a part of this request, and told with it
    const { id } = await preflightCompensation(context, principal, operationId, { scope: null }, { audited: false })
    const recorded = await findPreflight(context, principal, operationId, id)
    try {
      return await usePreflight(context, principal, recorded, request)
    } catch (error) {
      // it is ours, and tells the caller nothing: a new one names what has changed
      const isOutdated = error instanceof AppError && error.code === 'preflight-outdated'
      if (!isOutdated || tries >= OWN_PREFLIGHTS_MAX) throw error
    }
  }
}

const findPreflight = async (
  { database }: CompensateContext,
  { tenantId }: Principal,
  operationId: string,
  preflightId: string,
): Promise<Preflight> => {
  const recorded = await database.query((connection) => readPreflight(connection, tenantId, preflightId))
  if (recorded?.kind === 'compensation' && recorded.operationId === operationId) return recorded
  await requireOperation(database, { tenantId, operationId })
  throw new AppError('invalid-request', 'there is no such preflight of a compensation of this operation', {
    errors: [{ detail: 'no such compensation preflight of this operation', pointer: '/preflight_id' }],
  })
}

const usePreflight = async (
  context: CompensateContext,
  principal: Principal,
  recorded: Preflight,
  request: CompensateRequest,
): Promise<Made> => {
  const { database, types } = context
  const earlier = earlierUse(recorded)
  if (earlier) return earlier
  const { operationId, scope } = recorded
  const judgement = await database.query((connection) =>
    judgeCompensation(connection, types, { tenantId: principal.tenantId, operationId }, scope),
  )
  refuseStale(judgement.facts.version, request.ifMatchVersion)
  refuseBlocked(judgement, recorded, request.force, principal)
  const derived = derivedFrom(recorded, judgement, principal, request.reason)
  const compensation = {
    ...derived,
    scope,
    audit: derivedAudit('operation.compensate', derived, principal, request.force),
    steps: [],
    // one shard: its windows go from the last item to the first
    shardEnds: [judgement.facts.targets],
  }
  return answerInsertion(context, compensation, await insertCompensation(database, compensation))
}

const refuseBlocked = (
  judgement: CompensationJudgement,
  recorded: Preflight,
  force: readonly string[],
  principal: Principal,
): void => {
  const { noCompensationReason } = judgement.answer
  const blocking = blockingCodes(judgement, recorded, force)
  if (blocking.length === 0) return
  const names = blocking.map((code) =>
    code === 'no-compensation' && noCompensationReason !== null ? `${code} (${noCompensationReason})` : code,
  )
  throw new AppError('compensation-blocked', `the compensation is blocked by: ${names.join(', ')}`, {
    extra: { blocked_by: blocking, stop_if: shownEvaluations(judgement, principal) },
  })
}
