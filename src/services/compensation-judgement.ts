/** What a compensation in a scope would meet now, and what that permits: for its preflight, itself and its approval. */
import { compensationVerdict } from '../domain/compensation.ts'
import { AppError } from '../domain/errors.ts'
import { isSettled } from '../domain/operation.ts'
import type { OperationType } from '../domain/operation-type.ts'
import { evaluateStopConditions, type Share } from '../domain/replay.ts'
import { type CompensationFacts, readCompensationFacts } from '../storage/compensations.ts'
import type { Connection } from '../storage/connection.ts'
import type { CompensationScope } from '../storage/preflights.ts'
import type { Types } from './context.ts'
import { ledgerPurged } from './kept.ts'
import { commonAnswer, hashFacts, readDownstreamErrors } from './preflight-judgement.ts'
import type { CompensationPreflightView } from './preflight-views.ts'
import { stopConditions } from './replay-judgement.ts'
import { noOperation } from './require-operation.ts'

/**
 * Effects that are compensated move no version of the operation, so the set of targets stands for them. Rates change by the
 * minute and are evaluated anew, as for a replay.
 */
const hashOf = (facts: CompensationFacts, scope: CompensationScope, type: OperationType): string =>
  hashFacts({
    kind: 'compensation',
    version: facts.version,
    scope,
    targets: [facts.targets, facts.targetsHash],
    itemsPurged: facts.itemsPurged,
    ran: [facts.type, facts.typeVersion, facts.codeVersion],
    installed: [type.version, type.codeVersion],
    live: [facts.liveReplays, facts.liveCompensations],
  })

type Answer = Omit<
  CompensationPreflightView,
  'id' | 'operationId' | 'expiresAt' | 'factsHash' | 'countsSensitive' | 'scope'
>

const answerOf = (facts: CompensationFacts, type: OperationType, downstreamErrors5m: Share): Answer => {
  const stopIf = evaluateStopConditions(stopConditions(type, facts), {
    ambiguousEffectTargets: facts.uncertain,
    downstreamErrors5m,
    // no undoing was rejected yet; the condition is armed while it runs
    replayRejects: { count: 0, calls: 0 },
  })
  const verdict = compensationVerdict({
    isCompensation: facts.compensates !== null,
    compensable: type.compensator !== null,
    settled: isSettled(facts.status),
    replayInProgress: facts.liveReplays.length > 0,
    compensationInProgress: facts.liveCompensations.length > 0,
    itemsPurged: facts.itemsPurged,
    targets: facts.targets,
    ambiguousEffectTargets: facts.uncertain,
    stopIf,
  })
  return {
    compensationTargets: facts.targets,
    appliedTargets: facts.applied,
    ...commonAnswer(facts, type, downstreamErrors5m, stopIf),
    noCompensationReason: type.noCompensationReason,
    ...verdict,
  }
}

export interface CompensationJudgement {
  facts: CompensationFacts
  type: OperationType
  answer: Answer
  factsHash: string
}

/**
 * Reads the facts and judges them. `approving` is a compensation that already exists and waits: it does not count as being in
 * progress, and the version that its own creation has raised is taken as it was. Errors: operation-not-found,
 * ledger-purged, unknown-operation-type (it is not installed any more).
 */
export const judgeCompensation = async (
  connection: Connection,
  types: Types,
  key: { tenantId: number; operationId: string },
  scope: CompensationScope,
  approving: { compensation: string; version: number } | null = null,
): Promise<CompensationJudgement> => {
  const read = await readCompensationFacts(connection, key, scope)
  if (!read) throw noOperation()
  if (read.ledgerPurged) throw ledgerPurged()
  const facts: CompensationFacts = {
    ...read,
    version: approving?.version ?? read.version,
    liveCompensations: read.liveCompensations.filter((id) => id !== approving?.compensation),
  }
  const type = types.get(facts.type)
  if (!type) {
    throw new AppError(
      'unknown-operation-type',
      `the operation type "${facts.type}" is not installed any more: nothing can take its effects back`,
    )
  }
  return {
    facts,
    type,
    answer: answerOf(facts, type, await readDownstreamErrors(connection, facts.type)),
    factsHash: hashOf(facts, scope, type),
  }
}
