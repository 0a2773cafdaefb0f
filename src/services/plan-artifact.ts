import { PUBLISH_KEY } from '../domain/artifact.ts'
import { AppError, type Fault } from '../domain/errors.ts'
import { formatId } from '../domain/ids.ts'
import type { InputIssue, Json, OperationType } from '../domain/operation-type.ts'
import type { Database } from '../storage/database.ts'
import { readOnlyQuery } from '../storage/read-only-query.ts'
import type { SubmittedItem } from '../storage/submissions.ts'
import { canonicalHash } from './canonical-hash.ts'
import type { SubmitRequest } from './requests.ts'

/** Of all items of one operation together: as much as may be sent inline. */
const PLAN_BYTES_MAX = 10 * 1024 * 1024

const refused = (type: OperationType, issues: readonly InputIssue[]): AppError => {
  const errors: Fault[] = issues.map(({ pointer, detail }) => ({ detail, pointer: `/input${pointer}` }))
  return new AppError('invalid-input', `${type.name} refuses the input`, { errors })
}

/**
 * The items of an artifact operation, as its type plans them: its chunks in the order of the file, and the publish, which
 * carries the operation's input. Errors: items-not-accepted, invalid-input.
 */
export const planArtifact = async (
  database: Database,
  type: OperationType,
  request: Pick<SubmitRequest, 'items' | 'draft' | 'input'>,
  operation: { tenantId: number; id: string },
): Promise<SubmittedItem[]> => {
  if (type.executor.kind !== 'artifact') throw new Error(`${type.name} makes no artifacts`)
  if (request.draft || request.items.length > 0) {
    throw new AppError('items-not-accepted', `${type.name} plans its items by itself: send "input" alone`, {
      errors: [{ detail: 'is not taken by this type', pointer: request.draft ? '/draft' : '/items' }],
    })
  }
  const input: Json = request.input ?? {}
  const issues = type.validateInput(input)
  if (issues.length > 0) throw refused(type, issues)
  const planned = await type.executor.plan(input, {
    tenantId: operation.tenantId,
    operationId: formatId('op', operation.id),
    query: readOnlyQuery(database),
  })
  if ('issues' in planned) throw refused(type, planned.issues)
  const items = [...planned.chunks, { key: PUBLISH_KEY, input }].map((item) => toItem(type, item, operation.id))
  const bytes = items.reduce((sum, item) => sum + item.input.length, 0)
  if (bytes > PLAN_BYTES_MAX) {
    throw refused(type, [{ pointer: '', detail: `its chunks take ${bytes} bytes; at most ${PLAN_BYTES_MAX}` }])
  }
  return items
}

const toItem = (type: OperationType, item: { key: string; input: Json }, rootOperationId: string): SubmittedItem => {
  const effect = type.effectKey({ ...item, rootOperationId })
  if ('issue' in effect) throw new Error(`${type.name}: ${effect.issue.detail}`)
  return {
    key: item.key,
    effectKey: effect.key,
    input: JSON.stringify(item.input),
    inputHash: canonicalHash(item.input),
  }
}
