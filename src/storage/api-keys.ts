import type { AuditEntry, Audited } from '../domain/audit.ts'
import { ints, texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface ApiKeyRow {
  id: string
  tenantId: number
  name: string
  /** The one that was asked for: of the key, or of the one before its rotation. */
  keyHash: string
  scopes: string[]
  /** Its use was noted less than a minute ago. */
  isNoted: boolean
}

/** The valid key with this hash (hex SHA-256), or the one that was rotated from it within its grace time. */
export const findApiKey = async ({ sql }: Connection, keyHash: string): Promise<ApiKeyRow | null> => {
  const [row] = await sql<ApiKeyRow>`
    select id, tenant_id as "tenantId", name, case when key_hash = ${keyHash} then key_hash else previous_hash end as "keyHash",
      to_jsonb(scopes) as scopes, coalesce(last_used_at > now() - interval '1 minute', false) as "isNoted"
    from api_keys
    where (key_hash = ${keyHash} or (previous_hash = ${keyHash} and previous_until > now()))
      and revoked_at is null and (expires_at is null or expires_at > now())`
  return row ?? null
}

export interface ApiKeyId {
  tenantId: number
  id: string
}

/** That they were used just now. Each key is written at most once a minute, however many processes note it. */
export const noteKeysUsed = async ({ sql }: Connection, keys: readonly ApiKeyId[]): Promise<void> => {
  await sql`
    with due as (
      select k.tenant_id, k.id
      from unnest(${ints(keys.map(({ tenantId }) => tenantId))}::int[], ${texts(keys.map(({ id }) => id))}::uuid[])
        as u (tenant_id, id)
        join api_keys k on k.tenant_id = u.tenant_id and k.id = u.id
      where k.last_used_at is null or k.last_used_at < now() - interval '1 minute'
      for no key update of k skip locked)
    update api_keys k set last_used_at = now() from due d where k.tenant_id = d.tenant_id and k.id = d.id`
}

export interface ApiKeyListRow {
  id: string
  tenantId: number
  tenant: string
  name: string
  scopes: string[]
  createdAt: string
  expiresAt: string | null
  revokedAt: string | null
  lastUsedAt: string | null
  rotatedAt: string | null
  /** Until then the secret before the rotation is valid too; null: it is not. */
  previousUntil: string | null
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

/** Of all tenants: null. */
export const listApiKeys = ({ sql }: Connection, tenantId: number | null): Promise<ApiKeyListRow[]> =>
  sql<ApiKeyListRow>`
    select k.id, k.tenant_id as "tenantId", t.name as tenant, k.name, to_jsonb(k.scopes) as scopes,
      k.created_at as "createdAt", k.expires_at as "expiresAt", k.revoked_at as "revokedAt",
      k.last_used_at as "lastUsedAt", k.rotated_at as "rotatedAt",
      case when k.previous_until > now() then k.previous_until end as "previousUntil"
    from api_keys k join tenants t on t.id = k.tenant_id
    where k.tenant_id = coalesce(${tenantId}::int, k.tenant_id) order by k.tenant_id, k.created_at`

/** A key by its id, of one tenant or (null) of any. */
export interface KeyChoice {
  id: string
  tenantId: number | null
}

/**
 * Gives a valid key a new secret; the one before is valid for the grace time, the one before that no more. Null: there is no
 * such valid key.
 */
export const rotateApiKey = async (
  { sql }: Connection,
  { id, tenantId }: KeyChoice,
  change: Audited & { keyHash: string; graceHours: number; expiresInDays: number | null },
): Promise<{ name: string; previousUntil: string } | null> => {
  const [row] = await sql<{ name: string; previousUntil: string }>`
    with k as (
      update api_keys set key_hash = ${change.keyHash}, previous_hash = key_hash, rotated_at = now(),
        previous_until = now() + ${change.graceHours}::int * interval '1 hour',
        expires_at = coalesce(now() + ${change.expiresInDays}::int * interval '1 day', expires_at)
      where id = ${id}::uuid and tenant_id = coalesce(${tenantId}::int, tenant_id)
        and revoked_at is null and (expires_at is null or expires_at > now())
      returning tenant_id, name, previous_until),
    audit as (
      insert into audit_entries select a.* from k, audit_row(k.tenant_id, ${auditJson(change.audit)}::text::jsonb) a)
    select name, previous_until as "previousUntil" from k`
  return row ?? null
}

/** Ends a key and the secret before it. False: there is no such key, or it was revoked before. */
export const revokeApiKey = async (
  { sql }: Connection,
  { id, tenantId }: KeyChoice,
  audit: AuditEntry | null = null,
): Promise<boolean> => {
  const rows = await sql`
    with k as (
      update api_keys set revoked_at = now()
      where id = ${id}::uuid and tenant_id = coalesce(${tenantId}::int, tenant_id) and revoked_at is null
      returning tenant_id),
    audit as (
      insert into audit_entries select a.* from k, audit_row(k.tenant_id, ${auditJson(audit)}::text::jsonb) a)
    select 1 from k`
  return rows.length > 0
}
