import { AppError } from '../domain/errors.ts'
import { readNow } from '../storage/health.ts'
import type { ServiceContext } from './context.ts'
import type { ReadinessView } from './views.ts'

/** Ready: requests can be answered. Without the database none can. */
export const readiness = async ({ database }: Pick<ServiceContext, 'database'>): Promise<ReadinessView> => {
  try {
    await database.query(readNow)
    return { ready: true, checks: [{ name: 'database', ok: true, detail: null }] }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { ready: false, checks: [{ name: 'database', ok: false, detail: error.detail }] }
  }
}
