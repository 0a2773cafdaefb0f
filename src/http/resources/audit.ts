import { z } from 'zod'
import { AUDIT_ACTIONS, AUDIT_AUTHS } from '../../domain/audit.ts'
import { toRfc3339 } from '../../domain/times.ts'
import type { AuditView } from '../../services/views.ts'
import type { ExportRow } from '../exports.ts'
import { openEnum, time } from '../fields.ts'

export const AuditEntryResource = z
  .object({
    id: z.string(),
    at: time,
    actor: z.string(),
    auth: openEnum(AUDIT_AUTHS, 'By what the actor was known.'),
    scope: z.string().nullable().describe('By which scope it was allowed; null: none was asked for.'),
    action: openEnum(AUDIT_ACTIONS, 'What was done.'),
    subject_kind: z.string().describe('Further kinds may be added.'),
    subject_id: z.string(),
    reason: z.string().nullable(),
    request_id: z.string().nullable().describe('`X-Request-Id`; for targets of a bulk action, its id.'),
    trace_id: z.string().nullable(),
    details: z.record(z.string(), z.unknown()).describe('A few small facts; never inputs or secrets.'),
  })
  .meta({ id: 'AuditEntry' })

export const toAuditEntry = (view: AuditView): z.infer<typeof AuditEntryResource> => ({
  id: String(view.seq),
  at: toRfc3339(view.at),
  actor: view.actor,
  auth: view.auth,
  scope: view.scope,
  action: view.action,
  subject_kind: view.subjectKind,
  subject_id: view.subjectId,
  reason: view.reason,
  request_id: view.requestId,
  trace_id: view.traceId,
  details: view.details,
})

/** For CSV: the details as JSON. */
export const toAuditRow = (view: AuditView): ExportRow => ({
  ...toAuditEntry(view),
  details: JSON.stringify(view.details),
})
