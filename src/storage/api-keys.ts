import type { Connection } from './database.ts'

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
