import { sql } from 'drizzle-orm'
import type { LedgerEntry } from '../domain/ledger-entry.ts'
import type { Connection } from './connection.ts'

/**
 * Entries by item, then in the order of their writing, behind `(ord, seq)`. Never prepared: a plan for any operation cannot know
 * its month, takes it for small, and sorts all that is left of a large one for every page.
 */
export const listLedgerRows = (
  { db }: Connection,
  tenantId: number,
  operationId: string,
  after: { ord: number; seq: number } | null,
  limit: number,
): Promise<LedgerEntry[]> =>
  db.execute<LedgerEntry & Record<string, unknown>>(sql`
    select ord, seq::float8 as seq, item_key as "itemKey", nullif(step, '') as step, attempt, state, failure_class as "failureClass",
      reason_code as "reasonCode", message, effect_key as "effectKey", input_hash as "inputHash", effect_ref as "effectRef",
      evidence_ref as "evidenceRef", source, actor, observed_at as "observedAt", worker_id as "workerId",
      code_version as "codeVersion"
    from ledger_entries
    where tenant_id = ${tenantId} and operation_id = ${operationId}
      and (ord, seq) > (${after?.ord ?? -1}::int, ${after?.seq ?? -1}::bigint)
    -- not by the "seq" of the answer, of which no index is
    order by ledger_entries.ord, ledger_entries.seq limit ${limit}`)
