import { z } from 'zod'
import { shownCount } from '../../services/count-ranges.ts'
import type { CompensationPreflightView } from '../../services/preflight-views.ts'
import type { Principal } from '../../services/principal.ts'
import { count, figuresShape, headShape, toFigures, toHead, toVerdict, verdictShape } from './preflight-parts.ts'

export const CompensationPreflightResource = z
  .object({
    ...headShape,
    scope: z.object({ item_keys: z.array(z.string()).nullable() }),
    compensation_targets: count.describe('Items in this scope whose effect this operation applied, and still stands.'),
    applied_targets: count.describe('Items of the operation whose outcome is applied, whatever was undone since.'),
    ambiguous_effect_targets: count,
    ...figuresShape,
    no_compensation_reason: z.string().nullable(),
    ...verdictShape,
  })
  .meta({ id: 'CompensationPreflight' })

export const toCompensationPreflight = (
  view: CompensationPreflightView,
  caller: Pick<Principal, 'scopes'>,
): z.infer<typeof CompensationPreflightResource> => {
  const shown = shownCount(view, caller)
  return {
    ...toHead(view, caller),
    scope: { item_keys: view.scope.itemKeys },
    compensation_targets: shown(view.compensationTargets),
    applied_targets: shown(view.appliedTargets),
    ambiguous_effect_targets: shown(view.ambiguousEffectTargets),
    ...toFigures(view),
    no_compensation_reason: view.noCompensationReason,
    ...toVerdict(view, caller),
  }
}
