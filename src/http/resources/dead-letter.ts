import { z } from 'zod'
import { DEAD_LETTER_STATUSES } from '../../domain/dead-letter.ts'
import { FAILURE_CLASSES } from '../../domain/failure.ts'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339 } from '../../domain/times.ts'
import type { DeadLetterView } from '../../services/dead-letter-views.ts'
import { openEnum, time } from '../fields.ts'

export const DeadLetterResource = z
  .object({
    id: z.string(),
    operation_id: z.string(),
    type: z.string(),
    item_key: z.string(),
    step: z.string().nullable().describe('The step that failed; null where the type has no steps.'),
    effect_key: z.string(),
    failure_class: openEnum(FAILURE_CLASSES, 'Why it failed at last.'),
    reason_code: z.string().nullable(),
    message: z.string().nullable(),
    attempts: z.int(),
    incident_id: z.string().describe('All dead letters with the same cause.'),
    status: openEnum(
      DEAD_LETTER_STATUSES,
      'Where it stands; `recovered`: its effect is applied by now, whoever had closed it before.',
    ),
    created_at: time,
    closing: z
      .object({ at: time, by: z.string(), reason: z.string() })
      .nullable()
      .describe('Who discarded it, or resolved its incident, and why.'),
  })
  .meta({ id: 'DeadLetter' })

export const toDeadLetter = (view: DeadLetterView): z.infer<typeof DeadLetterResource> => ({
  id: formatId('dl', view.id),
  operation_id: formatId('op', view.operationId),
  type: view.type,
  item_key: view.itemKey,
  step: view.step,
  effect_key: view.effectKey,
  failure_class: view.failureClass,
  reason_code: view.reasonCode,
  message: view.message,
  attempts: view.attempts,
  incident_id: formatId('inc', view.incidentId),
  status: view.status,
  created_at: toRfc3339(view.createdAt),
  closing: view.closing && { ...view.closing, at: toRfc3339(view.closing.at) },
})
