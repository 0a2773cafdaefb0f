/**
 * A replay: a new operation over what a preflight named, and nothing else.
 *
 * Why it cannot duplicate an effect: it refuses while anything is uncertain; it runs only what the preflight's facts still
 * describe; and its items keep their effect keys, so the registry turns what was applied since into `skipped`. (An
 * artifact that was not published is nothing: its replay makes all of it again, under keys of its own.)
 * Why a repeat is safe: a preflight is used once, and its row names the replay. Refusals come in the order 400, 412, 409.
 */
import { uuidv7 } from 'uuidv7'
import { AppError } from '../domain/errors.ts'
import { isForceable } from '../domain/replay.ts'
import { insertReplay, type RecordedPreflight, readPreflight } from '../storage/replays.ts'
import type { ServiceContext } from './context.ts'
import { refuseStale } from './if-match.ts'
import type { Principal } from './principal.ts'
import { judgeReplay, type ReplayJudgement } from './replay-judgement.ts'
import type { ReplayRequest } from './requests.ts'
import { shardEnds } from './shard-ends.ts'

const outdated = (detail: string): AppError => new AppError('preflight-outdated', `${detail}: ask for a new preflight`)

/**
 * Errors: operation-not-found, invalid-request (no such preflight of this operation), version-conflict, preflight-outdated,
 * replay-blocked.
 * `replayed` tells that the preflight was used before, and names that replay.
 */
export const replayOperation = async (
  context: Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>,
  principal: Principal,
  operationId: string,
  request: ReplayRequest,
): Promise<{ id: string; replayed: boolean }> => {
  const { database, types, wakeUps } = context
  const { tenantId } = principal
  const recorded = await database.query((connection) => readPreflight(connection, tenantId, request.preflightId))
  if (recorded?.kind !== 'replay' || recorded.operationId !== operationId) {
    throw new AppError('invalid-request', 'there is no such preflight of this operation', {
      errors: [{ detail: 'no such preflight of this operation', pointer: '/preflight_id' }],
    })
  }
  if (recorded.usedBy !== null) return { id: recorded.usedBy, replayed: true }
  if (recorded.expired) throw outdated('the preflight has expired')
  const judgement = await database.query((connection) =>
    judgeReplay(connection, types, { tenantId, operationId }, recorded.scope),
  )
  refuseStale(judgement.facts.version, request.ifMatchVersion)
  refuseBlocked(judgement, recorded, request.force)
  const id = uuidv7()
  const { type, facts } = judgement
  const made = await insertReplay(database, {
    tenantId,
    id,
    preflightId: recorded.id,
    of: operationId,
    seenVersion: facts.version,
    scope: recorded.scope,
    targets: facts.targets,
    typeVersion: type.version,
    codeVersion: type.codeVersion,
    requestedBy: principal.name,
    reason: request.reason,
    approvalRequired: type.approval === 'none' ? null : type.approval,
    // a compensation undoes an item as a whole
    steps: facts.compensates === null ? type.steps : [],
    effectKeyPrefix: type.effect === 'artifact' ? `${type.name}:${id}:` : null,
    // a compensation keeps its order, also where it is repeated
    shardEnds: facts.compensates === null ? shardEnds(type, facts.targets) : [facts.targets],
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

const refuseBlocked = (judgement: ReplayJudgement, recorded: RecordedPreflight, force: readonly string[]): void => {
  const { blockedBy, stopIf } = judgement.answer
  // a live replay or compensation of the same operation is a refusal of its own, not a change that went unseen
  const running = blockedBy.includes('replay-in-progress') || blockedBy.includes('compensation-in-progress')
  if (judgement.factsHash !== recorded.factsHash && !running) throw outdated('the facts have changed')
  const blocking = blockedBy.filter((code) => !(force.includes(code) && isForceable(code)))
  if (blocking.length === 0) return
  throw new AppError('replay-blocked', `the replay is blocked by: ${blocking.join(', ')}`, {
    extra: { blocked_by: blocking, stop_if: stopIf },
  })
}
