import { AppError } from '../domain/errors.ts'
import { compareSchema } from '../storage/migrate.ts'
import type { ServiceContext } from './context.ts'
import type { ReadinessView } from './views.ts'

/** Ready: requests can be answered. Without the database, or on another version's schema, none can. */
export const readiness = async ({ database }: Pick<ServiceContext, 'database'>): Promise<ReadinessView> => {
  try {
    const schema = await database.query(compareSchema)
    const isCurrent = schema === 'current'
    return {
      ready: isCurrent,
      checks: [
        { name: 'database', ok: true, detail: null },
        { name: 'schema', ok: isCurrent, detail: isCurrent ? null : `the schema is ${schema} than this version` },
      ],
    }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { ready: false, checks: [{ name: 'database', ok: false, detail: error.detail }] }
  }
}
