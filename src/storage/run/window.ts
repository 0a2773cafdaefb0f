import type { Json } from '../../domain/operation-type.ts'
import { stepKey } from '../../domain/steps.ts'
import { ints } from '../array-literal.ts'
import type { Connection } from '../connection.ts'
import type { SuspectCharge } from './end-lease.ts'
import type { Lease } from './lease.ts'

/** An item with what it takes to run it. */
export interface RunnableItem {
  ord: number
  key: string
  /** '' for an item without steps. */
  step: string
  /** Of the step, where the item has steps. */
  effectKey: string
  input: Json
}

interface ItemRow {
  ord: number
  item_key: string
  effect_key: string
  input: Json
}

const parse =
  (step: string) =>
  (row: ItemRow): RunnableItem => ({
    ord: row.ord,
    key: row.item_key,
    step,
    effectKey: stepKey(row.effect_key, step),
    input: row.input,
  })

/** Items at their first step. They are immutable: they may be read ahead of the claim, without a lock. */
export const readWindow = async (
  { sql }: Connection,
  lease: Lease & { steps: readonly string[] },
  from: number,
  to: number,
): Promise<RunnableItem[]> => {
  const rows = await sql<ItemRow>`
    select ord, item_key, effect_key, input from operation_items
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and ord >= ${from} and ord < ${to}
    order by ord`
  return rows.map(parse(lease.steps[0] ?? ''))
}

/** Items by their ords. At which step one waits is told by whoever claims its retry (`ClaimedRetry`). */
export const readItems = async (
  { sql }: Connection,
  lease: Lease,
  ords: readonly number[],
): Promise<RunnableItem[]> => {
  const rows = await sql<ItemRow>`
    -- one by one: of them all at once, a plan for any operation may read all items of this one
    select i.ord, i.item_key, i.effect_key, i.input from unnest(${ints(ords)}::int[]) as s (ord), lateral (
      select ord, item_key, effect_key, input from operation_items
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and ord = s.ord offset 0) i
    order by i.ord`
  return rows.map(parse(''))
}

/** Waiting items below `toOrd` whose time has come, longest due first. */
export const readDueRetries = async (
  { sql }: Connection,
  lease: Lease,
  limit: number,
  toOrd = Number.MAX_SAFE_INTEGER,
): Promise<number[]> => {
  const rows = await sql<{ ord: number }>`
    select ord from item_retries
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and run_at <= now() and ord < ${toOrd}::bigint
    order by run_at, ord limit ${limit}`
  return rows.map((row) => row.ord)
}

/** Intents that an earlier holder of the shard left behind: whether they were sent is not known. */
export const readOrphanedIntents = async (
  { sql }: Connection,
  lease: Lease,
  limit: number,
): Promise<{ ord: number; effectKey: string; send: number }[]> => {
  const rows = await sql<{ ord: number; effect_key: string; send: number }>`
    select ord, effect_key, send from effects
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and state = 'intent' and lease_epoch < ${lease.epoch}
    order by effect_key limit ${limit}`
  return rows.map((row) => ({ ord: row.ord, effectKey: row.effect_key, send: row.send }))
}

/** Intents under this very lease: after a claim whose reply was lost, those that were claimed and never sent. */
export const readOwnIntents = async (
  { sql }: Connection,
  lease: Lease,
): Promise<{ ord: number; effectKey: string; send: number; resend: boolean }[]> => {
  const rows = await sql<{ ord: number; effect_key: string; send: number; resend: boolean }>`
    select ord, effect_key, send, coalesce(was = 'uncertain', false) as resend from effects
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and state = 'intent' and lease_epoch = ${lease.epoch}`
  return rows.map((row) => ({ ord: row.ord, effectKey: row.effect_key, send: row.send, resend: row.resend }))
}

/** Where a shard stands, for a worker whose last statement may or may not have been committed. Null: the lease is lost. */
export const readPosition = async (
  { sql }: Connection,
  lease: Lease,
): Promise<{ cursor: number; stopRequested: 'pause' | 'cancel' | null } | null> => {
  const [row] = await sql<{ cursor: number; stop_requested: 'pause' | 'cancel' | null }>`
    select cursor, stop_requested from operation_shards
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and lease_epoch = ${lease.epoch} and state = 'leased'`
  return row ? { cursor: row.cursor, stopRequested: row.stop_requested } : null
}

/**
 * Charges the item that is about to run alone. The count is committed before the run, so a crash is counted too; it starts
 * anew with another item, and a finish by a living worker clears it. Null: the lease was lost.
 */
export const chargeSuspect = async ({ sql }: Connection, lease: Lease, ord: number): Promise<number | null> => {
  const [row] = await sql<{ suspect_crashes: number }>`
    update operation_shards set
      suspect_crashes = case when suspect_ord = ${ord} then suspect_crashes + 1 else 1 end, suspect_ord = ${ord}
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and lease_epoch = ${lease.epoch} and state = 'leased'
    returning suspect_crashes`
  return row?.suspect_crashes ?? null
}

/** Takes a charge of this lease back. Repeating it is safe where the count before is known. */
export const unchargeSuspect = async ({ sql }: Connection, lease: Lease, charge: SuspectCharge): Promise<void> => {
  await sql`
    update operation_shards set suspect_crashes = coalesce(${charge.before}::int, greatest(0, suspect_crashes - 1))
    where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      and lease_epoch = ${lease.epoch} and suspect_ord = ${charge.ord}`
}

/** Attempt of each waiting item whose effect key is free, or which is a resend of its own; the others stay where they are. */
export const readRetryAttempts = async (
  { sql }: Connection,
  lease: Lease,
  ords: readonly number[],
): Promise<Map<number, number>> => {
  const rows = await sql<{ ord: number; attempt: number }>`
    select r.ord, r.attempt from item_retries r
    where r.tenant_id = ${lease.tenantId} and r.operation_id = ${lease.operationId}::uuid and r.ord = any(${ints(ords)}::int[])
      and r.run_at <= now() and (r.reason = 'idempotent_resend' or not exists (
        select from effects e where e.tenant_id = r.tenant_id and e.effect_key = r.effect_key
          and e.state not in ('absent', 'compensated')))`
  return new Map(rows.map((row) => [row.ord, row.attempt]))
}
