/** The `item_keys` of a preflight's scope, for replays and compensations alike. */
import { AppError, type Fault } from '../domain/errors.ts'
import { SCOPE_ITEM_KEYS_MAX } from '../domain/replay.ts'

/** In one spelling. */
export const sorted = (keys: readonly string[]): string[] => [...new Set(keys)].sort()

export const itemKeyFaults = (itemKeys: readonly string[] | null): Fault[] =>
  itemKeys !== null && itemKeys.length > SCOPE_ITEM_KEYS_MAX
    ? [{ detail: `at most ${SCOPE_ITEM_KEYS_MAX} item keys`, pointer: '/scope/item_keys' }]
    : []

/** A key that no item has is a slip of the hand: what was meant would silently be left out. */
export const refuseUnknownKeys = (
  facts: { itemsPurged: boolean; unknownKeys: readonly string[] },
  asked: readonly string[] | null,
): void => {
  if (facts.itemsPurged || facts.unknownKeys.length === 0) return
  throw new AppError('invalid-request', 'the scope names items that the operation does not have', {
    errors: facts.unknownKeys.map((key) => ({
      detail: `no item has the key "${key}"`,
      pointer: `/scope/item_keys/${(asked ?? []).indexOf(key)}`,
    })),
  })
}
