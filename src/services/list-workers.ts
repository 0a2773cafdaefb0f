import { listWorkerRows } from '../storage/workers.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { WorkerView } from './views.ts'

/** Workers serve all tenants, so every principal sees all of them. */
export const listWorkers = (
  { database }: Pick<ServiceContext, 'database'>,
  _principal: Principal,
): Promise<WorkerView[]> => database.query(listWorkerRows)
