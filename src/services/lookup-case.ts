import { AppError } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import {
  type Executor,
  executorOf,
  type LookupOutcome,
  lookupOfStep,
  type OperationType,
  providerIdempotentMsOf,
} from '../domain/operation-type.ts'
import { decideLookup, mayResend } from '../domain/reconciliation.ts'
import { lookupDelayMs } from '../domain/retry.ts'
import { probe } from '../probe.ts'
import { readCase } from '../storage/cases.ts'
import { type DueLookup, queueResend, scheduleLookup, takeDueLookups } from '../storage/lookups.ts'
import { absenceReport, absenceStableAfterMs } from './absence-report.ts'
import { auditEntry, authorOf } from './audit.ts'
import type { ServiceContext } from './context.ts'
import { convergeEvidence } from './converge.ts'
import { report } from './evidence-reports.ts'
import type { Principal } from './principal.ts'
import { settleOperation } from './settle.ts'

/** A taken case waits for so many others of its turn, at most. */
export const LOOKUP_TURNS = 4
const HOLD_SLACK_MS = 5_000
/** A resend that was queued is not asked about for so long: its own answer closes the case. */
const RESEND_MS = 60_000

/**
 * How long a taken case belongs to whoever took it: longer than asking about it may take, and no longer, as a case whose
 * taker died waits for so long.
 */
export const lookupHoldMs = (types: readonly Pick<OperationType, 'executor' | 'compensator'>[]): number =>
  HOLD_SLACK_MS +
  LOOKUP_TURNS *
    Math.max(
      0,
      ...types.flatMap(({ executor, compensator }) => [...lookupTimeouts(executor), ...lookupTimeouts(compensator)]),
    )

const lookupTimeouts = (executor: Executor | null): number[] =>
  executor?.kind !== 'external'
    ? []
    : [executor.lookup, ...(executor.stepLookups?.values() ?? [])].flatMap((lookup) => lookup?.timeoutMs ?? [])

type LookupContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'types' | 'ended'>

/** Asks the provider about one case now. Errors: case-not-found, case-already-resolved, lookup-not-available. */
export const lookupCase = async (context: LookupContext, principal: Principal, caseId: string): Promise<void> => {
  const found = await context.database.query((connection) => readCase(connection, principal.tenantId, caseId))
  if (!found) throw new AppError('case-not-found', 'there is no such reconciliation case')
  if (found.resolution !== null) {
    throw new AppError('case-already-resolved', `the case was resolved as ${found.resolution}`, {
      extra: { resolution: found.resolution },
    })
  }
  const type = context.types.get(found.type)
  const executor = type && executorOf(type, found.compensating)
  if (executor?.kind !== 'external' || lookupOfStep(executor, found.step) === null) {
    const lacking = found.step === '' ? found.type : `the step "${found.step}" of ${found.type}`
    const which = found.compensating ? ' for its compensations' : ''
    throw new AppError(
      'lookup-not-available',
      `${lacking} has no lookup${which}: resolve the case with evidence of your own`,
    )
  }
  if (found.cause !== 'send_outcome_unknown' && found.cause !== 'worker_lost') {
    throw new AppError('lookup-not-available', `a case of cause ${found.cause} cannot be looked up: resolve it by hand`)
  }
  const [due] = await context.database.query((connection) =>
    takeDueLookups(connection, {
      types: [found.type],
      limit: 1,
      holdMs: lookupHoldMs(type ? [type] : []),
      only: { tenantId: principal.tenantId, caseId },
      audit: auditEntry(authorOf(principal), 'case.lookup', ['case', formatId('case', caseId)], null),
    }),
  )
  if (due) await lookUp(context, due, principal.name)
}

/**
 * Asks the provider what became of one uncertain effect and brings the answer home: applied, absent (stable only after the
 * time in which the send could still arrive), or unknown, which leaves it where it is.
 */
export const lookUp = async (context: LookupContext, due: DueLookup, actor: string | null): Promise<void> => {
  const type = context.types.get(due.type)
  const executor = type && executorOf(type, due.compensating)
  if (!type || executor?.kind !== 'external') return
  const subject = { operationId: due.operationId, itemKey: due.itemKey }
  await probe('lookup-taken', subject)
  const lookup = lookupOfStep(executor, due.step)
  const outcome: LookupOutcome =
    lookup === null || due.input === undefined
      ? { state: 'unknown', reasonCode: 'NO_LOOKUP' }
      : await lookup.find({
          effectKey: due.effectKey,
          step: due.step,
          itemKey: due.itemKey,
          input: due.input,
          operationId: formatId('op', due.operationId),
          type: due.type,
          attempt: due.attempt,
          traceparent: null,
        })
  await probe('lookup-answered', subject)
  const stableAfterMs = absenceStableAfterMs(executor)
  const decision = decideLookup({
    outcome: outcome.state,
    stable: due.sinceSendByMs >= stableAfterMs,
    onAbsent: type.onAbsent,
    attempt: due.attempt,
    maxAttempts: type.retry.maxAttempts,
    cancelled: due.cancelled,
    lookups: due.lookups,
  })
  const evidenceRef = outcome.state === 'unknown' ? null : outcome.evidenceRef
  switch (decision.kind) {
    case 'applied':
      await bringHome(context, type, due, actor, {
        effect: 'applied',
        item: 'applied',
        effectRef: outcome.state === 'applied' ? (outcome.effectRef ?? null) : null,
        evidenceRef,
      })
      return
    case 'absent-retry':
    case 'absent-failed':
      await bringHome(context, type, due, actor, absenceReport(type, decision, { attempt: due.attempt, evidenceRef }))
      return
    case 'wait': {
      if (decision.reason === 'unknown' && (await resend(context, type, due))) return
      const nextInMs =
        decision.reason === 'absent-not-stable'
          ? stableAfterMs - due.sinceSendByMs
          : lookup === null
            ? null
            : lookupDelayMs(due.lookups, Math.random())
      await schedule(context, due, nextInMs, outcome.state === 'unknown' ? outcome.reasonCode : decision.reason)
      return
    }
    case 'by-hand':
      await schedule(context, due, null, outcome.state === 'absent' ? 'absent' : 'unknown')
  }
}

const schedule = (
  { database }: LookupContext,
  due: DueLookup,
  nextInMs: number | null,
  answer: string,
): Promise<void> =>
  database.query((connection) =>
    scheduleLookup(connection, { tenantId: due.tenantId, caseId: due.caseId, nextInMs, answer }),
  )

const bringHome = async (
  context: LookupContext,
  type: OperationType,
  due: DueLookup,
  actor: string | null,
  said: Parameters<typeof report>[1],
): Promise<void> => {
  await convergeEvidence(context, due, {
    source: 'lookup',
    epoch: 0,
    workerId: null,
    actor,
    codeVersion: type.codeVersion,
    lookupAfterMs: null,
    reports: [report(due, said)],
  })
}

/** The one repeat without evidence: where the provider promises that it cannot become a second effect. */
const resend = async (context: LookupContext, type: OperationType, due: DueLookup): Promise<boolean> => {
  const allowed = mayResend({
    providerIdempotentMs: providerIdempotentMsOf(type, due.compensating),
    ageMs: due.sinceStartMs,
    attempt: due.attempt,
    maxAttempts: type.retry.maxAttempts,
    cancelled: due.cancelled,
  })
  if (!allowed || !(await queueResend(context.database, due))) return false
  await schedule(context, due, RESEND_MS, 'resend queued')
  await settleOperation(context, due.tenantId, due.operationId)
  context.wakeUps.send('work')
  return true
}
