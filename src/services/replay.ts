/**
 * A replay: a new operation over what a preflight named, and nothing else.
 *
 * Why it cannot duplicate an effect: it refuses while anything is uncertain; it runs only what the preflight's facts still
 * describe; and its items keep their effect keys, so the registry turns what was applied since into `skipped`. (An
 * artifact that was not published is nothing: its replay makes all of it again, under keys of its own.)
 * Why a repeat is safe: a preflight is used once, and its row names the replay. Refusals come in the order 400, 412, 409.
 */
import { AppError } from '../domain/errors.ts'
import { insertReplay, type RecordedPreflight, readPreflight } from '../storage/replays.ts'
import type { ServiceContext } from './context.ts'
import { shownEvaluations } from './count-ranges.ts'
import { refuseStale } from './if-match.ts'
import { answerInsertion, blockingCodes, derivedAudit, derivedFrom, earlierUse, type Made } from './preflight-use.ts'
import type { Principal } from './principal.ts'
import { judgeReplay, type ReplayJudgement } from './replay-judgement.ts'
import type { ReplayRequest } from './requests.ts'
import { requireOperation } from './require-operation.ts'
import { shardEnds } from './shard-ends.ts'

/**
 * Errors: operation-not-found, invalid-request (no such preflight of this operation), version-conflict, preflight-outdated,
 * replay-blocked, ledger-purged.
 * `replayed` tells that the preflight was used before, and names that replay.
 */
export const replayOperation = async (
  context: Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>,
  principal: Principal,
  operationId: string,
  request: ReplayRequest,
): Promise<Made> => {
  const { database, types } = context
  const { tenantId } = principal
  const recorded = await database.query((connection) => readPreflight(connection, tenantId, request.preflightId))
  if (recorded?.kind !== 'replay' || recorded.operationId !== operationId) {
    await requireOperation(database, { tenantId, operationId })
    throw new AppError('invalid-request', 'there is no such preflight of this operation', {
      errors: [{ detail: 'no such preflight of this operation', pointer: '/preflight_id' }],
    })
  }
  const earlier = earlierUse(recorded)
  if (earlier) return earlier
  const judgement = await database.query((connection) =>
    judgeReplay(connection, types, { tenantId, operationId }, recorded.scope),
  )
  refuseStale(judgement.facts.version, request.ifMatchVersion)
  refuseBlocked(judgement, recorded, request.force, principal)
  const { type, facts } = judgement
  const derived = derivedFrom(recorded, judgement, principal, request.reason)
  const made = await insertReplay(database, {
    ...derived,
    scope: recorded.scope,
    audit: derivedAudit('operation.replay', derived, principal, request.force),
    // a compensation undoes an item as a whole
    steps: facts.compensates === null ? type.steps : [],
    effectKeyPrefix: type.effect === 'artifact' ? `${type.name}:${derived.id}:` : null,
    // a compensation keeps its order, also where it is repeated
    shardEnds: facts.compensates === null ? shardEnds(type, facts.targets) : [facts.targets],
  })
  return answerInsertion(context, derived, made)
}

const refuseBlocked = (
  judgement: ReplayJudgement,
  recorded: RecordedPreflight,
  force: readonly string[],
  principal: Principal,
): void => {
  const blocking = blockingCodes(judgement, recorded, force)
  if (blocking.length === 0) return
  throw new AppError('replay-blocked', `the replay is blocked by: ${blocking.join(', ')}`, {
    extra: { blocked_by: blocking, stop_if: shownEvaluations(judgement, principal) },
  })
}
