/**
 * The preflight of a replay: what it would touch and what forbids it, recorded. It changes nothing else, so a crash at any
 * line costs a question. Facts come from one snapshot; their hash lets the replay refuse when any of them has changed:
 *
 *   facts_hash = version, scope, set of targets, type and code version (then and now), live replays
 *
 * Rates are not in it: they change by the minute and are evaluated anew when the replay is asked for and while it runs.
 */
import { areCountsSensitive } from '../domain/count-range.ts'
import { AppError, type Fault } from '../domain/errors.ts'
import { FAILURE_CLASSES, type FailureClass, permits } from '../domain/failure.ts'
import { formatId } from '../domain/ids.ts'
import { REPLAYABLE_STATES } from '../domain/replay.ts'
import { insertPreflight, type ReplayScope } from '../storage/preflights.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import type { PreflightView } from './preflight-views.ts'
import type { Principal } from './principal.ts'
import { judgeReplay } from './replay-judgement.ts'
import type { PreflightRequest } from './requests.ts'
import { itemKeyFaults, refuseUnknownKeys, sorted } from './scope-keys.ts'

/** Long enough to read the answer and decide, short enough to remember why. */
export const PREFLIGHT_MINUTES = 15

/** An uncertain item is explained first, never replayed. */
const REPLAYABLE_CLASSES = FAILURE_CLASSES.filter((name) => name !== 'ambiguous_effect')
const RETRYABLE_CLASSES = FAILURE_CLASSES.filter((name) => permits[name].retry)

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
export const replayScopeOf = ({ scope }: PreflightRequest): ReplayScope => {
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
  faults.push(...itemKeyFaults(itemKeys))
  if (faults.length > 0) {
    throw new AppError('invalid-request', 'there is no replay of this scope', { errors: faults })
  }
  return { states: stateNames, failureClasses: classNames, itemKeys: itemKeys && sorted(itemKeys) }
}

/** Errors: operation-not-found, ledger-purged, unknown-operation-type (it is not installed any more), invalid-request. */
export const preflightReplay = async (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  principal: Principal,
  operationId: string,
  request: PreflightRequest,
): Promise<PreflightView> => {
  const { tenantId } = principal
  const asked = replayScopeOf(request)
  return database.query(async (connection) => {
    const { scope, facts, type, answer, factsHash } = await judgeReplay(
      connection,
      types,
      { tenantId, operationId },
      asked,
    )
    refuseUnknownKeys(facts, request.scope?.itemKeys ?? null)
    const recorded = await insertPreflight(connection, {
      tenantId,
      operationId,
      kind: 'replay',
      scope,
      facts: { ...answer, version: facts.version },
      factsHash,
      requestedBy: principal.name,
      expiresInMinutes: PREFLIGHT_MINUTES,
      audit: auditEntry(
        authorOf(principal),
        'operation.replay_preflight',
        ['operation', formatId('op', operationId)],
        null,
      ),
    })
    return { ...recorded, operationId, factsHash, countsSensitive: areCountsSensitive(type), scope, ...answer }
  })
}
