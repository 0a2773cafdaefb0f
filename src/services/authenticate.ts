import { findApiKey } from '../storage/api-keys.ts'
import type { ServiceContext } from './context.ts'
import { type Principal, SCOPES } from './principal.ts'

/** Whose key it is. Unknown scopes in the row grant nothing. */
export const authenticate = async (
  { database }: Pick<ServiceContext, 'database'>,
  keyHash: string,
): Promise<{ principal: Principal; keyHash: string } | null> => {
  const key = await database.query((connection) => findApiKey(connection, keyHash))
  if (key === null) return null
  const scopes = SCOPES.filter((scope) => key.scopes.includes(scope))
  return { principal: { tenantId: key.tenantId, name: key.name, scopes }, keyHash: key.keyHash }
}
