import { AppError, type Fault } from '../domain/errors.ts'
import { markAwaited } from '../storage/dependencies.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'

/**
 * Refuses an `after` that names what cannot be waited for (invalid-predecessor); marks the operations that it names, so that
 * whoever settles one of them from now on looks for those that wait.
 */
export const checkAfter = async (
  { database }: Pick<ServiceContext, 'database'>,
  { tenantId }: Principal,
  after: readonly (string | null)[],
): Promise<string[]> => {
  const ids = [...new Set(after)].filter((id) => id !== null)
  // a list that is refused anyway marks nothing
  const isSound = ids.length === after.length
  const found = isSound ? await database.query((connection) => markAwaited(connection, tenantId, ids)) : new Set(ids)
  const faults: Fault[] = after.flatMap((id, index) => {
    const pointer = `/after/${index}`
    if (id === null || !found.has(id)) return [{ detail: 'there is no such operation', pointer }]
    return after.indexOf(id) < index ? [{ detail: 'is named before', pointer }] : []
  })
  if (faults.length > 0) {
    throw new AppError('invalid-predecessor', '"after" names what cannot be waited for', { errors: faults })
  }
  return ids
}
