import { createHash, randomBytes } from 'node:crypto'
import { insertApiKey } from '../storage/api-keys.ts'
import type { Database } from '../storage/database.ts'
import { DEFAULT_TENANT_ID, type Scope } from './principal.ts'

const KEY_BYTES = 32

/** How keys are stored and looked up: the hex SHA-256. A random key needs no salt and no slow hash. */
export const hashApiKey = (key: string): string => createHash('sha256').update(key).digest('hex')

/** Makes a key. It is shown once, by the caller, and is nowhere afterwards. */
export const createApiKey = async (
  database: Database,
  key: { name: string; scopes: readonly Scope[]; expiresInDays: number | null },
): Promise<{ id: string; key: string }> => {
  const secret = `opl_${randomBytes(KEY_BYTES).toString('base64url')}`
  const id = await database.query((connection) =>
    insertApiKey(connection, { ...key, tenantId: DEFAULT_TENANT_ID, keyHash: hashApiKey(secret) }),
  )
  return { id, key: secret }
}
