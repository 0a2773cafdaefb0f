/** Reads for exports of the ledger: where its parts begin, and their entries. */
import { sql as text } from 'drizzle-orm'
import type { ExportedEntry, LedgerPlace } from '../domain/ledger-export.ts'
import type { Connection } from './connection.ts'
import { ORD_MAX } from './items.ts'

export interface Period {
  from: string
  to: string
}

/** Null: no such operation. */
export const readExtent = async (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
): Promise<{ items: number; ledgerPurged: boolean } | null> => {
  const [row] = await sql<{ items: number; ledgerPurged: boolean }>`
    select items_total::float8 as items, ledger_purged_at is not null as "ledgerPurged"
    from operations where tenant_id = ${tenantId} and id = ${operationId}::uuid`
  return row ?? null
}

/**
 * The places at which parts of `itemsPerPart` items begin, over all operations that were at work in the period: created
 * before its end, and not over (with no later evidence either) before its begin. At most `limit` places.
 */
export const readPartStarts = async (
  { sql }: Connection,
  tenantId: number,
  period: Period,
  { itemsPerPart, limit }: { itemsPerPart: number; limit: number },
): Promise<LedgerPlace[]> => {
  const rows = await sql<{ id: string; ord: number }>`
    with o as (
      select id, items_total as items,
        (sum(items_total) over (order by id) - items_total)::bigint as before
      from operations o
      where tenant_id = ${tenantId} and items_total > 0 and started_at is not null and ledger_purged_at is null
        and created_at < ${period.to}::timestamptz and (completed_at is null or completed_at >= ${period.from}::timestamptz
          or exists (select from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id
            and s.last_progress_at >= ${period.from}::timestamptz)
          -- what a compensation writes into this ledger moves nothing of the operation itself
          or exists (select from operations c
            join operation_shards s on s.tenant_id = c.tenant_id and s.operation_id = c.id
            where c.tenant_id = o.tenant_id and c.compensates = o.id
              and s.last_progress_at >= ${period.from}::timestamptz)))
    select o.id, (k * ${itemsPerPart}::bigint - o.before)::int as ord
    from o, generate_series((o.before + ${itemsPerPart}::bigint - 1) / ${itemsPerPart}::bigint,
      (o.before + o.items - 1) / ${itemsPerPart}::bigint) k
    order by k limit ${limit}`
  return rows.map((row) => ({ operationId: row.id, ord: row.ord }))
}

/** Operations at work in the period, as in `readPartStarts`, in [from, to] and behind `after`; null is no bound. */
export const readPeriodOperations = async (
  { sql }: Connection,
  tenantId: number,
  period: Period,
  { from, to, after, limit }: { from: string | null; to: string | null; after: string | null; limit: number },
): Promise<string[]> => {
  const rows = await sql<{ id: string }>`
    select id from operations o
    where tenant_id = ${tenantId} and items_total > 0 and started_at is not null and ledger_purged_at is null
      and (${from}::uuid is null or id >= ${from}::uuid) and (${to}::uuid is null or id <= ${to}::uuid) and (${after}::uuid is null or id > ${after}::uuid)
      and created_at < ${period.to}::timestamptz and (completed_at is null or completed_at >= ${period.from}::timestamptz
        or exists (select from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id
          and s.last_progress_at >= ${period.from}::timestamptz)
        or exists (select from operations c
          join operation_shards s on s.tenant_id = c.tenant_id and s.operation_id = c.id
          where c.tenant_id = o.tenant_id and c.compensates = o.id and s.last_progress_at >= ${period.from}::timestamptz))
    order by id limit ${limit}`
  return rows.map((row) => row.id)
}

/**
 * Entries of one operation's items in [fromOrd, toOrd), behind `after`, by item and in the order of their writing; only those
 * observed in the period, where one is given. One operation at a time: its key gives the order without a sort. Never prepared,
 * as in ledger.ts.
 */
export const readEntries = (
  { db }: Connection,
  operation: { tenantId: number; operationId: string },
  bounds: {
    fromOrd: number
    toOrd: number | null
    period: Period | null
    after: { ord: number; seq: number } | null
  },
  limit: number,
): Promise<ExportedEntry[]> => {
  const { fromOrd, toOrd, period, after } = bounds
  return db.execute<ExportedEntry & Record<string, unknown>>(text`
    select operation_id as "operationId", ord, seq::float8 as seq, item_key as "itemKey", nullif(step, '') as step, attempt, state,
      failure_class as "failureClass", reason_code as "reasonCode", message, effect_key as "effectKey",
      input_hash as "inputHash", effect_ref as "effectRef", evidence_ref as "evidenceRef", source, actor,
      observed_at as "observedAt", worker_id as "workerId", code_version as "codeVersion"
    from ledger_entries
    where tenant_id = ${operation.tenantId} and operation_id = ${operation.operationId}::uuid
      and (ord, seq) > (${after?.ord ?? fromOrd}::int, ${after?.seq ?? -1}::bigint) and ord < ${toOrd ?? ORD_MAX}::int
      and observed_at >= coalesce(${period?.from ?? null}::timestamptz, '-infinity')
      and observed_at < coalesce(${period?.to ?? null}::timestamptz, 'infinity')
    -- not by the "seq" of the answer, of which no index is
    order by ledger_entries.ord, ledger_entries.seq limit ${limit}`)
}
