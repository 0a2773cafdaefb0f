import { readOperationStates } from '../storage/operation-state.ts'
import { listOperationIds } from '../storage/operations.ts'
import type { ServiceContext } from './context.ts'
import { operationView } from './operation-view.ts'
import { readPage } from './paging.ts'
import type { Principal } from './principal.ts'
import type { OperationPosition, OperationSearch, PageRequest } from './requests.ts'
import type { PulseReader } from './type-pulse.ts'
import type { OperationView, Page } from './views.ts'

/** Which operations first, then what they are: the second statement is the one that single reads use. */
export const listOperations = async (
  { database, types, readPulse }: Pick<ServiceContext, 'database' | 'types'> & { readPulse: PulseReader },
  { tenantId }: Principal,
  filters: OperationSearch,
  page: PageRequest<OperationPosition>,
): Promise<Page<OperationView, OperationPosition>> => {
  const { ids, states } = await database.query(async (connection) => {
    const ids = await readPage(
      page.limit,
      (limit) => listOperationIds(connection, tenantId, filters, page.position, limit),
      ({ createdAt, id }): OperationPosition => ({ createdAt, id }),
    )
    const keys = ids.items.map(({ id }) => ({ tenantId, id }))
    return { ids, states: keys.length > 0 ? await readOperationStates(connection, keys) : [] }
  })
  const byId = new Map(states.map((state) => [state.id, state]))
  const ordered = ids.items.flatMap(({ id }) => byId.get(id) ?? [])
  const items = ordered.map(async (state) =>
    operationView(state, types.get(state.type), await readPulse(state.type, state.typeVersion)),
  )
  return { items: await Promise.all(items), next: ids.next }
}
