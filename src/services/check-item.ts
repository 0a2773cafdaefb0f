import type { InputIssue, Json, OperationType } from '../domain/operation-type.ts'
import type { SubmittedItem } from '../storage/submissions.ts'
import { canonicalHash } from './canonical-hash.ts'

/** Checks one item against its type and makes its effect key; pointers of issues are below the item's input. */
export const checkItem = (
  type: OperationType,
  { key, input }: { key: string; input: Json },
  rootOperationId: string,
): { item: SubmittedItem } | { issues: InputIssue[] } => {
  const issues = type.validateInput(input)
  if (issues.length > 0) return { issues }
  const effect = type.effectKey({ key, input, rootOperationId })
  if ('issue' in effect) return { issues: [effect.issue] }
  return { item: { key, effectKey: effect.key, input: JSON.stringify(input), inputHash: canonicalHash(input) } }
}
