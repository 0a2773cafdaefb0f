import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339, toRfc3339OrNull } from '../../domain/times.ts'
import type { CaseView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

export const CASE_STATUSES = ['open', 'resolved'] as const

export const CaseResource = z
  .object({
    id: z.string(),
    operation_id: z.string(),
    type: z.string(),
    item_key: z.string(),
    step: z.string().nullable().describe('The step in doubt; null where the type has no steps.'),
    effect_key: z.string(),
    send: z.int().describe('Which send of the effect is in doubt. It grows when the effect is sent again.'),
    status: openEnum(CASE_STATUSES, 'Whether evidence is still missing.'),
    cause: z.string().describe('Why the effect is in doubt. Further causes may be added.'),
    opened_at: time,
    due_at: time.describe('When it is escalated to its owner.'),
    owner: z.string().nullable(),
    lookups: z
      .object({
        count: z.int(),
        last_answer: z.string().nullable(),
        next_at: time.nullable(),
      })
      .describe('How often the provider was asked, and when it is asked next.'),
    resolution: z
      .object({
        resolution: openEnum(['applied', 'not_applied'], 'What became of the effect.'),
        evidence_ref: z.string().nullable(),
        effect_ref: z.string().nullable(),
        note: z.string().nullable(),
        resolved_by: z.string().nullable(),
        resolved_at: time,
        source: openEnum(['lookup', 'callback', 'operator', 'late_worker'], 'Where the evidence came from.'),
      })
      .nullable(),
  })
  .meta({ id: 'ReconciliationCase' })

export const toCase = (view: CaseView): z.infer<typeof CaseResource> => ({
  id: formatId('case', view.id),
  operation_id: formatId('op', view.operationId),
  type: view.type,
  item_key: view.itemKey,
  step: view.step,
  effect_key: view.effectKey,
  send: view.send,
  status: view.status,
  cause: view.cause,
  opened_at: toRfc3339(view.openedAt),
  due_at: toRfc3339(view.dueAt),
  owner: view.owner,
  lookups: {
    count: view.lookups.count,
    last_answer: view.lookups.lastAnswer,
    next_at: toRfc3339OrNull(view.lookups.nextAt),
  },
  resolution: view.resolution && {
    resolution: view.resolution.resolution,
    evidence_ref: view.resolution.evidenceRef,
    effect_ref: view.resolution.effectRef,
    note: view.resolution.note,
    resolved_by: view.resolution.resolvedBy,
    resolved_at: toRfc3339(view.resolution.resolvedAt),
    source: view.resolution.source,
  },
})
