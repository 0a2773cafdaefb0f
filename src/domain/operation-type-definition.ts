/**
 * What an author writes to define a type, and what follows from it. The members that say how a type is treated
 * (limits, approval, retention, …) are the same for an entry of a type file and for `defineOperationType`; they are
 * checked here, once, and filled with their defaults by `resolvePolicy`. Unknown members are refused: a misspelt
 * limit that is silently ignored is found in production only.
 */
import { z } from 'zod'
import { EFFECT_KINDS, type OperationType, TOUCHES, type Touch } from './operation-type.ts'
import { STEP_NAME, STEPS_MAX, type StepRule, stepFault } from './steps.ts'

/** Every limit a type can set, with its range. A value outside stops the start. */
export const TYPE_LIMITS = {
  nameLength: 64,
  textLength: 500,
  versionMax: 1_000_000,
  batchItems: { min: 1, max: 5_000, default: 100 },
  batchMs: { min: 10, max: 60_000, default: 1_000 },
  parallelism: { min: 1, max: 64, default: 4 },
  concurrency: { min: 1, max: 500, default: 16 },
  ratePerSecond: { min: 0.01, max: 100_000 },
  leaseSeconds: { min: 2, max: 3_600, default: 30 },
  maxCancelSeconds: { min: 1, max: 86_400, default: 30 },
  stallMs: { min: 1_000, max: 86_400_000, default: 60_000 },
  attempts: { min: 1, max: 20, default: 3 },
  retryBaseMs: { min: 1, max: 3_600_000, default: 500 },
  retryMaxMs: { min: 1, max: 86_400_000, default: 30_000 },
  callTimeoutMs: { min: 10, max: 600_000, default: 5_000 },
  /** Of a chunk of an artifact, whose maximum is that of a call. */
  chunkTimeoutMs: { default: 15_000 },
  /** Chunks of an artifact that are written at a time. */
  chunksAtOnce: { default: 2 },
  lookupAfterMs: { min: 0, max: 86_400_000, default: 2_000 },
  providerIdempotentHours: { min: 0, max: 720 },
  retentionDays: { min: 1, max: 3_650 },
  stopConditions: 10,
  maskPointers: 50,
  outcomeRules: 50,
  statusesPerRule: 100,
  headers: 32,
  callbackRules: 50,
  valuesPerCallbackRule: 100,
  callbackSecrets: 10,
  callbackToleranceSeconds: { min: 10, max: 86_400, default: 300 },
} as const

/** A call or batch must end this long before its lease does, so that its outcome is written under the lease. */
const LEASE_MARGIN_MS = 1_000

const STOP_METRICS = ['ambiguous_effect_targets', 'downstream_error_rate_5m', 'replay_reject_rate'] as const
/** `metric > number`: a whole number for the count; for a rate a percentage up to 100%, or a ratio up to 1. */
const STOP_CONDITION =
  /^(?:ambiguous_effect_targets\s*>\s*\d{1,9}|(?:downstream_error_rate_5m|replay_reject_rate)\s*>\s*(?:(?:100|\d{1,2}(?:\.\d{1,6})?)%|0?\.\d{1,6}|[01](?:\.0{1,6})?))$/
const DEFAULT_STOP_IF: readonly string[] = [
  'ambiguous_effect_targets > 0',
  'downstream_error_rate_5m > 5%',
  'replay_reject_rate > 10%',
]

const RETENTION_ITEMS_DAYS = 30
const RETENTION_LEDGER_DAYS = { sensitive: 365, usual: 90, artifact: 7 }
const MS_PER_HOUR = 3_600_000

/** Effects a person may have to take back: a type that has them says how, or why not. */
const COMPENSATION_DECIDED: readonly Touch[] = ['money', 'permission', 'customer_notice', 'external_send']

export const text = z.string().min(1).max(TYPE_LIMITS.textLength)
export const int = (range: { min: number; max: number }) => z.int().min(range.min).max(range.max)
const number = (range: { min: number; max: number }) => z.number().min(range.min).max(range.max)
export const jsonPointer = z
  .string()
  .max(TYPE_LIMITS.textLength)
  .regex(/^(?:\/(?:[^~/]|~[01])*)+$/, 'must be a JSON pointer such as /user')

/** The members that every kind of definition has. */
export const policyShape = {
  name: z
    .string()
    .max(TYPE_LIMITS.nameLength)
    .regex(/^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$/, 'must be lower-case words joined by "-", such as grant-role'),
  version: z.int().min(1).max(TYPE_LIMITS.versionMax),
  description: text.optional(),
  owner: text.optional(),
  effect: z.enum(EFFECT_KINDS),
  risk: z.enum(['low', 'medium', 'high']).optional(),
  touches: z.array(z.enum(TOUCHES)).max(TOUCHES.length).optional(),
  approval: z.enum(['none', 'replay', 'always']).optional(),
  idempotency_key: z.enum(['required', 'optional']).optional(),
  batch: z
    .strictObject({
      max_items: int(TYPE_LIMITS.batchItems).optional(),
      max_ms: int(TYPE_LIMITS.batchMs).optional(),
    })
    .optional(),
  parallelism: int(TYPE_LIMITS.parallelism).optional(),
  concurrency: int(TYPE_LIMITS.concurrency).optional(),
  rate_limit: z.strictObject({ per_second: number(TYPE_LIMITS.ratePerSecond) }).optional(),
  lease_seconds: int(TYPE_LIMITS.leaseSeconds).optional(),
  stall_ms: int(TYPE_LIMITS.stallMs).optional(),
  max_cancel_seconds: int(TYPE_LIMITS.maxCancelSeconds).optional(),
  retry: z
    .strictObject({
      max_attempts: int(TYPE_LIMITS.attempts).optional(),
      base_ms: int(TYPE_LIMITS.retryBaseMs).optional(),
      max_ms: int(TYPE_LIMITS.retryMaxMs).optional(),
    })
    .optional(),
  stop_if: z
    .array(
      z
        .string()
        .regex(
          STOP_CONDITION,
          `must read "metric > number" (rates: up to 100%); the metrics are ${STOP_METRICS.join(', ')}`,
        ),
    )
    .max(TYPE_LIMITS.stopConditions)
    .optional(),
  retention: z
    .strictObject({
      items_days: int(TYPE_LIMITS.retentionDays).optional(),
      ledger_days: int(TYPE_LIMITS.retentionDays).optional(),
    })
    .optional(),
  mask: z.array(jsonPointer).max(TYPE_LIMITS.maskPointers).optional(),
  counts: z.enum(['exact', 'ranges']).optional(),
  code_version: z.string().min(1).max(TYPE_LIMITS.nameLength).optional(),
  no_compensation: text.optional(),
}
/** What the type knows of its provider. In a type file these stand under `http`, beside the request. */
export const providerShape = {
  on_absent: z.enum(['retry', 'case']).optional(),
  provider_idempotent_hours: number(TYPE_LIMITS.providerIdempotentHours).optional(),
}
export type PolicyDefinition = z.infer<z.ZodObject<typeof policyShape & typeof providerShape>>

/** The members of a step that say where it stands among the others; the same in a type file and in code. */
export const stepShape = {
  name: z.string().regex(STEP_NAME, 'must be lower-case, such as reserve, of at most 32 characters'),
  irreversible: z.boolean().optional(),
}
export const STEPS_RANGE = { min: 1, max: STEPS_MAX } as const

export type TypePolicy = Omit<
  OperationType,
  'codeVersion' | 'inputSchema' | 'validateInput' | 'effectKey' | 'executor' | 'compensator' | 'callback' | 'close'
>

/** A definition that is not allowed. `field` is the path of the member to change, such as `http.request.url`. */
export class DefinitionError extends Error {
  override readonly name = 'DefinitionError'
  readonly field: string
  readonly detail: string

  constructor(field: string, detail: string, options?: { cause: unknown }) {
    super(`${field}: ${detail}`, options)
    this.field = field
    this.detail = detail
  }
}

/**
 * The policy of a definition, with its defaults. Throws a DefinitionError for the first rule between members that is
 * broken. `callTimeoutMs` is null for types that make no calls.
 */
export const resolvePolicy = (
  definition: PolicyDefinition,
  facts: { callTimeoutMs: number | null; compensates: boolean; steps?: readonly StepRule[] | undefined },
): TypePolicy => {
  const touches = [...new Set(definition.touches ?? [])]
  const sensitive = touches.some((touch) => touch === 'money' || touch === 'permission')
  const baseMs = definition.retry?.base_ms ?? TYPE_LIMITS.retryBaseMs.default
  const maxMs = definition.retry?.max_ms ?? Math.max(TYPE_LIMITS.retryMaxMs.default, baseMs)
  const ledgerDays =
    definition.effect === 'artifact'
      ? RETENTION_LEDGER_DAYS.artifact
      : sensitive
        ? RETENTION_LEDGER_DAYS.sensitive
        : RETENTION_LEDGER_DAYS.usual
  const policy: TypePolicy = {
    name: definition.name,
    version: definition.version,
    description: definition.description ?? null,
    owner: definition.owner ?? null,
    effect: definition.effect,
    steps: (facts.steps ?? []).map((step) => step.name),
    endsIrreversibly: facts.steps?.at(-1)?.irreversible ?? false,
    risk: definition.risk ?? 'medium',
    touches,
    approval: definition.approval ?? (touches.some((touch) => touch !== 'customer_data') ? 'replay' : 'none'),
    idempotencyKey: definition.idempotency_key ?? (definition.effect === 'external' ? 'required' : 'optional'),
    batch: {
      maxItems: definition.batch?.max_items ?? TYPE_LIMITS.batchItems.default,
      maxMs: definition.batch?.max_ms ?? TYPE_LIMITS.batchMs.default,
    },
    parallelism: definition.parallelism ?? TYPE_LIMITS.parallelism.default,
    concurrency:
      definition.concurrency ??
      (definition.effect === 'artifact' ? TYPE_LIMITS.chunksAtOnce.default : TYPE_LIMITS.concurrency.default),
    ratePerSecond: definition.rate_limit?.per_second ?? null,
    leaseMs: (definition.lease_seconds ?? TYPE_LIMITS.leaseSeconds.default) * 1_000,
    stallMs: definition.stall_ms ?? Math.max(TYPE_LIMITS.stallMs.default, 2 * (facts.callTimeoutMs ?? 0)),
    maxCancelMs: (definition.max_cancel_seconds ?? TYPE_LIMITS.maxCancelSeconds.default) * 1_000,
    retry: { maxAttempts: definition.retry?.max_attempts ?? TYPE_LIMITS.attempts.default, baseMs, maxMs },
    stopIf: [...(definition.stop_if ?? DEFAULT_STOP_IF)],
    retention: {
      itemsDays: definition.retention?.items_days ?? Math.min(RETENTION_ITEMS_DAYS, ledgerDays),
      ledgerDays: definition.retention?.ledger_days ?? ledgerDays,
    },
    mask: [...(definition.mask ?? [])],
    counts: definition.counts ?? 'exact',
    // Sending again is opted into: a lookup of an eventually consistent provider can say "absent" too early.
    onAbsent: definition.on_absent ?? 'case',
    providerIdempotentMs: Math.round((definition.provider_idempotent_hours ?? 0) * MS_PER_HOUR),
    compensation: facts.compensates ? 'available' : 'none',
    noCompensationReason: definition.no_compensation ?? null,
  }
  assertPolicy(policy, facts.callTimeoutMs)
  return policy
}

/** The rules between steps; `field` is the path of their list. */
export const assertSteps = (
  steps: readonly StepRule[],
  { field, compensates }: { field: string; compensates: boolean },
): void => {
  const fault = stepFault(steps)
  if (fault !== null) throw new DefinitionError(`${field}.${fault.index}.${fault.field}`, fault.detail)
  const last = steps.length - 1
  if (compensates && steps[last]?.irreversible) {
    throw new DefinitionError(
      `${field}.${last}.irreversible`,
      'must not stand beside compensate: say with no_compensation why the effect cannot be taken back',
    )
  }
}

/** The rules between members. */
const assertPolicy = (policy: TypePolicy, callTimeoutMs: number | null): void => {
  const undecided = policy.touches.find((touch) => COMPENSATION_DECIDED.includes(touch))
  if (undecided !== undefined && policy.compensation === 'none' && policy.noCompensationReason === null) {
    throw new DefinitionError(
      'no_compensation',
      `required because touches names ${undecided}: say how an effect is taken back (compensate) or why it cannot be (no_compensation)`,
    )
  }
  if (policy.compensation === 'available' && policy.noCompensationReason !== null) {
    throw new DefinitionError('no_compensation', 'must not stand beside compensate')
  }
  if (policy.retry.maxMs < policy.retry.baseMs) {
    throw new DefinitionError('retry.max_ms', `must be at least base_ms (${policy.retry.baseMs})`)
  }
  if (policy.retention.ledgerDays < policy.retention.itemsDays) {
    throw new DefinitionError('retention.ledger_days', `must be at least items_days (${policy.retention.itemsDays})`)
  }
  const [stepName, stepMs] =
    callTimeoutMs === null ? ['batch.max_ms', policy.batch.maxMs] : ['the call timeout', callTimeoutMs]
  const floor = `must be more than ${stepName} plus a margin (${stepMs} ms + ${LEASE_MARGIN_MS} ms)`
  if (policy.leaseMs <= stepMs + LEASE_MARGIN_MS) throw new DefinitionError('lease_seconds', floor)
  if (policy.stallMs <= stepMs + LEASE_MARGIN_MS) throw new DefinitionError('stall_ms', floor)
}
