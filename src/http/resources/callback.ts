import { z } from 'zod'
import { CALLBACK_OUTCOMES } from '../../domain/callback.ts'
import { formatId } from '../../domain/ids.ts'
import type { CallbackView } from '../../services/views.ts'
import { openEnum } from '../fields.ts'

export const CallbackResource = z
  .object({
    event_id: z.string(),
    outcome: openEnum(CALLBACK_OUTCOMES, 'What the event did, or that there is nothing to do.'),
    duplicate: z.boolean().describe('The event was received before; this is its outcome.'),
    operation_id: z.string().optional(),
    item_key: z.string().optional(),
    case_id: z.string().optional().describe('The case that the event opened, or is noted on.'),
  })
  .meta({ id: 'Callback' })

export const toCallback = (view: CallbackView): z.input<typeof CallbackResource> => ({
  event_id: view.eventId,
  outcome: view.outcome,
  duplicate: view.duplicate,
  ...(view.operationId === null ? {} : { operation_id: formatId('op', view.operationId) }),
  ...(view.itemKey === null ? {} : { item_key: view.itemKey }),
  ...(view.caseId === null ? {} : { case_id: formatId('case', view.caseId) }),
})
