/** What the judgements of a replay and of a compensation have in common. */
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { OperationType } from '../domain/operation-type.ts'
import { rateOf, type Share, type StopEvaluation } from '../domain/replay.ts'
import type { Connection } from '../storage/connection.ts'
import { readTypeWindows, SILENT_WINDOW } from '../storage/type-minutes.ts'

const ERROR_WINDOW_MINUTES = 5

/** Hex. */
export const hashFacts = (facts: object): string =>
  createHash('sha256')
    .update(canonicalize(facts) ?? '')
    .digest('hex')

export const readDownstreamErrors = async (connection: Connection, type: string): Promise<Share> => {
  const window = (await readTypeWindows(connection, ERROR_WINDOW_MINUTES)).get(type) ?? SILENT_WINDOW
  return { count: window.errors, calls: window.calls }
}

/** A type's version is what its author says of its behaviour; its hash also moves with what changes none. */
export const isVersionChanged = (type: OperationType, facts: { typeVersion: number }): boolean =>
  type.version !== facts.typeVersion

export const commonAnswer = (
  facts: { uncertain: number; lastCheckpointAgeSeconds: number | null; typeVersion: number },
  type: OperationType,
  downstreamErrors5m: Share,
  stopIf: StopEvaluation[],
) => ({
  ambiguousEffectTargets: facts.uncertain,
  lastCheckpointAgeSeconds: facts.lastCheckpointAgeSeconds,
  downstreamErrorRate5m: rateOf(downstreamErrors5m),
  codeVersionChanged: isVersionChanged(type, facts),
  codeVersionThen: String(facts.typeVersion),
  codeVersionNow: String(type.version),
  requiresApproval: type.approval !== 'none',
  compensation: type.compensation,
  stopIf,
})
