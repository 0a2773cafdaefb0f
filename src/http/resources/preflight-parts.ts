/** What the preflights of a replay and of a compensation show alike. */
import { z } from 'zod'
import { formatId } from '../../domain/ids.ts'
import { toRfc3339 } from '../../domain/times.ts'
import { evaluationsInRanges, seesRanges } from '../../services/count-ranges.ts'
import type { CompensationPreflightView, PreflightView } from '../../services/preflight-views.ts'
import type { Principal } from '../../services/principal.ts'
import { time } from '../fields.ts'

type View = PreflightView | CompensationPreflightView

export const count = z.int().min(0)

export const headShape = {
  preflight_id: z.string(),
  operation_id: z.string(),
  expires_at: time,
  facts_hash: z.string(),
  counts_in_ranges: z
    .boolean()
    .describe(
      'The type shows ranges of counts (0, 1 to 9, 10 to 99, …) to callers without the scope ledger:read: each is the lower end of its range.',
    ),
}

export const toHead = (view: View, caller: Pick<Principal, 'scopes'>) => ({
  preflight_id: formatId('pf', view.id),
  operation_id: formatId('op', view.operationId),
  expires_at: toRfc3339(view.expiresAt),
  facts_hash: view.factsHash,
  counts_in_ranges: seesRanges(caller, view),
})

export const figuresShape = {
  last_checkpoint_age: z.string().nullable().meta({ example: '3m' }),
  last_checkpoint_age_seconds: z.number().nullable(),
  downstream_error_rate_5m: z.number().meta({ example: 0.004 }),
  code_version_changed: z.boolean().describe('The operation ran with another version of its type.'),
  code_version_then: z.string().describe('The version of the type that it ran with.'),
  code_version_now: z.string().describe('The version of the type that is installed.'),
  requires_approval: z.boolean(),
  compensation: z.string(),
}

export const toFigures = (view: View) => ({
  last_checkpoint_age: view.lastCheckpointAgeSeconds === null ? null : toAge(view.lastCheckpointAgeSeconds),
  last_checkpoint_age_seconds: view.lastCheckpointAgeSeconds,
  downstream_error_rate_5m: view.downstreamErrorRate5m,
  code_version_changed: view.codeVersionChanged,
  code_version_then: view.codeVersionThen,
  code_version_now: view.codeVersionNow,
  requires_approval: view.requiresApproval,
  compensation: view.compensation,
})

export const verdictShape = {
  stop_if: z.array(z.object({ condition: z.string(), actual: z.number(), tripped: z.boolean() })),
  allowed: z.boolean(),
  blocked_by: z.array(z.string()).describe('Codes; further ones may be added.'),
}

export const toVerdict = (view: View, caller: Pick<Principal, 'scopes'>) => ({
  stop_if: seesRanges(caller, view) ? evaluationsInRanges(view.stopIf) : view.stopIf,
  allowed: view.allowed,
  blocked_by: view.blockedBy,
})

/** In its largest whole unit, for people: `3m`. */
const toAge = (seconds: number): string => {
  const whole = Math.max(0, Math.floor(seconds))
  if (whole >= 86_400) return `${Math.floor(whole / 86_400)}d`
  if (whole >= 3_600) return `${Math.floor(whole / 3_600)}h`
  return whole >= 60 ? `${Math.floor(whole / 60)}m` : `${whole}s`
}
