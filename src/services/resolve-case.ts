import type { AuditEntry } from '../domain/audit.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { decideResolution } from '../domain/reconciliation.ts'
import { probe } from '../probe.ts'
import { closeCase, noteCase, type OpenCase, readCase } from '../storage/cases.ts'
import { closeExplainedDoubts } from '../storage/lookups.ts'
import type { Report } from '../storage/run/evidence.ts'
import { readEffects } from '../storage/run/observations.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { convergeEvidence } from './converge.ts'
import { report } from './evidence-reports.ts'
import type { Principal } from './principal.ts'
import type { ResolveCaseRequest } from './requests.ts'
import { settleOperation } from './settle.ts'

type ResolveContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'types' | 'ended'>

const alreadyResolved = (resolution: string | null): AppError =>
  new AppError('case-already-resolved', `the case was resolved as ${resolution ?? 'something else'} in the meantime`, {
    extra: { resolution },
  })

const resendInProgress = (): AppError =>
  new AppError('resend-in-progress', 'a resend is under way: try again when it has ended')

const caseChanged = (send: number): AppError =>
  new AppError(
    'case-changed',
    `the effect was sent again since: its send is ${send} now, and may be the one that is applied`,
    {
      extra: { send },
    },
  )

/**
 * Closes a case with a person's evidence. A case stays open across a resend, so "not applied" is about a send: the one that
 * the person names, or the one that the case was opened for. Of a later one it says nothing. "Applied" is about the effect. Two people at once: the row that moved decides, the other is told the outcome.
 * Errors: case-not-found, case-already-resolved, case-changed, resend-in-progress.
 */
export const resolveCase = async (
  context: ResolveContext,
  principal: Principal,
  caseId: string,
  request: ResolveCaseRequest,
): Promise<void> => {
  const { database } = context
  const found = await database.query((connection) => readCase(connection, principal.tenantId, caseId))
  if (!found) throw new AppError('case-not-found', 'there is no such reconciliation case')
  if (found.resolution !== null) throw alreadyResolved(found.resolution)
  const won = await resolveByCause(context, principal, found, request)
  if (!won) {
    const now = await database.query((connection) => readCase(connection, principal.tenantId, caseId))
    // still open, and nothing moved: its effect is in flight again, or was, and the case is about that send now
    throw now?.resolution === null ? resendInProgress() : alreadyResolved(now?.resolution ?? null)
  }
  await probe('resolution-committed', { operationId: found.operationId })
  const { note } = request
  if (note !== null) await database.query((connection) => noteCase(connection, principal.tenantId, caseId, note))
}

const resolveByCause = async (
  context: ResolveContext,
  principal: Principal,
  found: OpenCase,
  request: ResolveCaseRequest,
): Promise<boolean> => {
  const shard = { tenantId: principal.tenantId, operationId: found.operationId, shard: found.shard }
  switch (found.cause) {
    case 'send_outcome_unknown':
    case 'worker_lost':
      return moveEffect(context, principal, shard, found, request)
    case 'in_doubt_elsewhere':
      return resolveElsewhere(context, principal, shard, found, request)
    case 'duplicate_suspected':
    case 'contradiction':
      // it holds no item back: the evidence is kept with the case, and nothing that is established is overwritten
      return context.database.query((connection) =>
        closeCase(connection, {
          tenantId: principal.tenantId,
          caseId: found.id,
          resolution: request.resolution,
          actor: principal.name,
          evidenceRef: request.evidenceRef,
          effectRef: request.effectRef,
          note: request.note,
          audit: resolutionAudit(principal, found, request),
        }),
      )
  }
}

const resolutionAudit = (principal: Principal, { id }: Pick<OpenCase, 'id'>, request: ResolveCaseRequest): AuditEntry =>
  auditEntry(authorOf(principal), 'case.resolve', ['case', formatId('case', id)], request.note, {
    resolution: request.resolution,
    retry: request.retry,
  })

const said = (
  found: { cancelled: boolean },
  request: ResolveCaseRequest,
): Pick<Report, 'effect' | 'item'> & Partial<Report> => {
  const decision = decideResolution({
    resolution: request.resolution,
    retry: request.retry,
    cancelled: found.cancelled,
  })
  const evidence = { evidenceRef: request.evidenceRef, effectRef: request.effectRef }
  switch (decision.kind) {
    case 'applied':
      return { effect: 'applied', item: 'applied', ...evidence }
    case 'absent-retry':
    case 'absent-failed':
      return {
        effect: 'absent',
        item: 'failed',
        failureClass: 'transient',
        reasonCode: 'RESOLVED_NOT_APPLIED',
        ...evidence,
        retry: decision.kind === 'absent-retry' ? { afterMs: 0, reason: 'confirmed_absent' } : null,
      }
  }
}

const moveEffect = async (
  context: ResolveContext,
  principal: Principal,
  shard: { tenantId: number; operationId: string; shard: number },
  found: Pick<OpenCase, 'id' | 'ord' | 'effectKey' | 'send' | 'type' | 'cancelled'>,
  request: ResolveCaseRequest,
): Promise<boolean> => {
  const effects = await readEffects(context.database, shard.tenantId, [found.effectKey])
  const effect = effects.get(found.effectKey)
  if (effect?.state !== 'uncertain') return false
  if (request.resolution === 'not_applied' && (request.send ?? found.send) !== effect.send)
    throw caseChanged(effect.send)
  const converged = await convergeEvidence(context, shard, {
    source: 'operator',
    epoch: 0,
    workerId: null,
    actor: principal.name,
    codeVersion: context.types.get(found.type)?.codeVersion ?? 'unknown',
    lookupAfterMs: null,
    reports: [report({ ord: found.ord, effectKey: found.effectKey, send: effect.send }, said(found, request))],
    audit: resolutionAudit(principal, found, request),
  })
  return converged.moved.size > 0
}

/** The doubt is about another item's effect: the evidence belongs there, and closes this case from it. */
const resolveElsewhere = async (
  context: ResolveContext,
  principal: Principal,
  shard: { tenantId: number; operationId: string; shard: number },
  found: OpenCase,
  request: ResolveCaseRequest,
): Promise<boolean> => {
  const effects = await readEffects(context.database, shard.tenantId, [found.effectKey])
  const effect = effects.get(found.effectKey)
  let moved = false
  if (effect?.state === 'uncertain') {
    const owner = { tenantId: shard.tenantId, operationId: effect.operationId, shard: effect.shard }
    moved = await moveEffect(context, principal, owner, { ...found, ord: effect.ord, cancelled: true }, request)
  }
  const closed = await closeExplainedDoubts(context.database, {
    ...shard,
    ords: [found.ord],
    // the move has told of it
    audit: moved ? null : resolutionAudit(principal, found, request),
    said: request.resolution,
  })
  // where the evidence was this person's, they won, also when the reconciler has closed the case from it since
  if (closed === 0) return moved
  context.wakeUps.send('work')
  context.wakeUps.send('change')
  await settleOperation(context, shard.tenantId, shard.operationId)
  if (moved) return true
  // somebody else's evidence has closed it: they are right where it says the same, and else are told what it says
  const now = await context.database.query((connection) => readCase(connection, shard.tenantId, found.id))
  return now?.resolution === request.resolution
}
