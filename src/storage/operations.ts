import { and, desc, eq, gt, inArray, lt, type SQL, sql } from 'drizzle-orm'
import type { Connection } from './connection.ts'
import { operations } from './schema.ts'

export interface OperationListFilters {
  status: readonly string[]
  type: string | null
  requestedBy: string | null
  labels: Readonly<Record<string, string>>
  createdAfter: string | null
  createdBefore: string | null
  replayOf: string | null
}

/** What the list can also be searched by; both are looked up by an index. */
export interface OperationSearch extends OperationListFilters {
  itemKey: string | null
  effectKey: string | null
}

export interface OperationListRow {
  id: string
  createdAt: string
}

/** What a filter of a tenant's operations says of the table `operations`. */
export const operationConditions = (tenantId: number, filters: OperationListFilters): SQL => {
  const isLabelled = Object.keys(filters.labels).length > 0
  const conditions = [
    eq(operations.tenantId, tenantId),
    filters.status.length > 0 ? inArray(operations.status, [...filters.status]) : undefined,
    filters.type === null ? undefined : eq(operations.type, filters.type),
    filters.requestedBy === null ? undefined : eq(operations.requestedBy, filters.requestedBy),
    filters.createdAfter === null ? undefined : gt(operations.createdAt, filters.createdAfter),
    filters.createdBefore === null ? undefined : lt(operations.createdAt, filters.createdBefore),
    filters.replayOf === null ? undefined : eq(operations.replayOf, filters.replayOf),
    // The second half lets the planner use the index, which leaves out operations without labels.
    isLabelled
      ? sql`${operations.labels} @> ${JSON.stringify(filters.labels)}::jsonb and ${operations.labels} <> '{}'`
      : undefined,
  ]
  return and(...conditions) ?? sql`false`
}

const holdsItem = (tenantId: number, itemKey: string): SQL =>
  sql`operations.id in (select i.operation_id from operation_items i where i.tenant_id = ${tenantId} and i.item_key = ${itemKey})`

const sentEffect = (tenantId: number, effectKey: string): SQL =>
  sql`operations.id = (select e.operation_id from effects e where e.tenant_id = ${tenantId} and e.effect_key = ${effectKey})`

/** Ids of a tenant's operations, newest first, behind `position`; at most `limit`. */
export const listOperationIds = async (
  { db }: Connection,
  tenantId: number,
  filters: OperationSearch,
  position: OperationListRow | null,
  limit: number,
): Promise<OperationListRow[]> => {
  const behind =
    position === null
      ? undefined
      : sql`(${operations.createdAt}, ${operations.id}) < (${position.createdAt}::timestamptz, ${position.id}::uuid)`
  return db
    .select({ id: operations.id, createdAt: operations.createdAt })
    .from(operations)
    .where(
      and(
        operationConditions(tenantId, filters),
        filters.itemKey === null ? undefined : holdsItem(tenantId, filters.itemKey),
        filters.effectKey === null ? undefined : sentEffect(tenantId, filters.effectKey),
        behind,
      ),
    )
    .orderBy(desc(operations.createdAt), desc(operations.id))
    .limit(limit)
}

export const operationExists = async ({ sql }: Connection, tenantId: number, id: string): Promise<boolean> => {
  const rows = await sql`select 1 from operations where tenant_id = ${tenantId} and id = ${id}`
  return rows.length > 0
}
