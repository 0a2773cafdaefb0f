import { AppError } from '../domain/errors.ts'
import { leaseAdvice } from '../domain/lease.ts'
import { cancelGuarantee, type OperationType } from '../domain/operation-type.ts'
import { listPausedTypes, pauseType, resumeType, type TypePauseRow } from '../storage/operation-types.ts'
import { readTypeWindows } from '../storage/type-minutes.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { OperationTypeView } from './views.ts'

type TypesContext = Pick<ServiceContext, 'database' | 'types' | 'wakeUps'>

const P95_MINUTES = 60

const readMeasured = ({ database }: TypesContext, { tenantId }: Principal) =>
  database.query(async (connection) => {
    const [pauses, windows] = await Promise.all([
      listPausedTypes(connection, tenantId),
      readTypeWindows(connection, P95_MINUTES),
    ])
    return { pauses: new Map(pauses.map((pause) => [pause.name, pause])), windows }
  })

export const listOperationTypes = async (context: TypesContext, principal: Principal): Promise<OperationTypeView[]> => {
  const { pauses, windows } = await readMeasured(context, principal)
  return context.types
    .list()
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((type) => toView(type, pauses.get(type.name), windows.get(type.name)?.p95Ms ?? null))
}

export const getOperationType = async (
  context: TypesContext,
  principal: Principal,
  name: string,
): Promise<OperationTypeView | null> => {
  const type = context.types.get(name)
  if (type === undefined) return null
  const { pauses, windows } = await readMeasured(context, principal)
  return toView(type, pauses.get(name), windows.get(name)?.p95Ms ?? null)
}

/** The kill switch. Operations of the type stay as they are; workers start nothing of it until it is resumed. */
export const pauseOperationType = async (
  context: TypesContext,
  principal: Principal,
  name: string,
  { reason }: { reason: string | null },
): Promise<OperationTypeView> => {
  const { version, codeVersion } = typeOrThrow(context, name)
  const { tenantId, name: by } = principal
  const audit = auditEntry(authorOf(principal), 'operation_type.pause', ['operation_type', name], reason)
  await context.database.query((connection) =>
    pauseType(connection, { tenantId, name, version, codeVersion, by, reason, audit }),
  )
  return viewOrThrow(context, principal, name)
}

export const resumeOperationType = async (
  context: TypesContext,
  principal: Principal,
  name: string,
  { reason }: { reason: string | null },
): Promise<OperationTypeView> => {
  typeOrThrow(context, name)
  const { tenantId } = principal
  const audit = auditEntry(authorOf(principal), 'operation_type.resume', ['operation_type', name], reason)
  await context.database.query((connection) => resumeType(connection, { tenantId, name, audit }))
  context.wakeUps.send('work')
  return viewOrThrow(context, principal, name)
}

const typeOrThrow = ({ types }: TypesContext, name: string): OperationType => {
  const type = types.get(name)
  if (type === undefined) throw new AppError('operation-type-not-found', `There is no operation type ${name}`)
  return type
}

const viewOrThrow = async (context: TypesContext, principal: Principal, name: string): Promise<OperationTypeView> => {
  const view = await getOperationType(context, principal, name)
  if (view === null) throw new AppError('operation-type-not-found', `There is no operation type ${name}`)
  return view
}

const toView = (type: OperationType, pause: TypePauseRow | undefined, p95Ms: number | null): OperationTypeView => {
  const callTimeoutMs = Math.max(
    ...[type.executor, type.compensator].map((executor) =>
      executor?.kind === 'external' ? executor.callTimeoutMs : 0,
    ),
  )
  const advice = leaseAdvice({ p95Ms, callTimeoutMs })
  return {
    name: type.name,
    version: type.version,
    description: type.description,
    owner: type.owner,
    effect: type.effect,
    risk: type.risk,
    touches: type.touches,
    approval: type.approval,
    idempotencyKey: type.idempotencyKey,
    cancelGuarantee: cancelGuarantee(type),
    steps: type.steps.map((step, index) => ({
      name: step,
      irreversible: type.endsIrreversibly && index === type.steps.length - 1,
    })),
    batch: type.batch,
    parallelism: type.parallelism,
    concurrency: type.concurrency,
    ratePerSecond: type.ratePerSecond,
    leaseMs: type.leaseMs,
    leaseAdviceMs: advice && { min: advice.minMs, max: advice.maxMs },
    p95Ms,
    maxCancelMs: type.maxCancelMs,
    retry: type.retry,
    stopIf: type.stopIf,
    counts: type.counts,
    retention: type.retention,
    compensation: type.compensation,
    noCompensationReason: type.noCompensationReason,
    codeVersion: type.codeVersion,
    inputSchema: type.inputSchema,
    paused: pause?.pausedAt ? { at: pause.pausedAt, by: pause.pausedBy, reason: pause.pausedReason } : null,
  }
}
