import { z } from 'zod'
import { shownCount } from '../../services/count-ranges.ts'
import type { PreflightView } from '../../services/preflight-views.ts'
import type { Principal } from '../../services/principal.ts'
import { count, figuresShape, headShape, toFigures, toHead, toVerdict, verdictShape } from './preflight-parts.ts'

export const PreflightResource = z
  .object({
    ...headShape,
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
    ...figuresShape,
    ...verdictShape,
  })
  .meta({ id: 'ReplayPreflight' })

export const toPreflight = (
  view: PreflightView,
  caller: Pick<Principal, 'scopes'>,
): z.infer<typeof PreflightResource> => {
  const shown = shownCount(view, caller)
  return {
    ...toHead(view, caller),
    scope: {
      states: view.scope.states,
      failure_classes: view.scope.failureClasses,
      item_keys: view.scope.itemKeys,
    },
    replay_targets: shown(view.replayTargets),
    failed_targets: shown(view.failedTargets),
    confirmed_targets: shown(view.confirmedTargets),
    ambiguous_effect_targets: shown(view.ambiguousEffectTargets),
    validation_rejected_targets: shown(view.validationRejectedTargets),
    unprocessed_targets: shown(view.unprocessedTargets),
    dead_letter_targets: shown(view.deadLetterTargets),
    ...toFigures(view),
    ...toVerdict(view, caller),
  }
}
