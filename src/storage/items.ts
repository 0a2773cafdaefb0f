import { and, eq, gt, inArray, type SQL, sql } from 'drizzle-orm'
import type { FailureClass } from '../domain/failure.ts'
import type { ItemState } from '../domain/ledger.ts'
import type { Connection } from './connection.ts'

/** No item comes behind it: what PostgreSQL's integer holds. */
export const ORD_MAX = 2 ** 31 - 1

export interface ItemRow extends Record<string, unknown> {
  ord: number
  key: string
  state: ItemState | 'unprocessed'
  /** Where it waits or got to; null: it has no steps, or none has been begun. */
  step: string | null
  failureClass: FailureClass | null
  reasonCode: string | null
  attempt: number
  retryAt: string | null
  effectKey: string | null
  effectRef: string | null
  evidenceRef: string | null
  observedAt: string | null
}

export interface ItemListFilters {
  state: readonly string[]
  failureClass: readonly string[]
  key: string | null
}

/** States whose rows stand in the partial index `ledger_entries_not_applied`. */
const NOT_APPLIED = new Set(['skipped', 'failed', 'uncertain'])

/**
 * Items in order, each with its latest ledger entry and its retry. After a cancel no retry happens, so none is shown.
 * Asked for rare states only, the items are found through the index of entries that are not `applied`.
 */
export const listItemRows = async (
  { db }: Connection,
  tenantId: number,
  operationId: string,
  filters: ItemListFilters,
  afterOrd: number | null,
  limit: number,
): Promise<ItemRow[]> => {
  const isRare =
    (filters.state.length > 0 && filters.state.every((state) => NOT_APPLIED.has(state))) ||
    filters.failureClass.length > 0
  const conditions: (SQL | undefined)[] = [
    eq(sql`i.tenant_id`, tenantId),
    sql`i.operation_id = ${operationId}::uuid`,
    // what an upload has not finished does not exist
    sql`i.ord < o.items_total`,
    afterOrd === null || isRare ? undefined : gt(sql`i.ord`, afterOrd),
    filters.key === null ? undefined : eq(sql`i.item_key`, filters.key),
    filters.state.length > 0 ? inArray(sql`coalesce(l.state, 'unprocessed')`, [...filters.state]) : undefined,
    filters.failureClass.length > 0 ? inArray(sql`l.failure_class`, [...filters.failureClass]) : undefined,
  ]
  // the two OFFSETs keep the order of the joins: the planner knows averages only, and most operations are small
  const items = isRare
    ? sql`(
        select distinct e.ord from ledger_entries e
        where e.tenant_id = ${tenantId} and e.operation_id = ${operationId}::uuid and e.state <> 'applied'
          and e.ord > ${afterOrd ?? -1}
        order by e.ord offset 0) rare
      cross join lateral (
        select * from operation_items i
        where i.tenant_id = ${tenantId} and i.operation_id = ${operationId}::uuid and i.ord = rare.ord offset 0) i`
    : sql`operation_items i`
  return db.execute<ItemRow>(sql`
    select i.ord, i.item_key as key, coalesce(l.state, 'unprocessed') as state,
      coalesce(nullif(r.step, ''), nullif(l.step, '')) as step, l.failure_class as "failureClass",
      l.reason_code as "reasonCode", coalesce(l.attempt, 0) as attempt,
      case when o.cancel_requested_at is null then r.run_at end as "retryAt", i.effect_key as "effectKey",
      l.effect_ref as "effectRef", l.evidence_ref as "evidenceRef", l.observed_at as "observedAt"
    from ${items}
      join operations o on o.tenant_id = i.tenant_id and o.id = i.operation_id
      left join lateral (
        select * from ledger_entries e
        where e.tenant_id = i.tenant_id and e.operation_id = ${operationId}::uuid and e.ord = i.ord and e.state is not null
        order by e.seq desc limit 1) l on true
      left join item_retries r on r.tenant_id = i.tenant_id and r.operation_id = i.operation_id and r.ord = i.ord
    where ${and(...conditions)}
    order by ${isRare ? sql`rare.ord` : sql`i.ord`} limit ${limit}`)
}
