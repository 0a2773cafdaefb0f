import { and, asc, eq, getTableColumns, isNotNull, isNull, type SQL, sql } from 'drizzle-orm'
import type { Connection } from './connection.ts'
import { reconciliationCases } from './schema.ts'

export type CaseRow = typeof reconciliationCases.$inferSelect

export interface CaseListFilters {
  operationId: string | null
  type: string | null
  /** `open`, `resolved`; none or both: all. */
  status: readonly string[]
  itemKey: string | null
}

/** An open case is about the send that is in doubt by now: a declared resend may have followed the one that it was opened for. */
const columns = {
  ...getTableColumns(reconciliationCases),
  send: sql<number>`coalesce((
    select e.send from effects e
    where e.tenant_id = reconciliation_cases.tenant_id and e.effect_key = reconciliation_cases.effect_key
      and e.state = 'uncertain' and reconciliation_cases.closed_at is null), reconciliation_cases.send)`,
}

/** Oldest first, behind `position`. */
export const listCaseRows = async (
  { db }: Connection,
  tenantId: number,
  filters: CaseListFilters,
  position: { openedAt: string; id: string } | null,
  limit: number,
): Promise<CaseRow[]> => {
  const wanted = new Set(filters.status)
  const conditions: (SQL | undefined)[] = [
    eq(reconciliationCases.tenantId, tenantId),
    filters.operationId === null ? undefined : eq(reconciliationCases.operationId, filters.operationId),
    filters.type === null ? undefined : eq(reconciliationCases.type, filters.type),
    filters.itemKey === null ? undefined : eq(reconciliationCases.itemKey, filters.itemKey),
    wanted.has('open') && !wanted.has('resolved') ? isNull(reconciliationCases.closedAt) : undefined,
    wanted.has('resolved') && !wanted.has('open') ? isNotNull(reconciliationCases.closedAt) : undefined,
    position === null
      ? undefined
      : sql`(${reconciliationCases.openedAt}, ${reconciliationCases.id}) > (${position.openedAt}::timestamptz, ${position.id}::uuid)`,
  ]
  return db
    .select(columns)
    .from(reconciliationCases)
    .where(and(...conditions))
    .orderBy(asc(reconciliationCases.openedAt), asc(reconciliationCases.id))
    .limit(limit)
}

export const findCaseRow = async ({ db }: Connection, tenantId: number, id: string): Promise<CaseRow | null> => {
  const [row] = await db
    .select(columns)
    .from(reconciliationCases)
    .where(and(eq(reconciliationCases.tenantId, tenantId), eq(reconciliationCases.id, id)))
  return row ?? null
}
