import { z } from 'zod'
import type { WorkResult } from '../../services/requests.ts'
import { textField } from '../fields.ts'
import {
  MAX_EFFECT_KEY_BYTES,
  MAX_RESULT_CODE_BYTES,
  MAX_RESULT_TEXT_BYTES,
  MAX_RESULTS,
  MAX_TOKEN_BYTES,
} from '../limits.ts'

/** The parts that the requests of workers elsewhere share. */

export const tokenField = textField(MAX_TOKEN_BYTES)
export const stopSeenField = z
  .enum(['pause', 'cancel'])
  .nullish()
  .describe('The stop that was told, once nothing more will begin: that acknowledges it.')
export const maxItemsField = z
  .int()
  .min(0)
  .max(MAX_RESULTS)
  .optional()
  .describe('Items to take, at most. Default: what the type allows.')

const code = textField(MAX_RESULT_CODE_BYTES).nullish()
const text = textField(MAX_RESULT_TEXT_BYTES).nullish()

const sendShape = {
  effect_key: textField(MAX_EFFECT_KEY_BYTES),
  send: z.int().min(1),
}
export const SendField = z.strictObject(sendShape)

const resultShape = {
  ...sendShape,
  downstream_error: z.boolean().optional().describe('A 5xx, a 429, a timeout or a broken connection.'),
  duration_ms: z.number().min(0).max(86_400_000).optional(),
}
const FAILURE_CLASSES = ['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected'] as const

const Result = z.discriminatedUnion('state', [
  z.strictObject({ ...resultShape, state: z.literal('applied'), effect_ref: text }),
  z.strictObject({ ...resultShape, state: z.literal('skipped'), effect_ref: text, reason_code: code }),
  z.strictObject({
    ...resultShape,
    state: z.literal('failed'),
    failure_class: z.enum(FAILURE_CLASSES),
    reason_code: code,
    message: text,
  }),
  z.strictObject({ ...resultShape, state: z.literal('uncertain'), reason_code: code, message: text }),
  z.strictObject({ ...resultShape, state: z.literal('unsent') }),
])

export const resultsField = z
  .array(Result)
  .max(MAX_RESULTS)
  .refine((results) => new Set(results.map((result) => result.effect_key)).size === results.length, {
    message: 'must name each effect key once',
  })

export const toWorkResult = (result: z.infer<typeof Result>): WorkResult => ({
  effectKey: result.effect_key,
  send: result.send,
  outcome: toOutcome(result),
  downstreamError: result.downstream_error ?? false,
  durationMs: result.duration_ms ?? null,
})

const toOutcome = (result: z.infer<typeof Result>): WorkResult['outcome'] => {
  switch (result.state) {
    case 'applied':
      return { state: 'applied', effectRef: result.effect_ref ?? null }
    case 'skipped':
      return { state: 'skipped', effectRef: result.effect_ref ?? null, reasonCode: result.reason_code ?? null }
    case 'failed':
      return {
        state: 'failed',
        failureClass: result.failure_class,
        reasonCode: result.reason_code ?? null,
        message: result.message ?? null,
      }
    case 'uncertain':
      return { state: 'uncertain', reasonCode: result.reason_code ?? null, message: result.message ?? null }
    case 'unsent':
      return { state: 'unsent' }
  }
}
