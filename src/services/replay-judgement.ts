/** What a replay in a scope would meet now, and what that permits: for the preflight, the replay and its approval. */
import { AppError } from '../domain/errors.ts'
import { FAILURE_CLASSES } from '../domain/failure.ts'
import { ITEM_STATES } from '../domain/ledger.ts'
import { isSettled } from '../domain/operation.ts'
import type { OperationType } from '../domain/operation-type.ts'
import {
  DEFAULT_STOP_IF,
  evaluateStopConditions,
  parseStopCondition,
  preflightVerdict,
  type Share,
  type StopCondition,
} from '../domain/replay.ts'
import type { Connection } from '../storage/connection.ts'
import { type ReplayFacts, type ReplayScope, readReplayFacts } from '../storage/preflights.ts'
import type { Types } from './context.ts'
import { ledgerPurged } from './kept.ts'
import { commonAnswer, hashFacts, isVersionChanged, readDownstreamErrors } from './preflight-judgement.ts'
import type { PreflightView } from './preflight-views.ts'
import { noOperation } from './require-operation.ts'

/** The type's conditions and the operation's stricter ones. That nothing may be uncertain stands in every list. */
export const stopConditions = (type: OperationType, facts: Pick<ReplayFacts, 'stopIf'>): StopCondition[] => {
  const texts = [...(type.stopIf.length > 0 ? type.stopIf : DEFAULT_STOP_IF), ...facts.stopIf]
  const conditions = [DEFAULT_STOP_IF[0] ?? '', ...texts]
    .map(parseStopCondition)
    .filter((condition) => condition !== null)
  return conditions.filter(
    ({ condition }, index) => conditions.findIndex((other) => other.condition === condition) === index,
  )
}

/** Any other code may hold the fix of a suspected bug. */
const mayBeFixed = (type: OperationType, facts: ReplayFacts): boolean =>
  isVersionChanged(type, facts) || type.codeVersion !== facts.codeVersion

const hashOf = (facts: ReplayFacts, scope: ReplayScope, type: OperationType): string =>
  hashFacts({
    version: facts.version,
    scope,
    targets: [facts.targets, facts.targetsHash],
    ran: [facts.type, facts.typeVersion, facts.codeVersion],
    installed: [type.version, type.codeVersion],
    liveReplays: facts.liveReplays,
    liveCompensations: facts.liveCompensations,
  })

type Answer = Omit<PreflightView, 'id' | 'operationId' | 'expiresAt' | 'factsHash' | 'countsSensitive' | 'scope'>

const answerOf = (facts: ReplayFacts, type: OperationType, downstreamErrors5m: Share): Answer => {
  const stopIf = evaluateStopConditions(stopConditions(type, facts), {
    ambiguousEffectTargets: facts.uncertain,
    downstreamErrors5m,
    // the replay has rejected nothing yet; the condition is armed while it runs
    replayRejects: { count: 0, calls: 0 },
  })
  const verdict = preflightVerdict({
    settled: isSettled(facts.status),
    replayInProgress: facts.liveReplays.length > 0,
    compensationInProgress: facts.liveCompensations.length > 0,
    compensationLost: facts.compensates !== null && type.compensator === null,
    itemsPurged: facts.itemsPurged,
    replayTargets: facts.targets,
    ambiguousEffectTargets: facts.uncertain,
    unfixedBugTargets: mayBeFixed(type, facts) ? 0 : facts.bugTargets,
    stopIf,
  })
  return {
    replayTargets: facts.targets,
    failedTargets: facts.failed,
    confirmedTargets: facts.confirmed,
    validationRejectedTargets: facts.validationRejected,
    unprocessedTargets: facts.unprocessed,
    deadLetterTargets: facts.deadLetters,
    ...commonAnswer(facts, type, downstreamErrors5m, stopIf),
    ...verdict,
  }
}

/**
 * Nothing of an artifact that was not published is kept, so its replay makes all of it: whatever part of it is asked for,
 * if that has anything to replay at all.
 */
const WHOLE: ReplayScope = {
  states: [...ITEM_STATES, 'unprocessed'],
  failureClasses: [...FAILURE_CLASSES],
  itemKeys: null,
}

export interface ReplayJudgement {
  /** What is replayed: the asked scope, or more. */
  scope: ReplayScope
  facts: ReplayFacts
  type: OperationType
  answer: Answer
  factsHash: string
}

/**
 * Reads the facts and judges them. `approving` is a replay that already exists and waits: it does not count as being in
 * progress, and the version that its own creation has raised is taken as it was. Errors: operation-not-found, ledger-purged,
 * unknown-operation-type (it is not installed any more).
 */
export const judgeReplay = async (
  connection: Connection,
  types: Types,
  key: { tenantId: number; operationId: string },
  asked: ReplayScope,
  approving: { replay: string; version: number } | null = null,
): Promise<ReplayJudgement> => {
  let scope = asked
  let read = await readReplayFacts(connection, key, scope)
  if (read && read.targets > 0 && types.get(read.type)?.effect === 'artifact') {
    scope = WHOLE
    read = await readReplayFacts(connection, key, scope)
  }
  if (!read) throw noOperation()
  if (read.ledgerPurged) throw ledgerPurged()
  const facts: ReplayFacts = {
    ...read,
    version: approving?.version ?? read.version,
    liveReplays: read.liveReplays.filter((id) => id !== approving?.replay),
  }
  const type = types.get(facts.type)
  if (!type) {
    throw new AppError(
      'unknown-operation-type',
      `the operation type "${facts.type}" is not installed any more: nothing can replay it`,
    )
  }
  return {
    scope,
    facts,
    type,
    answer: answerOf(facts, type, await readDownstreamErrors(connection, facts.type)),
    factsHash: hashOf(facts, scope, type),
  }
}
