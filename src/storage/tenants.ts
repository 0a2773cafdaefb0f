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
export const insertTenant = async ({ sql }: Connection, name: string): Promise<number | null> => {
  const [row] = await sql<{ id: number }>`
    insert into tenants (id, name) select max(id) + 1, ${name}::text from tenants on conflict do nothing returning id`
  return row?.id ?? null
}

export const listTenants = ({ sql }: Connection): Promise<TenantRow[]> =>
  sql<TenantRow>`select id, name, created_at as "createdAt" from tenants order by id`
