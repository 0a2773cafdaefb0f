import { z } from 'zod'
import { AFTER_WHEN } from '../../domain/after.ts'
import { parseId } from '../../domain/ids.ts'
import { INLINE_ITEMS_MAX } from '../../domain/operation.ts'
import type { Json } from '../../domain/operation-type.ts'
import type { SubmitRequest } from '../../services/requests.ts'
import { jsonField, textField, timeField } from '../fields.ts'
import {
  MAX_AFTER,
  MAX_CALLBACK_URL_BYTES,
  MAX_ITEM_KEY_BYTES,
  MAX_LABEL_KEY_BYTES,
  MAX_LABEL_VALUE_BYTES,
  MAX_LABELS,
  MAX_PRIORITY,
  MAX_REASON_BYTES,
  MAX_STOP_CONDITION_BYTES,
  MAX_STOP_CONDITIONS,
  MAX_TYPE_NAME_BYTES,
} from '../limits.ts'
import { byteLength } from '../text.ts'

export const ItemBody = z
  .strictObject({
    key: textField(MAX_ITEM_KEY_BYTES).describe('Names the target; unique within the operation.'),
    input: jsonField.describe('References, not copies of records; checked by the type.'),
  })
  .meta({ id: 'SubmittedItem' })

export const LabelValue = z
  .string()
  .max(MAX_LABEL_VALUE_BYTES)
  .refine(
    (text) => byteLength(text) <= MAX_LABEL_VALUE_BYTES,
    `must be at most ${MAX_LABEL_VALUE_BYTES} bytes of UTF-8`,
  )

// How many items there may be is a fact that the use case refuses (422), not a matter of form.
export const SubmitBody = z
  .strictObject({
    type: textField(MAX_TYPE_NAME_BYTES),
    items: z.array(ItemBody).optional().describe(`At most ${INLINE_ITEMS_MAX} inline.`),
    input: z.unknown().optional(),
    reason: textField(MAX_REASON_BYTES).nullish(),
    labels: z
      .record(textField(MAX_LABEL_KEY_BYTES), LabelValue)
      .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `must be at most ${MAX_LABELS} labels`)
      .optional()
      .describe(`At most ${MAX_LABELS}, each value at most ${MAX_LABEL_VALUE_BYTES} bytes.`),
    priority: z.int().min(-MAX_PRIORITY).max(MAX_PRIORITY).optional().describe('Higher goes first; default 0.'),
    run_after: timeField.nullish(),
    deadline_at: timeField.nullish(),
    draft: z
      .boolean()
      .optional()
      .describe('Items can be uploaded until it is started with `POST /operations/{id}/start`.'),
    callback_url: textField(MAX_CALLBACK_URL_BYTES)
      .nullish()
      .describe(
        'An absolute https or http URL without credentials and fragment. A signed webhook goes there when the operation is settled. Replays and compensations inherit it.',
      ),
    after: z
      .array(textField(MAX_ITEM_KEY_BYTES))
      .max(MAX_AFTER)
      .optional()
      .describe('Ids of operations that have to end first; until then nothing of this one runs.'),
    after_when: z
      .enum(AFTER_WHEN)
      .optional()
      .describe(
        '`succeeded` (the default): one of them that ends in any other way cancels this operation, with the reason. `settled`: any final status will do.',
      ),
    stop_if: z
      .array(textField(MAX_STOP_CONDITION_BYTES))
      .max(MAX_STOP_CONDITIONS)
      .optional()
      .describe('Stricter conditions than those of the type only.'),
  })
  .meta({ id: 'SubmitOperation' })

/** `rawBody` is the body before any schema touched it: its hash must see exactly what was sent. */
export const toSubmitRequest = (
  body: z.infer<typeof SubmitBody>,
  sent: { rawBody: Json; idempotencyKey: string | null; traceparent: string | null },
): SubmitRequest => ({
  type: body.type,
  items: body.items ?? [],
  input: body.input as Json | undefined,
  reason: body.reason ?? null,
  labels: body.labels ?? {},
  priority: body.priority ?? 0,
  runAfter: body.run_after ?? null,
  deadlineAt: body.deadline_at ?? null,
  draft: body.draft ?? false,
  callbackUrl: body.callback_url ?? null,
  after: (body.after ?? []).map((id) => parseId('op', id)),
  afterWhen: body.after_when ?? 'succeeded',
  stopIf: body.stop_if ?? [],
  idempotencyKey: sent.idempotencyKey,
  body: sent.rawBody,
  traceparent: sent.traceparent,
})
