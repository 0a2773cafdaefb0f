import type { Preflight } from './api-types.ts'
import { table } from './text.ts'

const percentOf = (rate: number): string => `${(rate * 100).toFixed(1)} %`

/** What blocks, and the first thing to do about it. Further codes may come from a newer service; they stand as they are. */
const remedyOf = (code: string, { operation_id: id }: Preflight, command: (rest: string) => string): string => {
  if (code.startsWith('ambiguous_effect_targets')) return command(`reconcile list --operation ${id}`)
  switch (code) {
    case 'nothing-to-replay':
      return 'no item in this scope failed or is unprocessed'
    case 'not-settled':
      return command(`watch ${id}`)
    case 'replay-in-progress':
      return 'a replay of it runs already: wait until that one has ended'
    case 'items-purged':
      return 'its items are deleted: submit the work as a new operation'
    case 'bug-suspected':
      return 'wait for a new code version, or replay with --force bug-suspected'
    default:
      return ''
  }
}

/** The whole preflight, for a person who decides by it. */
export const describePreflight = (preflight: Preflight, command: (rest: string) => string): string => {
  const { scope } = preflight
  const versions = `${preflight.code_version_then} then, ${preflight.code_version_now} now`
  const scopeText = [
    scope.states.join(', '),
    ...(scope.failure_classes.length > 0 ? [`failed as ${scope.failure_classes.join(', ')}`] : []),
    ...(scope.item_keys === null ? [] : [`${scope.item_keys.length} named items`]),
  ].join('; ')
  const head = table([
    ['operation', preflight.operation_id],
    ['preflight', `${preflight.preflight_id}, good until ${preflight.expires_at}`],
    ['scope', scopeText],
  ])
  const targets = table(
    [
      ['would be replayed', preflight.replay_targets],
      ['confirmed, not touched', preflight.confirmed_targets],
      ['failed', preflight.failed_targets],
      ['of them refused as invalid', preflight.validation_rejected_targets],
      ['of them dead letters', preflight.dead_letter_targets],
      ['not processed', preflight.unprocessed_targets],
      ['uncertain', preflight.ambiguous_effect_targets],
    ],
    '  ',
  )
  const facts = table(
    [
      ['last checkpoint', preflight.last_checkpoint_age === null ? 'none' : `${preflight.last_checkpoint_age} ago`],
      ['errors of the provider, 5 min', percentOf(preflight.downstream_error_rate_5m)],
      ['code version', `${versions}${preflight.code_version_changed ? ' (changed)' : ''}`],
      ['approval by a second person', preflight.requires_approval ? 'needed' : 'not needed'],
      ['compensation', preflight.compensation],
    ],
    '  ',
  )
  const conditions = table(
    preflight.stop_if.map(({ condition, actual, tripped }) => [
      condition,
      `now ${Number(actual.toPrecision(4))}`,
      tripped ? 'TRIPPED' : 'holds',
    ]),
    '  ',
  )
  const blocks = table(
    preflight.blocked_by.map((code) => [code, remedyOf(code, preflight, command)]),
    '  ',
  )
  const verdict = preflight.allowed ? 'ALLOWED: nothing forbids this replay\n' : `BLOCKED by\n${blocks}`
  const stops = conditions === '' ? '' : `\nStop conditions\n${conditions}`
  return `${head}\nTargets\n${targets}\nFacts\n${facts}${stops}\n${verdict}`
}

/** The scope that options ask for; null: the default one. */
export const scopeOf = (options: { state?: string[]; failureClass?: string[]; item?: string[] }) => {
  const scope = {
    ...(options.state && { states: options.state }),
    ...(options.failureClass && { failure_classes: options.failureClass }),
    ...(options.item && { item_keys: options.item }),
  }
  return Object.keys(scope).length === 0 ? null : scope
}
