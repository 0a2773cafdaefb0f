import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import type { CompensationPreflightView } from '../../services/preflight-views.ts'
import { time } from '../fields.ts'
import { toRfc3339 } from '../times.ts'
import { toAge } from './preflight.ts'

const count = z.int().min(0)

export const CompensationPreflightResource = z
  .object({
    preflight_id: z.string(),
    operation_id: z.string(),
    expires_at: time,
    facts_hash: z.string(),
    scope: z.object({ item_keys: z.array(z.string()).nullable() }),
    compensation_targets: count.describe('Items in this scope whose effect this operation applied, and still stands.'),
    applied_targets: count.describe('Items of the operation whose outcome is applied, whatever was undone since.'),
    ambiguous_effect_targets: count,
    last_checkpoint_age: z.string().nullable().meta({ example: '3m' }),
    last_checkpoint_age_seconds: z.number().nullable(),
    downstream_error_rate_5m: z.number().meta({ example: 0.004 }),
    code_version_changed: z.boolean().describe('The operation ran with another version of its type.'),
    code_version_then: z.string().describe('The version of the type that it ran with.'),
    code_version_now: z.string().describe('The version of the type that is installed.'),
    requires_approval: z.boolean(),
    compensation: z.string(),
    no_compensation_reason: z.string().nullable(),
    stop_if: z.array(z.object({ condition: z.string(), actual: z.number(), tripped: z.boolean() })),
    allowed: z.boolean(),
    blocked_by: z.array(z.string()).describe('Codes; further ones may be added.'),
  })
  .meta({ id: 'CompensationPreflight' })

export const toCompensationPreflight = (
  view: CompensationPreflightView,
): z.infer<typeof CompensationPreflightResource> => ({
  preflight_id: formatId('pf', view.id),
  operation_id: formatId('op', view.operationId),
  expires_at: toRfc3339(view.expiresAt),
  facts_hash: view.factsHash,
  scope: { item_keys: view.scope.itemKeys },
  compensation_targets: view.compensationTargets,
  applied_targets: view.appliedTargets,
  ambiguous_effect_targets: view.ambiguousEffectTargets,
  last_checkpoint_age: view.lastCheckpointAgeSeconds === null ? null : toAge(view.lastCheckpointAgeSeconds),
  last_checkpoint_age_seconds: view.lastCheckpointAgeSeconds,
  downstream_error_rate_5m: view.downstreamErrorRate5m,
  code_version_changed: view.codeVersionChanged,
  code_version_then: view.codeVersionThen,
  code_version_now: view.codeVersionNow,
  requires_approval: view.requiresApproval,
  compensation: view.compensation,
  no_compensation_reason: view.noCompensationReason,
  stop_if: view.stopIf,
  allowed: view.allowed,
  blocked_by: view.blockedBy,
})
