/** What the API answers, in the words of its own schemas: types only, so that nothing of the server is loaded here. */
import type { z } from 'zod'
import type { ProblemResource } from '../http/app.ts'
import type { CaseResource } from '../http/resources/case.ts'
import type { IncidentResource, ResolvedIncidentResource } from '../http/resources/incident.ts'
import type { OperationResource } from '../http/resources/operation.ts'
import type { PreflightResource } from '../http/resources/preflight.ts'
import type { HealthReportResource } from '../http/resources/service.ts'

export type Operation = OperationResource
export type Preflight = z.infer<typeof PreflightResource>
export type Case = z.infer<typeof CaseResource>
export type Incident = z.infer<typeof IncidentResource>
export type ResolvedIncident = z.infer<typeof ResolvedIncidentResource>
export type HealthReport = z.infer<typeof HealthReportResource>
export type Problem = z.infer<typeof ProblemResource>

export interface PageOf<Row> {
  items: Row[]
  next_cursor?: string
}

/** The body of `POST /operations`, as far as the command line fills it. */
export interface Submission {
  type: string
  draft?: true
  input?: unknown
  reason?: string
  labels?: Record<string, string>
  priority?: number
  run_after?: string
  deadline_at?: string
  callback_url?: string
  after?: string[]
  after_when?: string
  stop_if?: string[]
}

export interface Scope {
  states?: string[]
  failure_classes?: string[]
  item_keys?: string[]
}

export interface Resolution {
  resolution: 'applied' | 'not_applied'
  evidence_ref: string
  effect_ref?: string
  note?: string
  retry?: boolean
}
