import { z } from 'zod'
import { toRfc3339 } from '../../domain/times.ts'
import type { OperationTypeView } from '../../services/views.ts'
import { openEnum, time } from '../fields.ts'

export const OperationTypeResource = z
  .object({
    name: z.string(),
    version: z.int(),
    description: z.string().nullable(),
    owner: z.string().nullable(),
    effect: openEnum(['external', 'transactional', 'artifact'], 'How it touches the world.'),
    risk: openEnum(['low', 'medium', 'high'], 'How much a person should look at it.'),
    touches: z.array(z.string()),
    approval: openEnum(['none', 'replay', 'always'], 'When a second person must agree.'),
    idempotency_key: openEnum(['required', 'optional'], 'Whether a submission needs an Idempotency-Key.'),
    cancel_guarantee: openEnum(
      ['discarded_before_publish', 'stops_at_batch_boundary', 'no_new_sends', 'no_new_commands'],
      'What a cancel promises.',
    ),
    steps: z
      .array(z.object({ name: z.string(), irreversible: z.boolean().describe('It cannot be taken back.') }))
      .describe('Effects of each item, in this order; empty when an item is one effect.'),
    limits: z.object({
      batch: z.object({ max_items: z.int(), max_ms: z.int() }),
      parallelism: z.int(),
      concurrency: z.int(),
      rate_per_second: z.number().nullable(),
      lease_seconds: z.number(),
      max_cancel_seconds: z.number(),
      retry: z.object({ max_attempts: z.int(), base_ms: z.int(), max_ms: z.int() }),
    }),
    lease_advice_seconds: z
      .object({ min: z.number(), max: z.number() })
      .nullable()
      .describe('2 to 3 times the p95, never below the call timeout; null while nothing was measured.'),
    p95_ms: z.number().nullable(),
    stop_if: z.array(z.string()),
    counts: openEnum(['exact', 'ranges'], 'What callers without the scope ledger:read see of counts of items.'),
    retention: z.object({ items_days: z.int(), ledger_days: z.int() }),
    compensation: openEnum(['available', 'none'], 'Whether applied effects can be undone.'),
    no_compensation_reason: z.string().nullable(),
    code_version: z.string(),
    input_schema: z.unknown().describe('JSON Schema 2020-12 of the input of one item.'),
    paused: z
      .object({ at: time, by: z.string().nullable(), reason: z.string().nullable() })
      .nullable()
      .describe('The kill switch: while it is set, no work of this type is started.'),
  })
  .meta({ id: 'OperationType' })

export const toOperationType = (view: OperationTypeView): z.infer<typeof OperationTypeResource> => ({
  name: view.name,
  version: view.version,
  description: view.description,
  owner: view.owner,
  effect: view.effect,
  risk: view.risk,
  touches: view.touches,
  approval: view.approval,
  idempotency_key: view.idempotencyKey,
  cancel_guarantee: view.cancelGuarantee,
  steps: view.steps,
  limits: {
    batch: { max_items: view.batch.maxItems, max_ms: view.batch.maxMs },
    parallelism: view.parallelism,
    concurrency: view.concurrency,
    rate_per_second: view.ratePerSecond,
    lease_seconds: view.leaseMs / 1000,
    max_cancel_seconds: view.maxCancelMs / 1000,
    retry: { max_attempts: view.retry.maxAttempts, base_ms: view.retry.baseMs, max_ms: view.retry.maxMs },
  },
  lease_advice_seconds: view.leaseAdviceMs && {
    min: view.leaseAdviceMs.min / 1000,
    max: view.leaseAdviceMs.max / 1000,
  },
  p95_ms: view.p95Ms,
  stop_if: view.stopIf,
  counts: view.counts,
  retention: { items_days: view.retention.itemsDays, ledger_days: view.retention.ledgerDays },
  compensation: view.compensation,
  no_compensation_reason: view.noCompensationReason,
  code_version: view.codeVersion,
  input_schema: view.inputSchema,
  paused: view.paused && { at: toRfc3339(view.paused.at), by: view.paused.by, reason: view.paused.reason },
})
