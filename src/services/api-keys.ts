import { createHash, randomBytes } from 'node:crypto'
import type { AuditAuthor } from '../domain/audit.ts'
import { insertApiKey, revokeApiKey } from '../storage/api-keys.ts'
import { recordAudit } from '../storage/audit.ts'
import type { Database } from '../storage/database.ts'
import { auditEntry } from './audit.ts'
import { DEFAULT_TENANT_ID, type Scope } from './principal.ts'

const KEY_BYTES = 32
/** Of a key, in the audit. */
const NAME_CHARS_MAX = 200

/** How keys are stored and looked up: the hex SHA-256. A random key needs no salt and no slow hash. */
export const hashApiKey = (key: string): string => createHash('sha256').update(key).digest('hex')

/** Makes a key. It is shown once, by the caller, and is nowhere afterwards. */
export const createApiKey = async (
  database: Database,
  key: { name: string; scopes: readonly Scope[]; expiresInDays: number | null },
  author: AuditAuthor,
): Promise<{ id: string; key: string }> => {
  const secret = `opl_${randomBytes(KEY_BYTES).toString('base64url')}`
  const id = await database.transaction(async (connection) => {
    const id = await insertApiKey(connection, { ...key, tenantId: DEFAULT_TENANT_ID, keyHash: hashApiKey(secret) })
    const details = {
      name: key.name.slice(0, NAME_CHARS_MAX),
      scopes: key.scopes.join(' '),
      expires_in_days: key.expiresInDays ?? 'never',
    }
    await recordAudit(
      connection.sql,
      DEFAULT_TENANT_ID,
      auditEntry(author, 'api_key.create', ['api_key', id], null, details),
    )
    return id
  })
  return { id, key: secret }
}

/** Ends a key. False: there is no such key, or it was ended before. */
export const endApiKey = (database: Database, id: string, author: AuditAuthor): Promise<boolean> =>
  database.query((connection) =>
    revokeApiKey(connection, id, auditEntry(author, 'api_key.revoke', ['api_key', id], null)),
  )
