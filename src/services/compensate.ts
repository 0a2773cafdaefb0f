/**
 * A compensation: a new operation that takes the applied effects of another one back, in reverse order, with effect keys and
 * a ledger of its own.
 *
 * Why nothing is undone twice: each undoing has an effect key that names the effect and its send, and the registry decides
 * about it as about any other; while anything is uncertain, or another compensation or a replay is open, it refuses.
 * Why a repeat is safe: a preflight is used once, and its row names the compensation. A caller without one asks twice for a
 * compensation, and the second time it is in progress, or nothing is left. Refusals come in the order 400, 412, 409.
 */
import { uuidv7 } from 'uuidv7'
import { AppError } from '../domain/errors.ts'
import { isForceable } from '../domain/replay.ts'
import { insertCompensation } from '../storage/compensations.ts'
import { type RecordedPreflight, readPreflight } from '../storage/replays.ts'
import { type CompensationJudgement, judgeCompensation } from './compensation-judgement.ts'
import type { ServiceContext } from './context.ts'
import { refuseStale } from './if-match.ts'
import { preflightCompensation } from './preflight-compensation.ts'
import type { Principal } from './principal.ts'
import type { CompensateRequest } from './requests.ts'

type CompensateContext = Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>
type Preflight = Extract<RecordedPreflight, { kind: 'compensation' }>
type Made = { id: string; replayed: boolean }

/** The operation changed between our own preflight and its use; after so many times it is busy, and the caller is told. */
const OWN_PREFLIGHTS_MAX = 3

const outdated = (detail: string): AppError => new AppError('preflight-outdated', `${detail}: ask for a new preflight`)

/**
 * Errors: operation-not-found, unknown-operation-type, invalid-request (no such preflight of this operation),
 * version-conflict, preflight-outdated, compensation-blocked. `replayed` tells that the preflight was used before, and names
 * that compensation.
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
    const { id } = await preflightCompensation(context, principal, operationId, { scope: null })
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
  throw new AppError('invalid-request', 'there is no such preflight of a compensation of this operation', {
    errors: [{ detail: 'no such compensation preflight of this operation', pointer: '/preflight_id' }],
  })
}

const usePreflight = async (
  { database, types, wakeUps }: CompensateContext,
  { tenantId, name }: Principal,
  recorded: Preflight,
  request: CompensateRequest,
): Promise<Made> => {
  if (recorded.usedBy !== null) return { id: recorded.usedBy, replayed: true }
  if (recorded.expired) throw outdated('the preflight has expired')
  const { operationId, scope } = recorded
  const judgement = await database.query((connection) =>
    judgeCompensation(connection, types, { tenantId, operationId }, scope),
  )
  refuseStale(judgement.facts.version, request.ifMatchVersion)
  refuseBlocked(judgement, recorded, request.force)
  const id = uuidv7()
  const { type, facts } = judgement
  const made = await insertCompensation(database, {
    tenantId,
    id,
    preflightId: recorded.id,
    of: operationId,
    seenVersion: facts.version,
    scope,
    targets: facts.targets,
    typeVersion: type.version,
    codeVersion: type.codeVersion,
    requestedBy: name,
    reason: request.reason,
    approvalRequired: type.approval === 'none' ? null : type.approval,
    // one shard: its windows go from the last item to the first
    steps: [],
    shardEnds: [facts.targets],
  })
  switch (made.kind) {
    case 'used':
      return { id: made.by, replayed: true }
    case 'outdated':
      throw outdated('the operation changed')
    case 'made':
      wakeUps.send('work')
      wakeUps.send('change')
      return { id, replayed: false }
  }
}

const IN_PROGRESS: readonly string[] = ['replay-in-progress', 'compensation-in-progress']

const refuseBlocked = (judgement: CompensationJudgement, recorded: Preflight, force: readonly string[]): void => {
  const { blockedBy, stopIf, noCompensationReason } = judgement.answer
  // what is open of the same operation is a refusal of its own, not a change that went unseen
  const isOpen = blockedBy.some((code) => IN_PROGRESS.includes(code))
  if (judgement.factsHash !== recorded.factsHash && !isOpen) throw outdated('the facts have changed')
  const blocking = blockedBy.filter((code) => !(force.includes(code) && isForceable(code)))
  if (blocking.length === 0) return
  const names = blocking.map((code) =>
    code === 'no-compensation' && noCompensationReason !== null ? `${code} (${noCompensationReason})` : code,
  )
  throw new AppError('compensation-blocked', `the compensation is blocked by: ${names.join(', ')}`, {
    extra: { blocked_by: blocking, stop_if: stopIf },
  })
}
