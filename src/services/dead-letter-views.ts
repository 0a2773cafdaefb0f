import type { DeadLetterStatus, IncidentStatus } from '../domain/dead-letter.ts'
import type { FailureClass } from '../domain/failure.ts'
import type { DbTime } from './views.ts'

export interface DeadLetterView {
  id: string
  operationId: string
  type: string
  itemKey: string
  step: string | null
  effectKey: string
  failureClass: FailureClass
  reasonCode: string | null
  message: string | null
  attempts: number
  /** The fingerprint: 32 hex digits. */
  incidentId: string
  createdAt: DbTime
  status: DeadLetterStatus
  /** Kept also when its effect is applied later. */
  closing: { at: DbTime; by: string; reason: string } | null
}

export interface IncidentView {
  /** The fingerprint; the type is part of it. */
  id: string
  type: string
  count: number
  openCount: number
  /** How many operations have dead letters of it. */
  operations: number
  firstSeenAt: DbTime
  lastSeenAt: DbTime
  /** Its newest dead letter. */
  sample: {
    message: string | null
    reasonCode: string | null
    itemKey: string
    operationId: string
    failureClass: FailureClass
  }
  status: IncidentStatus
  /** The latest; an incident that is open again keeps it. */
  resolution: { resolvedAt: DbTime; resolvedBy: string; fixedIn: string | null; reason: string } | null
}

export interface ProposedPreflightView {
  operationId: string
  targets: number
  /** One of the two lists is null. */
  scope: { states: string[]; itemKeys: string[] | null; failureClasses: string[] | null }
}

export interface ResolvedIncidentView extends IncidentView {
  /** Callers without `ledger:read` see ranges of counts, and no list whose length would tell them. */
  countsSensitive: boolean
  preflights: ProposedPreflightView[]
  hasMorePreflights: boolean
}
