import { texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'
import { type DerivedOperation, type Insertion, insertDerived, ORDS_PER_STATEMENT } from './derived-operations.ts'
import type { CompensationScope, ReplayScope } from './preflights.ts'

export type RecordedPreflight = {
  id: string
  operationId: string
  factsHash: string
  expired: boolean
  /** The operation that it was used for. */
  usedBy: string | null
  /** The operation's version that the facts were read at. */
  version: number
} & ({ kind: 'replay'; scope: ReplayScope } | { kind: 'compensation'; scope: CompensationScope })

export const readPreflight = async (
  { sql }: Connection,
  tenantId: number,
  preflightId: string,
): Promise<RecordedPreflight | null> => {
  const [row] = await sql<RecordedPreflight>`
    select id, operation_id as "operationId", kind, scope, facts_hash as "factsHash", expires_at <= now() as expired,
      used_by as "usedBy", (facts ->> 'version')::float8 as version
    from replay_preflights where tenant_id = ${tenantId} and id = ${preflightId}::uuid`
  return row ?? null
}

export interface NewReplay extends DerivedOperation {
  scope: ReplayScope
  /** Null: items keep their effect keys. Otherwise these are made anew, of this and the item's key. */
  effectKeyPrefix: string | null
}

/** Makes the replay of a preflight; how, and why so, says derived-operations.ts. */
export const insertReplay = (
  database: Database,
  replay: NewReplay,
  ordsPerStatement = ORDS_PER_STATEMENT,
): Promise<Insertion> =>
  insertDerived(
    database,
    replay,
    { kind: 'replay', order: 'ascending', copy: (sql, range) => copyItems(sql, replay, range) },
    ordsPerStatement,
  )

/**
 * Copies the targets among the items [from, to) in their order, set-wise, the first one to the place `at`. Input and effect
 * key stay as they are: the key is what keeps an effect that was applied from being sent again. Answers with their number.
 */
const copyItems = async (
  sql: Sql,
  { tenantId, id, of, scope, effectKeyPrefix }: NewReplay,
  { from, to, at }: { from: number; to: number; at: number },
): Promise<number> => {
  const keys = scope.itemKeys === null ? null : texts(scope.itemKeys)
  const [copied] = await sql<{ items: number }>`
    with item as (
      select distinct on (ord) ord, state, failure_class
      from (
        select ord, seq, state, failure_class from ledger_entries
        where tenant_id = ${tenantId} and operation_id = ${of}::uuid and ord >= ${from} and ord < ${to}
          and state is not null
        union all
        select ord, null, 'unprocessed', null from operation_items
        where tenant_id = ${tenantId} and operation_id = ${of}::uuid and ord >= ${from} and ord < ${to}) known
      order by ord, seq desc nulls last),
    copied as (
      insert into operation_items (tenant_id, operation_id, ord, item_key, effect_key, input, input_hash)
      select i.tenant_id, ${id}::uuid, ${at} + row_number() over (order by i.ord) - 1, i.item_key,
        coalesce(${effectKeyPrefix}::text || i.item_key, i.effect_key), i.input, i.input_hash
      from item t join operation_items i
        on i.tenant_id = ${tenantId} and i.operation_id = ${of}::uuid and i.ord = t.ord and i.ord >= ${from} and i.ord < ${to}
      where t.state = any(${texts(scope.states)}::text[])
        and (t.state <> 'failed' or t.failure_class = any(${texts(scope.failureClasses)}::text[]))
        and (${keys}::text[] is null or i.item_key = any(${keys}::text[]))
      returning 1)
    select count(*)::int as items from copied`
  return copied?.items ?? 0
}
