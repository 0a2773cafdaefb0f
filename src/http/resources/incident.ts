import { z } from 'zod'
import { INCIDENT_STATUSES } from '../../domain/dead-letter.ts'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339 } from '../../domain/times.ts'
import { seesRanges, shownCount } from '../../services/count-ranges.ts'
import type { IncidentView, ResolvedIncidentView } from '../../services/dead-letter-views.ts'
import type { Principal } from '../../services/principal.ts'
import { openEnum, time } from '../fields.ts'
import { operationPath } from './operation.ts'

const failureClass = openEnum(FAILURE_CLASSES, 'Why it failed at last.')

export const IncidentResource = z
  .object({
    id: z.string(),
    type: z.string(),
    fingerprint: z.string().describe('Of type, class, reason code and message, without ids and numbers.'),
    status: openEnum(INCIDENT_STATUSES, 'Open while one of its dead letters is open.'),
    count: z.int().describe('Its dead letters.'),
    open_count: z.int(),
    operation_count: z.int().describe('The operations that they belong to.'),
    first_seen_at: time,
    last_seen_at: time,
    sample: z
      .object({
        message: z.string().nullable(),
        reason_code: z.string().nullable(),
        failure_class: failureClass,
        item_key: z.string(),
        operation_id: z.string(),
      })
      .describe('The newest dead letter.'),
    resolution: z
      .object({
        resolved_at: time,
        resolved_by: z.string(),
        fixed_in: z.string().nullable(),
        reason: z.string(),
      })
      .nullable()
      .describe('The latest; it stays when new dead letters open the incident again.'),
  })
  .meta({ id: 'Incident' })

export const toIncident = (view: IncidentView): z.infer<typeof IncidentResource> => ({
  id: formatId('inc', view.id),
  type: view.type,
  fingerprint: view.id,
  status: view.status,
  count: view.count,
  open_count: view.openCount,
  operation_count: view.operations,
  first_seen_at: toRfc3339(view.firstSeenAt),
  last_seen_at: toRfc3339(view.lastSeenAt),
  sample: {
    message: view.sample.message,
    reason_code: view.sample.reasonCode,
    failure_class: view.sample.failureClass,
    item_key: view.sample.itemKey,
    operation_id: formatId('op', view.sample.operationId),
  },
  resolution: view.resolution && {
    resolved_at: toRfc3339(view.resolution.resolvedAt),
    resolved_by: view.resolution.resolvedBy,
    fixed_in: view.resolution.fixedIn,
    reason: view.resolution.reason,
  },
})

export const ResolvedIncidentResource = IncidentResource.extend({
  counts_in_ranges: z
    .boolean()
    .describe('The type shows ranges of counts to callers without ledger:read: each is the lower end of its range.'),
  preflights: z
    .array(
      z.object({
        operation_id: z.string(),
        href: z.string().describe('Where to POST `{scope}`.'),
        scope: z
          .object({
            states: z.array(z.string()),
            item_keys: z.array(z.string()).optional(),
            failure_classes: z.array(z.string()).optional(),
          })
          .describe('Names the items, or, when they are many, the classes that they failed with.'),
        targets: z.int().describe('Items of the incident in this operation that still need a replay.'),
      }),
    )
    .describe('The preflights to run now, oldest operation first.'),
  has_more_preflights: z.boolean().describe('Further operations have such items; resolve again after these replays.'),
}).meta({ id: 'ResolvedIncident' })

export const toResolvedIncident = (
  view: ResolvedIncidentView,
  caller: Pick<Principal, 'scopes'>,
): z.infer<typeof ResolvedIncidentResource> => {
  const shown = shownCount(view, caller)
  const incident = toIncident(view)
  return {
    ...incident,
    count: shown(incident.count),
    open_count: shown(incident.open_count),
    operation_count: shown(incident.operation_count),
    counts_in_ranges: seesRanges(caller, view),
    preflights: view.preflights.map(({ operationId, targets, scope }) => ({
      operation_id: formatId('op', operationId),
      href: `${operationPath(operationId)}/replay-preflight`,
      scope: {
        states: scope.states,
        ...(scope.itemKeys === null ? {} : { item_keys: scope.itemKeys }),
        ...(scope.failureClasses === null ? {} : { failure_classes: scope.failureClasses }),
      },
      targets: shown(targets),
    })),
    has_more_preflights: view.hasMorePreflights,
  }
}
