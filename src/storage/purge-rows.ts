/** The rows of what is marked as purged (retention.ts), batch by batch. */
import { isBoundToChain, type PurgeStage } from '../domain/retention.ts'
import { texts } from './array-literal.ts'
import type { Connection, Sql } from './connection.ts'
import type { Database } from './database.ts'
import { ORD_MAX } from './items.ts'

/** Of each kind, deleted by one transaction: some tens of milliseconds of locks on rows that nobody waits for. */
const ROWS_PER_BATCH = 5_000

export interface MarkedKey {
  tenantId: number
  operationId: string
}

export interface PurgedRows {
  stage: PurgeStage
  rows: number
  /** Nothing is left to delete of this part. */
  done: boolean
}

/** Operations that are marked and have rows left, over all tenants. */
export const readMarked = ({ sql }: Connection, limit: number): Promise<MarkedKey[]> =>
  sql<MarkedKey>`
    select tenant_id as "tenantId", id as "operationId" from operations
    where purge_open order by tenant_id, id limit ${limit}`

/** Deletes one batch of a marked operation. Null: nothing is left to delete, or somebody else has it in hand. */
export const purgeRows = (
  database: Database,
  { tenantId, operationId }: MarkedKey,
  rowsMax = ROWS_PER_BATCH,
): Promise<PurgedRows | null> =>
  database.transaction(async ({ sql }) => {
    const [marked] = await sql<{ type: string; rootId: string; stage: PurgeStage }>`
      select type, root_id as "rootId", case when ledger_purged_at is null then 'items' else 'ledger' end as stage
      from operations where tenant_id = ${tenantId} and id = ${operationId}::uuid and purge_open
      for no key update skip locked`
    if (!marked) return null
    const { stage } = marked
    const operation = { tenantId, operationId, ...marked }
    const deleted = await (stage === 'items'
      ? deleteItems(sql, operation, rowsMax)
      : deleteLedger(sql, operation, rowsMax))
    const done = deleted.every((rows) => rows < rowsMax)
    if (done) {
      await sql`
        update operations set purge_open = false where tenant_id = ${tenantId} and id = ${operationId}::uuid`
    }
    return { stage, rows: deleted.reduce((sum, rows) => sum + rows, 0), done }
  })

type Operation = MarkedKey & { type: string; rootId: string }

/** Answers with how many rows of each kind; a kind with `limit` of them may have more. */
const deleteItems = async (sql: Sql, { tenantId, operationId }: Operation, limit: number): Promise<number[]> => {
  const retries = await sql`
    delete from item_retries
    where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and ord <= coalesce((
      select ord from item_retries where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid
      order by ord offset ${limit - 1} limit 1), ${ORD_MAX}::int)
    returning 1`
  const items = await sql`
    delete from operation_items
    where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and ord <= coalesce((
      select ord from operation_items where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid
      order by ord offset ${limit - 1} limit 1), ${ORD_MAX}::int)
    returning 1`
  return [retries.length, items.length]
}

/**
 * Dead letters of the whole chain first: where they stand is read from effects that are deleted here. Then entries by item, so
 * that a batch ends with the last entry of one; it has `limit` of them or a few more.
 */
const deleteLedger = async (sql: Sql, operation: Operation, limit: number): Promise<number[]> => {
  const { tenantId, operationId } = operation
  const chain = await sql<{ id: string }>`
    select id from operations where tenant_id = ${tenantId} and root_id = ${operation.rootId}::uuid`
  const operationIds = chain.map(({ id }) => id)
  // as an array each is looked up by its key; joined to them, the whole table may be read
  const letters = await sql`
    delete from dead_letters where tenant_id = ${tenantId} and id = any(array(
      select id from dead_letters where tenant_id = ${tenantId} and operation_id = any(${texts(operationIds)}::uuid[])
      limit ${limit} for update skip locked)) returning 1`
  if (letters.length === limit) return [letters.length]
  // a plan for any operation takes them for small, and would sort what is left of a large one for every batch
  await sql`select set_config('opledger.retention', 'on', true), set_config('plan_cache_mode', 'force_custom_plan', true)`
  const entries = await sql<{ effect_key: string }>`
    delete from ledger_entries
    where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and ord <= coalesce((
      select ord from ledger_entries where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid
      order by ord, seq offset ${limit - 1} limit 1), ${ORD_MAX}::int)
    returning effect_key`
  const keys = [...new Set(entries.map((entry) => entry.effect_key))]
  const bound = keys.filter((key) => isBoundToChain(key, { type: operation.type, operationIds }))
  // owned by the chain as well; and what may still happen is never forgotten
  await sql`
    delete from effects where tenant_id = ${tenantId} and effect_key = any(array(
      select effect_key from effects
      where tenant_id = ${tenantId} and effect_key = any(${texts(bound)}::text[])
        and operation_id = any(${texts(operationIds)}::uuid[]) and state in ('applied', 'absent', 'compensated')
      order by effect_key for update))`
  // one that is open, as evidence came after the mark, stays for a person
  const cases = await sql`
    delete from reconciliation_cases where tenant_id = ${tenantId} and id = any(array(
      select id from reconciliation_cases
      where tenant_id = ${tenantId} and operation_id = ${operationId}::uuid and closed_at is not null
      limit ${limit} for update skip locked)) returning 1`
  return [entries.length, cases.length]
}
