import type { AuditEntry } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'

export interface TenantRow {
  id: number
  name: string
  createdAt: string
}

export const findTenantId = async ({ sql }: Connection, name: string): Promise<number | null> => {
  const [row] = await sql<{ id: number }>`select id from tenants where name = ${name}`
  return row?.id ?? null
}

/** Null: the name is taken, or another tenant was made at the same moment. */
export const insertTenant = async (
  { sql }: Connection,
  name: string,
  audit: AuditEntry | null = null,
): Promise<number | null> => {
  const [row] = await sql<{ id: number }>`
    with t as (
      insert into tenants (id, name) select max(id) + 1, ${name}::text from tenants on conflict do nothing returning id),
    audit as (insert into audit_entries select a.* from t, audit_row(t.id, ${auditJson(audit)}::text::jsonb) a)
    select id from t`
  return row?.id ?? null
}

export const listTenants = ({ sql }: Connection): Promise<TenantRow[]> =>
  sql<TenantRow>`select id, name, created_at as "createdAt" from tenants order by id`
