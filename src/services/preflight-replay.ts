/**
 * The preflight of a replay: what it would touch and what forbids it, recorded. It changes nothing else, so a crash at any
 * line costs a question. Facts come from one snapshot; their hash lets the replay refuse when any of them has changed:
 *
 *   facts_hash = version, scope, set of targets, type and code version (then and now), live replays
 *
 * Rates are not in it: they change by the minute and are evaluated anew when the replay is asked for and while it runs.
 */
import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { AppError, type Fault } from '../domain/errors.ts'
import { FAILURE_CLASSES, type FailureClass, permits } from '../domain/failure.ts'
import { isSettled } from '../domain/operation.ts'
import type { OperationType } from '../domain/operation-type.ts'
import {
  DEFAULT_STOP_IF,
  evaluateStopConditions,
  parseStopCondition,
  preflightVerdict,
  rateOf,
  type Share,
  type StopCondition,
} from '../domain/replay.ts'
import { insertPreflight, type ReplayFacts, type ReplayScope, readReplayFacts } from '../storage/preflights.ts'
import { readTypeWindows, SILENT_WINDOW } from '../storage/type-minutes.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { PreflightRequest } from './requests.ts'
import type { PreflightView } from './views.ts'

/** Long enough to read the answer and decide, short enough to remember why. */
const PREFLIGHT_MINUTES = 15
const SCOPE_ITEM_KEYS_MAX = 10_000
const ERROR_WINDOW_MINUTES = 5

const REPLAYABLE_STATES = ['failed', 'unprocessed'] as const
/** An uncertain item is explained first, never replayed. */
const REPLAYABLE_CLASSES = FAILURE_CLASSES.filter((name) => name !== 'ambiguous_effect')
const RETRYABLE_CLASSES = FAILURE_CLASSES.filter((name) => permits[name].retry)

const sorted = (values: readonly string[]): string[] => [...new Set(values)].sort()

const namesOf = <T extends string>(names: readonly string[], known: readonly T[], pointer: string, faults: Fault[]) => {
  for (const [index, name] of names.entries()) {
    if (known.some((one) => one === name)) continue
    faults.push({ detail: `cannot be replayed; what can: ${known.join(', ')}`, pointer: `${pointer}/${index}` })
  }
  return known.filter((one) => names.includes(one))
}

/**
 * The scope in one spelling. Nothing asked: what failed and may be retried, and what is unprocessed. Otherwise each list
 * restricts and a missing one does not; failure classes alone speak of failed items only.
 */
const scopeOf = ({ scope }: PreflightRequest): ReplayScope => {
  const { states, failureClasses, itemKeys } = scope ?? { states: null, failureClasses: null, itemKeys: null }
  if (states === null && failureClasses === null && itemKeys === null) {
    return { states: [...REPLAYABLE_STATES], failureClasses: RETRYABLE_CLASSES, itemKeys: null }
  }
  const faults: Fault[] = []
  const stateNames = namesOf(
    states ?? (failureClasses === null ? REPLAYABLE_STATES : ['failed']),
    REPLAYABLE_STATES,
    '/scope/states',
    faults,
  )
  const classNames = namesOf<FailureClass>(
    failureClasses ?? REPLAYABLE_CLASSES,
    REPLAYABLE_CLASSES,
    '/scope/failure_classes',
    faults,
  )
  if (failureClasses !== null && states !== null && !states.includes('failed')) {
    faults.push({ detail: 'only failed items have a failure class', pointer: '/scope/failure_classes' })
  }
  if (itemKeys !== null && itemKeys.length > SCOPE_ITEM_KEYS_MAX) {
    faults.push({ detail: `at most ${SCOPE_ITEM_KEYS_MAX} item keys`, pointer: '/scope/item_keys' })
  }
  if (faults.length > 0) {
    throw new AppError('invalid-request', 'there is no replay of this scope', { errors: faults })
  }
  return { states: stateNames, failureClasses: classNames, itemKeys: itemKeys && sorted(itemKeys) }
}

/** A key that no item has is a slip of the hand: the replay would silently leave out what was meant. */
const refuseUnknownKeys = (facts: ReplayFacts, request: PreflightRequest): void => {
  if (facts.itemsPurged || facts.unknownKeys.length === 0) return
  const asked = request.scope?.itemKeys ?? []
  throw new AppError('invalid-request', 'the scope names items that the operation does not have', {
    errors: facts.unknownKeys.map((key) => ({
      detail: `no item has the key "${key}"`,
      pointer: `/scope/item_keys/${asked.indexOf(key)}`,
    })),
  })
}

/** The type's conditions and the operation's stricter ones. That nothing may be uncertain stands in every list. */
const stopConditions = (type: OperationType, facts: ReplayFacts): StopCondition[] => {
  const texts = [...(type.stopIf.length > 0 ? type.stopIf : DEFAULT_STOP_IF), ...facts.stopIf]
  const conditions = [DEFAULT_STOP_IF[0] ?? '', ...texts]
    .map(parseStopCondition)
    .filter((condition) => condition !== null)
  return conditions.filter(
    ({ condition }, index) => conditions.findIndex((other) => other.condition === condition) === index,
  )
}

const isCodeChanged = (type: OperationType, facts: ReplayFacts): boolean =>
  type.version !== facts.typeVersion || type.codeVersion !== facts.codeVersion

const hashFacts = (facts: ReplayFacts, scope: ReplayScope, type: OperationType): string => {
  const hashed = {
    version: facts.version,
    scope,
    targets: [facts.targets, facts.targetsHash],
    ran: [facts.type, facts.typeVersion, facts.codeVersion],
    installed: [type.version, type.codeVersion],
    liveReplays: facts.liveReplays,
  }
  return createHash('sha256')
    .update(canonicalize(hashed) ?? '')
    .digest('hex')
}

type Answer = Omit<PreflightView, 'id' | 'operationId' | 'expiresAt' | 'factsHash' | 'scope'>

const answerOf = (facts: ReplayFacts, type: OperationType, downstreamErrors5m: Share): Answer => {
  const codeVersionChanged = isCodeChanged(type, facts)
  const stopIf = evaluateStopConditions(stopConditions(type, facts), {
    ambiguousEffectTargets: facts.uncertain,
    downstreamErrors5m,
    // the replay has rejected nothing yet; the condition is armed while it runs
    replayRejects: { count: 0, calls: 0 },
  })
  const verdict = preflightVerdict({
    settled: isSettled(facts.status),
    replayInProgress: facts.liveReplays.length > 0,
    itemsPurged: facts.itemsPurged,
    replayTargets: facts.targets,
    ambiguousEffectTargets: facts.uncertain,
    unfixedBugTargets: codeVersionChanged ? 0 : facts.bugTargets,
    stopIf,
  })
  return {
    replayTargets: facts.targets,
    failedTargets: facts.failed,
    confirmedTargets: facts.confirmed,
    ambiguousEffectTargets: facts.uncertain,
    validationRejectedTargets: facts.validationRejected,
    unprocessedTargets: facts.unprocessed,
    deadLetterTargets: facts.deadLetters,
    lastCheckpointAgeSeconds: facts.lastCheckpointAgeSeconds,
    downstreamErrorRate5m: rateOf(downstreamErrors5m),
    codeVersionChanged,
    codeVersionThen: facts.codeVersion,
    codeVersionNow: type.codeVersion,
    requiresApproval: type.approval !== 'none',
    compensation: type.compensation,
    stopIf,
    ...verdict,
  }
}

/** Errors: operation-not-found, unknown-operation-type (it is not installed any more), invalid-request. */
export const preflightReplay = async (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  principal: Principal,
  operationId: string,
  request: PreflightRequest,
): Promise<PreflightView> => {
  const { tenantId } = principal
  const scope = scopeOf(request)
  return database.query(async (connection) => {
    const facts = await readReplayFacts(connection, { tenantId, operationId }, scope)
    if (!facts) throw new AppError('operation-not-found', 'there is no such operation')
    refuseUnknownKeys(facts, request)
    const type = types.get(facts.type)
    if (!type) {
      throw new AppError(
        'unknown-operation-type',
        `the operation type "${facts.type}" is not installed any more: nothing can replay it`,
      )
    }
    const window = (await readTypeWindows(connection, ERROR_WINDOW_MINUTES)).get(facts.type) ?? SILENT_WINDOW
    const answer = answerOf(facts, type, { count: window.errors, calls: window.calls })
    const factsHash = hashFacts(facts, scope, type)
    const recorded = await insertPreflight(connection, {
      tenantId,
      operationId,
      scope,
      facts: answer,
      factsHash,
      requestedBy: principal.name,
      expiresInMinutes: PREFLIGHT_MINUTES,
    })
    return { ...recorded, operationId, factsHash, scope, ...answer }
  })
}
