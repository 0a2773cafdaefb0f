import type { LedgerEntry } from '../domain/ledger-entry.ts'
import type { Connection } from './connection.ts'

export type HistoryKind = 'accepted' | 'ledger_entry' | 'dead_letter' | 'dead_letter_discarded' | 'dead_letter_resolved'

type EntryColumns = { [Column in keyof LedgerEntry]: LedgerEntry[Column] | null }

/** What happened to an item; the columns of the ledger are filled for kind `ledger_entry`. */
export interface HistoryRow extends EntryColumns {
  kind: HistoryKind
  at: string
  rank: number
  position: number
  operationId: string
  replayOf: string | null
  compensates: string | null
  /** Who accepted, reported or closed it, and why. */
  by: string | null
  reason: string | null
  deadLetterId: string | null
  fingerprint: string | null
}

export interface HistoryPosition {
  at: string
  rank: number
  operationId: string
  position: number
}

/**
 * The lineage of an item, oldest first: everything that any operation of the replay chain, from its root to the last
 * replay, says of the item with this key. An operation whose items are purged is asked through its ledger.
 *
 * A dead letter is written in the statement of its last entry, in no order; here it stands behind it.
 */
export const listHistoryRows = (
  { sql }: Connection,
  key: { tenantId: number; operationId: string; itemKey: string },
  after: HistoryPosition | null,
  limit: number,
): Promise<HistoryRow[]> =>
  sql<HistoryRow>`
    with run as materialized (
      select o.tenant_id, o.id, o.created_at, o.requested_by, o.reason, o.replay_of, o.compensates, i.ord
      from operations asked join operations o on o.tenant_id = asked.tenant_id and o.root_id = asked.root_id,
        lateral (
          (select ord from operation_items
            where tenant_id = o.tenant_id and operation_id = o.id and item_key = ${key.itemKey} and ord < o.items_total)
          union all
          (select ord from ledger_entries l
            where l.tenant_id = o.tenant_id and l.operation_id = o.id and l.item_key = ${key.itemKey}
              and o.items_purged_at is not null
            limit 1)
          limit 1) i
      where asked.tenant_id = ${key.tenantId} and asked.id = ${key.operationId}::uuid),
    letter as materialized (
      select d.*, r.replay_of, r.compensates
      from run r join dead_letters d on d.tenant_id = r.tenant_id and d.operation_id = r.id and d.ord = r.ord),
    event as (
      select 'ledger_entry' as kind, l.observed_at as at, 1 as rank, l.seq::float8 as position, r.id as operation_id,
        r.replay_of, r.compensates, l.actor as by, null::text as reason, null::uuid as dead_letter_id, null::text as fingerprint, l.ord,
        l.seq::float8 as seq, l.item_key, l.step, l.attempt, l.state, l.failure_class, l.reason_code, l.message,
        l.effect_key, l.input_hash, l.effect_ref, l.evidence_ref, l.source, l.actor, l.observed_at, l.worker_id,
        l.code_version
      from run r join ledger_entries l on l.tenant_id = r.tenant_id and l.operation_id = r.id and l.ord = r.ord
      union all
      select 'accepted', created_at, 0, 0, id, replay_of, compensates, requested_by, reason, null, null, ord,
        null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
      from run
      union all
      select 'dead_letter', greatest(d.created_at, (
          select max(l.observed_at) from ledger_entries l
          where l.tenant_id = d.tenant_id and l.operation_id = d.operation_id and l.ord = d.ord and l.attempt = d.attempts
            and l.state = 'failed')),
        2, 0, d.operation_id, d.replay_of, d.compensates, null, null, d.id, d.fingerprint, d.ord,
        null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
      from letter d
      union all
      select 'dead_letter_' || d.closed_as, d.closed_at, 3, 0, d.operation_id, d.replay_of, d.compensates, d.closed_by, d.close_reason, d.id,
        d.fingerprint, d.ord,
        null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
      from letter d where d.closed_as is not null)
    select kind, at, rank, position, operation_id as "operationId", replay_of as "replayOf", compensates,
      by, reason, dead_letter_id as "deadLetterId", fingerprint, ord, seq, item_key as "itemKey", nullif(step, '') as step,
      attempt, state,
      failure_class as "failureClass", reason_code as "reasonCode", message, effect_key as "effectKey",
      input_hash as "inputHash", effect_ref as "effectRef", evidence_ref as "evidenceRef", source, actor,
      observed_at as "observedAt", worker_id as "workerId", code_version as "codeVersion"
    from event
    where ${after === null}
      or (at, rank, operation_id, position) > (${after?.at ?? '-infinity'}::timestamptz, ${after?.rank ?? 0}::int,
        ${after?.operationId ?? null}::uuid, ${after?.position ?? 0}::float8)
    order by at, rank, operation_id, position limit ${limit}`

/**
 * Whether the operation itself has, or had, an item with this key. `items-purged`: its ledger has none, and who else was among
 * its items is not known any more.
 */
export const findItemPlace = async (
  { sql }: Connection,
  key: { tenantId: number; operationId: string; itemKey: string },
): Promise<'no-operation' | 'no-item' | 'found' | 'items-purged' | 'ledger-purged'> => {
  const [row] = await sql<{ known: boolean; items_purged: boolean; ledger_purged: boolean }>`
    select o.items_purged_at is not null as items_purged, o.ledger_purged_at is not null as ledger_purged,
      case when o.items_purged_at is null then exists (
        select from operation_items i where i.tenant_id = o.tenant_id and i.operation_id = o.id
          and i.item_key = ${key.itemKey} and i.ord < o.items_total)
      else exists (
        select from ledger_entries l where l.tenant_id = o.tenant_id and l.operation_id = o.id
          and l.item_key = ${key.itemKey}) end as known
    from operations o where o.tenant_id = ${key.tenantId} and o.id = ${key.operationId}::uuid`
  if (row === undefined) return 'no-operation'
  if (row.ledger_purged) return 'ledger-purged'
  if (row.known) return 'found'
  return row.items_purged ? 'items-purged' : 'no-item'
}
