/**
 * The preflight of a compensation: what it would take back and what forbids it, recorded. It changes nothing else, so a crash
 * at any line costs a question. Its facts and their hash are those of compensation-judgement.ts.
 */
import { areCountsSensitive } from '../domain/count-range.ts'
import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import { type CompensationScope, insertPreflight } from '../storage/preflights.ts'
import { auditEntry, authorOf } from './audit.ts'
import { judgeCompensation } from './compensation-judgement.ts'
import type { ServiceContext } from './context.ts'
import { PREFLIGHT_MINUTES } from './preflight-replay.ts'
import type { CompensationPreflightView } from './preflight-views.ts'
import type { Principal } from './principal.ts'
import type { CompensationPreflightRequest } from './requests.ts'
import { itemKeyFaults, refuseUnknownKeys, sorted } from './scope-keys.ts'

const scopeOf = ({ scope }: CompensationPreflightRequest): CompensationScope => {
  const itemKeys = scope?.itemKeys ?? null
  const errors = itemKeyFaults(itemKeys)
  if (errors.length > 0) throw new AppError('invalid-request', 'there is no compensation of this scope', { errors })
  return { itemKeys: itemKeys && sorted(itemKeys) }
}

/** Errors: operation-not-found, ledger-purged, unknown-operation-type (it is not installed any more), invalid-request. */
export const preflightCompensation = async (
  { database, types }: Pick<ServiceContext, 'database' | 'types'>,
  principal: Principal,
  operationId: string,
  request: CompensationPreflightRequest,
  { audited } = { audited: true },
): Promise<CompensationPreflightView> => {
  const { tenantId } = principal
  const scope = scopeOf(request)
  return database.query(async (connection) => {
    const { facts, type, answer, factsHash } = await judgeCompensation(
      connection,
      types,
      { tenantId, operationId },
      scope,
    )
    refuseUnknownKeys(facts, request.scope?.itemKeys ?? null)
    const recorded = await insertPreflight(connection, {
      tenantId,
      operationId,
      kind: 'compensation',
      scope,
      facts: { ...answer, version: facts.version },
      factsHash,
      requestedBy: principal.name,
      expiresInMinutes: PREFLIGHT_MINUTES,
      audit: audited
        ? auditEntry(
            authorOf(principal),
            'operation.compensation_preflight',
            ['operation', formatId('op', operationId)],
            null,
          )
        : null,
    })
    return { ...recorded, operationId, factsHash, countsSensitive: areCountsSensitive(type), scope, ...answer }
  })
}
