import { z } from 'zod'
import { AUDIT_ACTIONS, AUDIT_AUTHS } from '../../domain/audit.ts'
import { lowerEnd } from '../../domain/count-range.ts'
import { toRfc3339 } from '../../domain/times.ts'
import type { Principal } from '../../services/principal.ts'
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
    details: z
      .record(z.string(), z.unknown())
      .describe(
        'A few small facts; never inputs or secrets. Without `ledger:read`, counts of items are the lower ends of their ranges, and `counts_in_ranges` says so.',
      ),
  })
  .meta({ id: 'AuditEntry' })

/** Of the details, those that count items. */
const COUNTS = ['items', 'added', 'targets']

/**
 * An entry does not say of which type its subject is, and that type may be gone: so what one type may hide from callers without
 * `ledger:read` is hidden of all.
 */
const detailsInRanges = (details: AuditView['details']): AuditView['details'] => {
  const counts = Object.entries(details).filter((detail): detail is [string, number] => isCount(detail))
  if (counts.length === 0) return details
  const ranges = counts.map(([name, count]): [string, number] => [name, lowerEnd(count)])
  return { ...details, ...Object.fromEntries(ranges), counts_in_ranges: true }
}

const isCount = ([name, value]: [string, unknown]): boolean => COUNTS.includes(name) && typeof value === 'number'

/** What becomes of entries for this caller. */
export const auditEntriesFor =
  ({ scopes }: Pick<Principal, 'scopes'>) =>
  (view: AuditView): z.infer<typeof AuditEntryResource> => ({
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
    details: scopes.includes('ledger:read') ? view.details : detailsInRanges(view.details),
  })

/** For CSV: the details as JSON. */
export const auditRowsFor = (principal: Pick<Principal, 'scopes'>): ((view: AuditView) => ExportRow) => {
  const toEntry = auditEntriesFor(principal)
  return (view) => {
    const entry = toEntry(view)
    return { ...entry, details: JSON.stringify(entry.details) }
  }
}
