import type { DbTime } from './views.ts'

export interface PreflightView {
  id: string
  operationId: string
  expiresAt: DbTime
  factsHash: string
  /** Callers without `ledger:read` see ranges. */
  countsSensitive: boolean
  scope: { states: string[]; failureClasses: string[]; itemKeys: string[] | null }
  replayTargets: number
  failedTargets: number
  confirmedTargets: number
  ambiguousEffectTargets: number
  validationRejectedTargets: number
  unprocessedTargets: number
  deadLetterTargets: number
  /** Null when nothing was ever checkpointed. */
  lastCheckpointAgeSeconds: number | null
  /** 0…1. */
  downstreamErrorRate5m: number
  codeVersionChanged: boolean
  codeVersionThen: string
  codeVersionNow: string
  requiresApproval: boolean
  compensation: string
  stopIf: { condition: string; actual: number; tripped: boolean }[]
  allowed: boolean
  blockedBy: string[]
}

export interface CompensationPreflightView {
  id: string
  operationId: string
  expiresAt: DbTime
  factsHash: string
  /** Callers without `ledger:read` see ranges. */
  countsSensitive: boolean
  scope: { itemKeys: string[] | null }
  compensationTargets: number
  appliedTargets: number
  ambiguousEffectTargets: number
  /** Null when nothing was ever checkpointed. */
  lastCheckpointAgeSeconds: number | null
  /** 0…1. */
  downstreamErrorRate5m: number
  codeVersionChanged: boolean
  codeVersionThen: string
  codeVersionNow: string
  requiresApproval: boolean
  compensation: string
  noCompensationReason: string | null
  stopIf: { condition: string; actual: number; tripped: boolean }[]
  allowed: boolean
  blockedBy: string[]
}
