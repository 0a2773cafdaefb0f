import type { AuditEntry } from '../domain/audit.ts'
import { texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface ApiKeyRow {
  tenantId: number
  name: string
  keyHash: string
  scopes: string[]
}

/** The valid key with this hash (hex SHA-256). Its last use is noted to the minute: a busy key writes no more often. */
export const findApiKey = async ({ sql }: Connection, keyHash: string): Promise<ApiKeyRow | null> => {
  const [row] = await sql<ApiKeyRow & { isNoted: boolean }>`
    select tenant_id as "tenantId", name, key_hash as "keyHash", to_jsonb(scopes) as scopes,
      coalesce(last_used_at > now() - interval '1 minute', false) as "isNoted"
    from api_keys
    where key_hash = ${keyHash} and revoked_at is null and (expires_at is null or expires_at > now())`
  if (row === undefined) return null
  if (!row.isNoted) await sql`update api_keys set last_used_at = now() where key_hash = ${keyHash}`
  return { tenantId: row.tenantId, name: row.name, keyHash: row.keyHash, scopes: row.scopes }
}

export interface ApiKeyListRow {
  id: string
  tenantId: number
  name: string
  scopes: string[]
  createdAt: string
  expiresAt: string | null
  revokedAt: string | null
  lastUsedAt: string | null
}

/** Stores the hash (hex SHA-256) of a new key; the key itself is nowhere. Answers with its id. */
export const insertApiKey = async (
  { sql }: Pick<Connection, 'sql'>,
  key: { tenantId: number; name: string; keyHash: string; scopes: readonly string[]; expiresInDays: number | null },
): Promise<string> => {
  const [row] = await sql<{ id: string }>`
    insert into api_keys (tenant_id, name, key_hash, scopes, expires_at)
    values (${key.tenantId}, ${key.name}, ${key.keyHash}, ${texts(key.scopes)}::text[],
      now() + ${key.expiresInDays}::int * interval '1 day')
    returning id`
  if (!row) throw new Error('the key was not stored')
  return row.id
}

export const listApiKeys = ({ sql }: Connection): Promise<ApiKeyListRow[]> =>
  sql<ApiKeyListRow>`
    select id, tenant_id as "tenantId", name, to_jsonb(scopes) as scopes, created_at as "createdAt",
      expires_at as "expiresAt", revoked_at as "revokedAt", last_used_at as "lastUsedAt"
    from api_keys order by tenant_id, created_at`

/** False: there is no such key, or it was revoked before. */
export const revokeApiKey = async (
  { sql }: Connection,
  id: string,
  audit: AuditEntry | null = null,
): Promise<boolean> => {
  const rows = await sql`
    with k as (
      update api_keys set revoked_at = now() where id = ${id}::uuid and revoked_at is null returning tenant_id),
    audit as (
      insert into audit_entries select a.* from k, audit_row(k.tenant_id, ${auditJson(audit)}::text::jsonb) a)
    select 1 from k`
  return rows.length > 0
}
