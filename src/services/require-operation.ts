import { AppError } from '../domain/errors.ts'
import type { Database } from '../storage/database.ts'
import { operationExists } from '../storage/operations.ts'

export const noOperation = (): AppError => new AppError('operation-not-found', 'there is no such operation')

/** Before a request is told what else is wrong with it. @throws AppError `operation-not-found` */
export const requireOperation = async (
  database: Database,
  { tenantId, operationId }: { tenantId: number; operationId: string },
): Promise<void> => {
  if (await database.query((connection) => operationExists(connection, tenantId, operationId))) return
  throw noOperation()
}
