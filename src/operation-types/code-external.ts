/** Calls of a code type: guarded by a deadline, and never `failed` unless the handler says so. */
import { z } from 'zod'
import { parseCompensationKey } from '../domain/compensation.ts'
import { FAILURE_CLASSES, sanitiseText } from '../domain/failure.ts'
import type {
  CallReport,
  EffectCall,
  EffectLookup,
  Executor,
  LookupOutcome,
  SendCall,
  SendOutcome,
  SendReport,
} from '../domain/operation-type.ts'
import { TYPE_LIMITS } from '../domain/operation-type-definition.ts'
import { EFFECT_REF_LENGTH_MAX, MESSAGE_LENGTH_MAX, REASON_CODE_LENGTH_MAX } from './answers.ts'
import type { CallContext, CodeLookup, CodeStep, SendContext, TypedCall, TypedCompensation } from './handlers.ts'
import { type StepHandlers, stepExecutor } from './step-executor.ts'

interface CodeEffect {
  send(call: TypedCall<unknown>, context: SendContext): Promise<SendOutcome | SendReport>
  lookup?: CodeLookup<unknown>
}

type ExternalDefinition = {
  input: z.ZodType
  compensate?(call: TypedCompensation<unknown>, context: SendContext): Promise<SendOutcome | SendReport>
  compensateLookup?: CodeLookup<unknown, TypedCompensation<unknown>>
} & ((CodeEffect & { steps?: never }) | { steps: CodeStep<unknown>[]; send?: never; lookup?: never })

const reasonCode = z.string().transform((text) => sanitiseText(text, REASON_CODE_LENGTH_MAX))
const message = z.string().transform((text) => sanitiseText(text, MESSAGE_LENGTH_MAX))
const effectRef = z
  .string()
  .max(EFFECT_REF_LENGTH_MAX)
  .transform((text) => sanitiseText(text, EFFECT_REF_LENGTH_MAX))
const failureClass = z.enum(FAILURE_CLASSES).exclude(['ambiguous_effect'])

/** What a handler may answer; shared with batches, which know no `uncertain`. */
export const settledOutcomes = [
  z.object({ state: z.literal('applied'), effectRef: effectRef.exactOptional() }),
  z.object({ state: z.literal('skipped'), reasonCode, effectRef: effectRef.exactOptional() }),
  z.object({
    state: z.literal('failed'),
    failureClass,
    reasonCode: reasonCode.exactOptional(),
    message: message.exactOptional(),
  }),
] as const
const sendOutcome = z.discriminatedUnion('state', [
  ...settledOutcomes,
  z.object({ state: z.literal('uncertain'), reasonCode, message: message.exactOptional() }),
])
const sendReport = z.union([
  z.object({ outcome: sendOutcome, downstreamError: z.boolean() }),
  sendOutcome.transform((outcome): SendReport => ({ outcome, downstreamError: false })),
])
const evidenceRef = z
  .string()
  .min(1)
  .transform((text) => sanitiseText(text, MESSAGE_LENGTH_MAX))
const lookupOutcome = z.discriminatedUnion('state', [
  z.object({ state: z.literal('applied'), effectRef: effectRef.exactOptional(), evidenceRef }),
  z.object({ state: z.literal('absent'), evidenceRef }),
  z.object({ state: z.literal('unknown'), reasonCode }),
])

type ExternalExecutor = Extract<Executor, { kind: 'external' }>

export const externalExecutor = (definition: ExternalDefinition, callTimeoutMs: number): ExternalExecutor => {
  const effects =
    definition.steps === undefined
      ? [{ step: '', effect: definition satisfies CodeEffect }]
      : definition.steps.map((step) => ({ step: step.name, effect: step satisfies CodeEffect }))
  return stepExecutor(
    effects.map(({ step, effect }) => ({
      step,
      ...guarded(definition.input, callTimeoutMs, {
        send: (call, context) => effect.send(call, context),
        lookup: effect.lookup,
      }),
    })),
    callTimeoutMs,
  )
}

/** Null: the type says nothing of how its effects are taken back. */
export const externalCompensator = (definition: ExternalDefinition, callTimeoutMs: number): ExternalExecutor | null => {
  const { compensate, compensateLookup: lookup } = definition
  if (compensate === undefined) return null
  const handlers = guarded(definition.input, callTimeoutMs, {
    send: (call, context) => compensate.call(definition, ofUndone(call), context),
    lookup: lookup && { ...lookup, find: (call, context) => lookup.find(ofUndone(call), context) },
  })
  return stepExecutor([{ step: '', ...handlers }], callTimeoutMs)
}

/** The engine knows a compensation by its own key only. */
const ofUndone = (call: TypedCall<unknown>): TypedCompensation<unknown> => {
  const undone = parseCompensationKey(call.effectKey)
  if (undone === null) throw new Error(`"${call.effectKey}" is the key of no compensation`)
  return { ...call, effectKey: undone.effectKey, compensationKey: call.effectKey }
}

/** The handlers of a code type, with a deadline and with their answers checked. */
const guarded = (
  schema: z.ZodType,
  callTimeoutMs: number,
  handlers: {
    send: (call: TypedCall<unknown>, context: SendContext) => Promise<SendOutcome | SendReport>
    lookup: CodeLookup<unknown> | undefined
  },
): Omit<StepHandlers, 'step'> => ({
  send: (call) => send(schema, handlers.send, call, callTimeoutMs),
  lookup:
    handlers.lookup === undefined
      ? null
      : lookupOf(schema, handlers.lookup, handlers.lookup.timeout_ms ?? callTimeoutMs),
})

const send = async (
  schema: z.ZodType,
  handler: (call: TypedCall<unknown>, context: SendContext) => Promise<SendOutcome | SendReport>,
  { mayStart, ...call }: SendCall,
  timeoutMs: number,
): Promise<CallReport> => {
  const input = schema.safeParse(call.input)
  if (!input.success) {
    const outcome = { state: 'failed', failureClass: 'validation_rejected', reasonCode: 'INVALID_INPUT' } as const
    return { outcome: { ...outcome, message: 'the input no longer fits the type' }, downstreamError: false }
  }
  let wasRefused = false
  const ask = (): boolean => {
    wasRefused ||= !mayStart()
    return !wasRefused
  }
  const answer = await withDeadline(timeoutMs, ({ signal }) =>
    handler({ ...call, input: input.data }, { signal, mayStart: ask }),
  )
  if (answer.kind === 'late') {
    const message = `no outcome within ${timeoutMs} ms`
    return { outcome: { state: 'uncertain', reasonCode: 'TIMEOUT', message }, downstreamError: true }
  }
  if (answer.kind === 'thrown') {
    const isUnsent = wasRefused && saysNothingSent(answer.error)
    return { outcome: isUnsent ? { state: 'unsent' } : describeThrown(answer.error), downstreamError: false }
  }
  const report = sendReport.safeParse(answer.value)
  if (report.success) return report.data
  const message = 'the handler gave no valid outcome'
  return { outcome: { state: 'uncertain', reasonCode: 'HANDLER_ERROR', message }, downstreamError: false }
}

/** By name: a type module may have loaded its own copy of the class. */
const saysNothingSent = (error: unknown): error is Error => error instanceof Error && error.name === 'NothingSent'

const describeThrown = (error: unknown): SendOutcome => {
  const message = sanitiseText(error instanceof Error ? error.message : String(error), MESSAGE_LENGTH_MAX)
  if (saysNothingSent(error)) {
    const code = 'reasonCode' in error && typeof error.reasonCode === 'string' ? error.reasonCode : 'NOTHING_SENT'
    const reasonCode = sanitiseText(code, REASON_CODE_LENGTH_MAX)
    return { state: 'failed', failureClass: 'transient', reasonCode, message }
  }
  return { state: 'uncertain', reasonCode: 'HANDLER_ERROR', message }
}

const lookupOf = (schema: z.ZodType, lookup: CodeLookup<unknown>, timeoutMs: number): EffectLookup => ({
  afterMs: lookup.after_ms ?? TYPE_LIMITS.lookupAfterMs.default,
  timeoutMs,
  find: async (call: EffectCall): Promise<LookupOutcome> => {
    const input = schema.safeParse(call.input)
    if (!input.success) return { state: 'unknown', reasonCode: 'INVALID_INPUT' }
    const answer = await withDeadline(timeoutMs, (context) => lookup.find({ ...call, input: input.data }, context))
    if (answer.kind !== 'value') return { state: 'unknown', reasonCode: 'LOOKUP_DOWN' }
    const outcome = lookupOutcome.safeParse(answer.value)
    return outcome.success ? outcome.data : { state: 'unknown', reasonCode: 'LOOKUP_UNCLASSIFIED' }
  },
})

type Guarded = { kind: 'value'; value: unknown } | { kind: 'thrown'; error: unknown } | { kind: 'late' }

/** Runs a handler until it ends or its time is up; what it does later is nobody's any more. */
const withDeadline = (timeoutMs: number, run: (context: CallContext) => Promise<unknown>): Promise<Guarded> =>
  new Promise((resolve) => {
    const controller = new AbortController()
    const deadline = setTimeout(() => {
      resolve({ kind: 'late' })
      controller.abort()
    }, timeoutMs)
    const settle = (guarded: Guarded): void => {
      clearTimeout(deadline)
      resolve(guarded)
    }
    // Started in a promise job, so that a synchronous throw is caught with the rest.
    Promise.resolve()
      .then(() => run({ signal: controller.signal }))
      .then(
        (value) => settle({ kind: 'value', value }),
        (error: unknown) => settle({ kind: 'thrown', error }),
      )
  })
