import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import type { PreflightView } from '../../services/preflight-views.ts'
import { time } from '../fields.ts'
import { toRfc3339 } from '../times.ts'

const count = z.int().min(0)

export const PreflightResource = z
  .object({
    preflight_id: z.string(),
    operation_id: z.string(),
    expires_at: time,
    facts_hash: z.string(),
    scope: z.object({
      states: z.array(z.string()),
      failure_classes: z.array(z.string()),
      item_keys: z.array(z.string()).nullable(),
    }),
    replay_targets: count.describe('Items that a replay in this scope would touch.'),
    failed_targets: count,
    confirmed_targets: count.describe('Applied or skipped.'),
    ambiguous_effect_targets: count,
    validation_rejected_targets: count,
    unprocessed_targets: count,
    dead_letter_targets: count,
    last_checkpoint_age: z.string().nullable().meta({ example: '3m' }),
    last_checkpoint_age_seconds: z.number().nullable(),
    downstream_error_rate_5m: z.number().meta({ example: 0.004 }),
    code_version_changed: z.boolean().describe('The operation ran with another version of its type.'),
    code_version_then: z.string().describe('The version of the type that it ran with.'),
    code_version_now: z.string().describe('The version of the type that is installed.'),
    requires_approval: z.boolean(),
    compensation: z.string(),
    stop_if: z.array(z.object({ condition: z.string(), actual: z.number(), tripped: z.boolean() })),
    allowed: z.boolean(),
    blocked_by: z.array(z.string()).describe('Codes; further ones may be added.'),
  })
  .meta({ id: 'ReplayPreflight' })

export const toPreflight = (view: PreflightView): z.infer<typeof PreflightResource> => ({
  preflight_id: formatId('pf', view.id),
  operation_id: formatId('op', view.operationId),
  expires_at: toRfc3339(view.expiresAt),
  facts_hash: view.factsHash,
  scope: {
    states: view.scope.states,
    failure_classes: view.scope.failureClasses,
    item_keys: view.scope.itemKeys,
  },
  replay_targets: view.replayTargets,
  failed_targets: view.failedTargets,
  confirmed_targets: view.confirmedTargets,
  ambiguous_effect_targets: view.ambiguousEffectTargets,
  validation_rejected_targets: view.validationRejectedTargets,
  unprocessed_targets: view.unprocessedTargets,
  dead_letter_targets: view.deadLetterTargets,
  last_checkpoint_age: view.lastCheckpointAgeSeconds === null ? null : toAge(view.lastCheckpointAgeSeconds),
  last_checkpoint_age_seconds: view.lastCheckpointAgeSeconds,
  downstream_error_rate_5m: view.downstreamErrorRate5m,
  code_version_changed: view.codeVersionChanged,
  code_version_then: view.codeVersionThen,
  code_version_now: view.codeVersionNow,
  requires_approval: view.requiresApproval,
  compensation: view.compensation,
  stop_if: view.stopIf,
  allowed: view.allowed,
  blocked_by: view.blockedBy,
})

/** In its largest whole unit, for people: `3m`. */
export const toAge = (seconds: number): string => {
  const whole = Math.max(0, Math.floor(seconds))
  if (whole >= 86_400) return `${Math.floor(whole / 86_400)}d`
  if (whole >= 3_600) return `${Math.floor(whole / 3_600)}h`
  return whole >= 60 ? `${Math.floor(whole / 60)}m` : `${whole}s`
}
