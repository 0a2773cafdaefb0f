/**
 * One target of a bulk action, worked on through the same use cases as its single route, in the name of whoever asked. The
 * protocol, and why a crash at each line is safe, stands in storage/bulk-targets.ts.
 */
import { BULK_CLAIMS_MAX, isRefusal } from '../domain/bulk-action.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { knownScopes } from '../domain/scope.ts'
import {
  beginTarget,
  type ClaimedTarget,
  giveTargetBack,
  notePreflight,
  recordOutcome,
  type TargetOutcome,
} from '../storage/bulk-targets.ts'
import { readPreflight } from '../storage/replays.ts'
import type { ServiceContext } from './context.ts'
import type { StateReader } from './get-operation.ts'
import { preflightReplay } from './preflight-replay.ts'
import type { Principal } from './principal.ts'
import { replayOperation } from './replay.ts'
import { cancelOperation } from './stop.ts'

export type BulkContext = ServiceContext & { readState: StateReader }

const AGAIN_AFTER_MS = 2_000

const outcome = (state: TargetOutcome['state'], facts: Partial<TargetOutcome> = {}): TargetOutcome => ({
  state,
  code: null,
  detail: null,
  blockedBy: [],
  resultOperationId: null,
  ...facts,
})

const principalOf = (target: ClaimedTarget): Principal => ({
  tenantId: target.tenantId,
  name: target.requestedBy,
  scopes: knownScopes(target.requesterScopes),
  origin: { auth: 'bulk_action', scope: null, requestId: formatId('bulk', target.bulkId), traceId: null },
})

/** The trail from an operation back to the bulk action; also how a repeat knows its own cancel. */
const reasonOf = (target: ClaimedTarget): string => `${target.reason} (${formatId('bulk', target.bulkId)})`

/**
 * Acts on a claimed target and records what came of it. Throws what was no answer for this target, after it was given back;
 * then, or after a crash, it is claimed again, BULK_CLAIMS_MAX times in all.
 */
export const workOnTarget = async (context: BulkContext, target: ClaimedTarget): Promise<void> => {
  const { database } = context
  if (target.aborted) {
    const found = await findDone(context, target)
    await recordOutcome(database, target, found ?? outcome('skipped', { code: 'aborted' }))
    return
  }
  if (target.claims > BULK_CLAIMS_MAX) {
    await giveUp(context, target, 'the worker that had it in hand died each time')
    return
  }
  if (!(await beginTarget(database, target))) return
  try {
    const acted = await act(context, target)
    if (acted) await recordOutcome(database, target, acted)
  } catch (error) {
    if (error instanceof AppError && isRefusal(error.code)) {
      await recordOutcome(database, target, refusal(error))
      return
    }
    if (target.claims < BULK_CLAIMS_MAX) {
      await database.query((connection) => giveTargetBack(connection, target, AGAIN_AFTER_MS))
    } else {
      await giveUp(context, target, error instanceof AppError ? error.detail : 'an internal error; see the log')
    }
    throw error
  }
}

const refusal = (error: AppError): TargetOutcome => {
  const blockedBy = error.extra?.blocked_by
  return outcome('refused', {
    code: error.code,
    detail: error.detail,
    blockedBy: Array.isArray(blockedBy) ? blockedBy.map(String) : [],
  })
}

/** Null: the claim is lost, and somebody else goes on. */
const act = async (context: BulkContext, target: ClaimedTarget): Promise<TargetOutcome | null> => {
  switch (target.action) {
    case 'cancel':
      await cancelOperation(context, principalOf(target), target.operationId, {
        reason: reasonOf(target),
        ifMatchVersion: null,
      })
      return outcome('done')
    case 'replay':
      return replayTarget(context, target)
  }
}

const replayTarget = async (context: BulkContext, target: ClaimedTarget): Promise<TargetOutcome | null> => {
  const { database } = context
  const note = (preflightId: string | null) =>
    database.query((connection) => notePreflight(connection, target, preflightId))
  let { preflightId } = target
  if (preflightId === null) {
    const preflight = await preflightReplay(context, principalOf(target), target.operationId, { scope: target.scope })
    if (!preflight.allowed) {
      const blockedBy = preflight.blockedBy
      return outcome('refused', {
        code: 'replay-blocked',
        detail: `the replay is blocked by: ${blockedBy.join(', ')}`,
        blockedBy,
      })
    }
    preflightId = preflight.id
    if (!(await note(preflightId))) return null
  }
  try {
    const { id } = await replayOperation(context, principalOf(target), target.operationId, {
      preflightId,
      reason: reasonOf(target),
      force: [],
      ifMatchVersion: null,
    })
    return outcome('done', { resultOperationId: id })
  } catch (error) {
    // no replay came of it, and none can any more: the next attempt asks anew
    if (error instanceof AppError && error.code === 'preflight-outdated') await note(null)
    throw error
  }
}

/** What an earlier holder has done, found without doing anything. Null: nothing. */
const findDone = async ({ database, readState }: BulkContext, target: ClaimedTarget): Promise<TargetOutcome | null> => {
  const { tenantId, operationId, preflightId } = target
  switch (target.action) {
    case 'cancel': {
      const state = await readState({ tenantId, id: operationId })
      const isOurs = state?.cancelRequestedBy === target.requestedBy && state.cancelReason === reasonOf(target)
      return isOurs ? outcome('done') : null
    }
    case 'replay': {
      if (preflightId === null) return null
      const used = await database.query((connection) => readPreflight(connection, tenantId, preflightId))
      return used?.usedBy ? outcome('done', { resultOperationId: used.usedBy }) : null
    }
  }
}

const giveUp = async (context: BulkContext, target: ClaimedTarget, detail: string): Promise<void> => {
  const found = await findDone(context, target)
  await recordOutcome(context.database, target, found ?? outcome('failed', { code: 'attempts-used', detail }))
}
