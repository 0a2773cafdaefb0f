import { type OperationKey, type OperationState, readOperationStates } from '../storage/operation-state.ts'
import type { ServiceContext } from './context.ts'
import { naturalBatch } from './natural-batch.ts'
import { operationView } from './operation-view.ts'
import type { Principal } from './principal.ts'
import type { PulseReader } from './type-pulse.ts'
import type { OperationView } from './views.ts'

/** What waits for a read makes the next one larger, and cheaper for each. */
const LANES = 1
const BATCH_MAX = 256
const QUEUE_MAX = 20_000

/** Reads one operation; what is asked for while a read is in flight shares the next statement. */
export type StateReader = (key: OperationKey) => Promise<OperationState | null>

export const openStateReader = ({ database }: Pick<ServiceContext, 'database'>): StateReader =>
  naturalBatch<OperationKey, OperationState | null>({
    lanes: LANES,
    itemsMax: BATCH_MAX,
    queueMax: QUEUE_MAX,
    async run(keys) {
      const unique = new Map(keys.map((key) => [`${key.tenantId}/${key.id}`, key]))
      const states = await database.query((connection) => readOperationStates(connection, [...unique.values()]))
      const found = new Map(states.map((state) => [`${state.tenantId}/${state.id}`, state]))
      return keys.map((key) => found.get(`${key.tenantId}/${key.id}`) ?? null)
    },
  })

export const getOperation = async (
  { types, readState, readPulse }: Pick<ServiceContext, 'types'> & { readState: StateReader; readPulse: PulseReader },
  principal: Principal,
  id: string,
): Promise<OperationView | null> => {
  const state = await readState({ tenantId: principal.tenantId, id })
  if (!state) return null
  return operationView(state, types.get(state.type), await readPulse(state.type, state.typeVersion))
}
