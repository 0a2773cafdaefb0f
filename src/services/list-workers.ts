import { listWorkerRows } from '../storage/workers.ts'
import type { ServiceContext } from './context.ts'
import type { Principal } from './principal.ts'
import type { WorkerView } from './views.ts'

/** Worker processes serve all tenants, so every principal sees them; one that takes its work over HTTP is seen by its own. */
export const listWorkers = (
  { database }: Pick<ServiceContext, 'database'>,
  { tenantId }: Principal,
): Promise<WorkerView[]> => database.query((connection) => listWorkerRows(connection, tenantId))
