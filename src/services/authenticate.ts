import { knownScopes } from '../domain/scope.ts'
import { findApiKey } from '../storage/api-keys.ts'
import type { ServiceContext } from './context.ts'
import type { KeyUses } from './key-uses.ts'
import type { Principal } from './principal.ts'

/** Whose key it is. Unknown scopes in the row grant nothing. */
export const authenticate = async (
  { database, keyUses }: Pick<ServiceContext, 'database'> & { keyUses: Pick<KeyUses, 'note'> },
  keyHash: string,
): Promise<{ principal: Principal; keyHash: string } | null> => {
  const key = await database.query((connection) => findApiKey(connection, keyHash))
  if (key === null) return null
  if (!key.isNoted) keyUses.note(key)
  return {
    principal: { tenantId: key.tenantId, name: key.name, scopes: knownScopes(key.scopes) },
    keyHash: key.keyHash,
  }
}
