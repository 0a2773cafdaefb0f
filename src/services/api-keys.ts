import { createHash, randomBytes } from 'node:crypto'
import type { Scope } from '../domain/scope.ts'
import { insertApiKey, type KeyChoice, rotateApiKey } from '../storage/api-keys.ts'
import type { Database } from '../storage/database.ts'
import { DEFAULT_TENANT_ID } from './principal.ts'

const KEY_BYTES = 32

/** How keys are stored and looked up: the hex SHA-256. A random key needs no salt and no slow hash. */
export const hashApiKey = (key: string): string => createHash('sha256').update(key).digest('hex')

const newSecret = (): string => `opl_${randomBytes(KEY_BYTES).toString('base64url')}`

/** Makes a key. It is shown once, by the caller, and is nowhere afterwards. */
export const createApiKey = async (
  database: Database,
  {
    tenantId = DEFAULT_TENANT_ID,
    ...key
  }: { tenantId?: number; name: string; scopes: readonly Scope[]; expiresInDays: number | null },
): Promise<{ id: string; key: string }> => {
  const secret = newSecret()
  const id = await database.query((connection) =>
    insertApiKey(connection, { ...key, tenantId, keyHash: hashApiKey(secret) }),
  )
  return { id, key: secret }
}

/** A new secret for a key, shown once; the one before stays valid for the grace time. Null: there is no such valid key. */
export const renewApiKey = async (
  database: Database,
  choice: KeyChoice,
  { graceHours, expiresInDays }: { graceHours: number; expiresInDays: number | null },
): Promise<{ name: string; key: string; previousUntil: string } | null> => {
  const secret = newSecret()
  const rotated = await database.query((connection) =>
    rotateApiKey(connection, choice, { keyHash: hashApiKey(secret), graceHours, expiresInDays }),
  )
  return rotated && { ...rotated, key: secret }
}
