/** A type as it stands in a type file: the policy of every type, and the HTTP requests that bring its effects about. */
import { z } from 'zod'
import {
  int,
  jsonPointer,
  policyShape,
  providerShape,
  STEPS_RANGE,
  stepShape,
  TYPE_LIMITS,
  text,
} from './operation-type-definition.ts'

const status = z.int().min(100).max(599)
const statuses = z.array(status).min(1).max(TYPE_LIMITS.statusesPerRule)
const sendRule = z.discriminatedUnion('state', [
  z.strictObject({ status: statuses, state: z.literal('applied'), ref: text.optional() }),
  z.strictObject({
    status: statuses,
    state: z.literal('skipped'),
    reason_code: text.optional(),
    ref: text.optional(),
  }),
  z.strictObject({
    status: statuses,
    state: z.literal('failed'),
    class: z.enum(['transient', 'validation_rejected', 'conflict', 'policy_denied', 'bug_suspected']),
    reason_code: text.optional(),
  }),
])
const lookupRule = z.discriminatedUnion('state', [
  z.strictObject({ status: statuses, state: z.literal('applied'), ref: text.optional() }),
  z.strictObject({ status: statuses, state: z.literal('absent') }),
])
const callbackRule = z.strictObject({
  field: jsonPointer,
  equals: z
    .array(z.union([z.string(), z.number(), z.boolean(), z.null()], 'must be a text, number, boolean or null'))
    .min(1)
    .max(TYPE_LIMITS.valuesPerCallbackRule),
  state: z.enum(['applied', 'absent']),
  ref: jsonPointer.optional(),
})
const callbackSchema = z.strictObject({
  secret: z.string().min(1),
  effect_key: jsonPointer,
  outcome: z.array(callbackRule).min(1).max(TYPE_LIMITS.callbackRules),
  tolerance_seconds: int(TYPE_LIMITS.callbackToleranceSeconds).optional(),
})
export type CallbackDefinition = z.infer<typeof callbackSchema>
export type SendRule = z.infer<typeof sendRule>
export type LookupRule = z.infer<typeof lookupRule>

const headers = z
  .record(z.string().max(TYPE_LIMITS.textLength), z.string())
  .refine((value) => Object.keys(value).length <= TYPE_LIMITS.headers, `at most ${TYPE_LIMITS.headers} headers`)
const requestShape = {
  method: z.enum(['POST', 'PUT', 'PATCH', 'DELETE', 'GET']).optional(),
  url: z.string().min(1),
  headers: headers.optional(),
  body: z.unknown().optional(),
  timeout_ms: int(TYPE_LIMITS.callTimeoutMs).optional(),
}
const sendRules = z.array(sendRule).min(1).max(TYPE_LIMITS.outcomeRules)
const lookupSchema = z.strictObject({
  url: z.string().min(1),
  headers: headers.optional(),
  after_ms: int(TYPE_LIMITS.lookupAfterMs).optional(),
  timeout_ms: int(TYPE_LIMITS.callTimeoutMs).optional(),
  outcome: z.array(lookupRule).min(1).max(TYPE_LIMITS.outcomeRules),
})
export type LookupDefinition = z.infer<typeof lookupSchema>
/** One effect: how it is brought about, and how it is asked about. */
const effectShape = {
  request: z.strictObject(requestShape),
  outcome: sendRules,
  lookup: lookupSchema.optional(),
}
/** A lookup here asks what became of the undoing: the one of the effect cannot tell (a refund is no absent payment). */
const compensateSchema = z.strictObject({
  ...requestShape,
  outcome: sendRules.optional(),
  lookup: lookupSchema.optional(),
})
export type CompensateDefinition = z.infer<typeof compensateSchema>
const httpSchema = z.strictObject({
  request: effectShape.request.optional(),
  outcome: effectShape.outcome.optional(),
  lookup: effectShape.lookup,
  /** Instead of the three above. */
  steps: z
    .array(z.strictObject({ ...stepShape, ...effectShape }))
    .min(STEPS_RANGE.min)
    .max(STEPS_RANGE.max)
    .optional(),
  callback: callbackSchema.optional(),
  ...providerShape,
  compensate: compensateSchema.optional(),
  no_compensation: policyShape.no_compensation,
})
export type HttpDefinition = z.infer<typeof httpSchema>

/** Its items are run by workers that ask for them over HTTP; what became of a doubtful one is still asked from here. */
const remoteSchema = z.strictObject({
  call_timeout_ms: int(TYPE_LIMITS.callTimeoutMs).optional(),
  lookup: effectShape.lookup,
  steps: z
    .array(z.strictObject({ ...stepShape, lookup: effectShape.lookup }))
    .min(STEPS_RANGE.min)
    .max(STEPS_RANGE.max)
    .optional(),
  callback: callbackSchema.optional(),
  ...providerShape,
  no_compensation: policyShape.no_compensation,
})
export type RemoteDefinition = z.infer<typeof remoteSchema>
export type EffectDefinition = z.infer<z.ZodObject<typeof effectShape>>

/** One entry of a YAML or JSON type file. */
export const declarativeTypeSchema = z.strictObject({
  ...policyShape,
  input: z.union([z.record(z.string(), z.unknown()), z.boolean()]).optional(),
  effect_key: z.string().min(1).max(TYPE_LIMITS.textLength).optional(),
  http: httpSchema.optional(),
  /** Instead of `http`. */
  remote: remoteSchema.optional(),
})
export type DeclarativeDefinition = z.infer<typeof declarativeTypeSchema>
