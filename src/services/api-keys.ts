import { createHash, randomBytes } from 'node:crypto'
import type { AuditAuthor } from '../domain/audit.ts'
import { ConfigurationError } from '../domain/errors.ts'
import type { Scope } from '../domain/scope.ts'
import { insertApiKey, type KeyChoice, revokeApiKey, rotateApiKey } from '../storage/api-keys.ts'
import { recordAudit } from '../storage/audit.ts'
import type { Database } from '../storage/database.ts'
import { auditEntry, UNNAMED } from './audit.ts'
import { DEFAULT_TENANT_ID } from './principal.ts'

const KEY_BYTES = 32
/** As of everybody who acts: it stands with what the key does, and in the audit. */
const NAME_BYTES_MAX = 255

/** How keys are stored and looked up: the hex SHA-256. A random key needs no salt and no slow hash. */
export const hashApiKey = (key: string): string => createHash('sha256').update(key).digest('hex')

const newSecret = (): string => `opl_${randomBytes(KEY_BYTES).toString('base64url')}`

/**
 * Makes a key. It is shown once, by the caller, and is nowhere afterwards.
 * @throws ConfigurationError for a name that is empty or too long
 */
export const createApiKey = async (
  database: Database,
  {
    tenantId = DEFAULT_TENANT_ID,
    ...key
  }: { tenantId?: number; name: string; scopes: readonly Scope[]; expiresInDays: number | null },
  author: AuditAuthor = UNNAMED,
): Promise<{ id: string; key: string }> => {
  const bytes = Buffer.byteLength(key.name)
  if (bytes < 1 || bytes > NAME_BYTES_MAX) {
    throw new ConfigurationError(`--name: must have 1 to ${NAME_BYTES_MAX} bytes, and has ${bytes}`)
  }
  const secret = newSecret()
  const id = await database.transaction(async (connection) => {
    const id = await insertApiKey(connection, { ...key, tenantId, keyHash: hashApiKey(secret) })
    const details = {
      name: key.name,
      scopes: key.scopes.join(' '),
      expires_in_days: key.expiresInDays ?? 'never',
    }
    await recordAudit(connection.sql, tenantId, auditEntry(author, 'api_key.create', ['api_key', id], null, details))
    return id
  })
  return { id, key: secret }
}

/** A new secret for a key, shown once; the one before stays valid for the grace time. Null: there is no such valid key. */
export const renewApiKey = async (
  database: Database,
  choice: KeyChoice,
  { graceHours, expiresInDays }: { graceHours: number; expiresInDays: number | null },
  author: AuditAuthor = UNNAMED,
): Promise<{ name: string; key: string; previousUntil: string } | null> => {
  const secret = newSecret()
  const audit = auditEntry(author, 'api_key.rotate', ['api_key', choice.id], null, { grace_hours: graceHours })
  const rotated = await database.query((connection) =>
    rotateApiKey(connection, choice, { keyHash: hashApiKey(secret), graceHours, expiresInDays, audit }),
  )
  return rotated && { ...rotated, key: secret }
}

/** Ends a key. False: there is no such key, or it was ended before. */
export const endApiKey = (database: Database, choice: KeyChoice, author: AuditAuthor = UNNAMED): Promise<boolean> =>
  database.query((connection) =>
    revokeApiKey(connection, choice, auditEntry(author, 'api_key.revoke', ['api_key', choice.id], null)),
  )
