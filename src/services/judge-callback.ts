import { assertNever } from '../domain/assert.ts'
import { type CallbackDecision, type CallbackOutcome, decideCallback } from '../domain/callback.ts'
import { parseCompensationKey } from '../domain/compensation.ts'
import { type CallbackStatement, executorOf, type OperationType } from '../domain/operation-type.ts'
import {
  type CallbackStanding,
  type CallbackTarget,
  keepOutcome,
  noteAbsence,
  REPORTED_ABSENT,
  readCallback,
  readCallbackStanding,
  type StoredCallback,
} from '../storage/callbacks.ts'
import type { Report } from '../storage/run/evidence.ts'
import { absenceReport, absenceStableAfterMs } from './absence-report.ts'
import type { ServiceContext } from './context.ts'
import { convergeEvidence } from './converge.ts'
import { report } from './evidence-reports.ts'

type JudgeContext = Pick<ServiceContext, 'database' | 'wakeUps' | 'ended'>

export const CALLBACK_ACTOR = 'system:callback'
/** Each look after the first one means that somebody else moved the effect in between. */
const LOOKS_MAX = 5
const LOOK_AGAIN_MS = 1_000

/**
 * Judges a received event: looks where its effect stands, acts, and looks again, until the ledger names the event or it has
 * nothing to add. Answers with the event as it is kept then; the first outcome stands (see storage/callbacks.ts).
 */
export const judgeCallback = async (
  context: JudgeContext,
  type: OperationType,
  event: StoredCallback,
): Promise<StoredCallback> => {
  const { database } = context
  const { statement, target } = event
  if (event.processed || statement === null || target === null) return event
  const judgement = await judge(context, type, { eventId: event.eventId, statement, target })
  await database.query((connection) => keepOutcome(connection, event, judgement))
  const kept = await database.query((connection) => readCallback(connection, event))
  if (!kept) throw new Error('a callback was forgotten while it was judged')
  return kept
}

interface JudgedEvent {
  eventId: string
  statement: CallbackStatement
  target: CallbackTarget
}

interface Judgement {
  outcome: CallbackOutcome
  caseId: string | null
  dueInMs: number
}

const judge = async (context: JudgeContext, type: OperationType, event: JudgedEvent): Promise<Judgement> => {
  const { statement, target } = event
  const evidenceRef = evidenceOf(event.eventId)
  const compensating = parseCompensationKey(statement.effectKey) !== null
  const stableAfterMs = absenceStableAfterMs(executorOf(type, compensating) ?? type.executor)
  for (let looks = 0; looks < LOOKS_MAX; looks++) {
    const standing = await context.database.query((connection) =>
      readCallbackStanding(connection, target, statement.effectKey, evidenceRef),
    )
    if (standing === null) return { outcome: 'unknown_effect', caseId: null, dueInMs: 0 }
    if (standing.trace !== undefined) return traced(standing, standing.trace, statement)
    const decision = decideCallback({
      said: statement.state,
      about: target,
      effect: standing,
      stable: standing.sinceSendByMs >= stableAfterMs,
      onAbsent: type.onAbsent,
      attempt: standing.attempt,
      maxAttempts: type.retry.maxAttempts,
      cancelled: standing.cancelled,
    })
    if (decision.kind === 'known') return { outcome: 'known', caseId: null, dueInMs: 0 }
    if (decision.kind === 'defer') {
      const dueInMs = decision.reason === 'in-flight' ? 0 : stableAfterMs - standing.sinceSendByMs
      return { outcome: 'deferred', caseId: null, dueInMs }
    }
    await act(context, type, event, standing, decision)
  }
  return { outcome: 'deferred', caseId: null, dueInMs: LOOK_AGAIN_MS }
}

const evidenceOf = (eventId: string): string => `callback:${eventId}`

/** What the ledger says that the event did. */
const traced = ({ caseId }: CallbackStanding, reasonCode: string | null, said: CallbackStatement): Judgement => {
  switch (reasonCode) {
    case 'CONTRADICTS_EARLIER_EVIDENCE':
      return { outcome: 'contradiction', caseId, dueInMs: 0 }
    case 'EVIDENCE_FOR_EARLIER_SEND':
      return { outcome: 'duplicate_suspected', caseId, dueInMs: 0 }
    case REPORTED_ABSENT:
      return { outcome: 'noted', caseId, dueInMs: 0 }
    default:
      return { outcome: said.state, caseId: null, dueInMs: 0 }
  }
}

const act = async (
  context: JudgeContext,
  type: OperationType,
  { eventId, statement, target }: JudgedEvent,
  standing: CallbackStanding,
  decision: Exclude<CallbackDecision, { kind: 'known' | 'defer' }>,
): Promise<void> => {
  const evidenceRef = evidenceOf(eventId)
  const effectRef = statement.effectRef ?? null
  const converge = async (said: Pick<Report, 'effect' | 'item'> & Partial<Report>): Promise<void> => {
    await convergeEvidence(context, target, {
      source: 'callback',
      epoch: 0,
      workerId: null,
      actor: CALLBACK_ACTOR,
      codeVersion: type.codeVersion,
      lookupAfterMs: null,
      reports: [report({ ord: target.ord, effectKey: statement.effectKey, send: target.send }, said)],
    })
  }
  switch (decision.kind) {
    case 'applied':
      return converge({ effect: 'applied', item: 'applied', effectRef, evidenceRef })
    case 'explain':
      // the fence lets it move nothing
      return converge({
        effect: statement.state,
        item: statement.state === 'applied' ? 'applied' : 'failed',
        failureClass: statement.state === 'applied' ? null : 'transient',
        effectRef,
        evidenceRef,
      })
    case 'absent-retry':
    case 'absent-failed':
      return converge({
        ...absenceReport(type, decision, { attempt: standing.attempt, evidenceRef }),
        effectRef,
      })
    case 'note':
      await noteAbsence(context.database, target, {
        effectKey: statement.effectKey,
        effectRef,
        evidenceRef,
        actor: CALLBACK_ACTOR,
        codeVersion: type.codeVersion,
      })
      context.wakeUps.send('change')
      return
    default:
      return assertNever(decision)
  }
}
