/**
 * What the api reads on behalf of a holder that is somewhere else (docs/worker-api.md). Such a holder keeps nothing in our
 * memory between two calls, so where it stands is read here; what it may do is decided by the statements beside this file.
 */
import { ints, texts } from '../array-literal.ts'
import type { Connection } from '../connection.ts'
import type { Database } from '../database.ts'
import type { ClaimedShard, Lease, ShardKey } from './lease.ts'

/** A shard as its holder finds it, with what is left of the lease. */
export interface Holding {
  cursor: number
  toOrd: number
  steps: readonly string[]
  isolateUntil: number | null
  stopRequested: 'pause' | 'cancel' | null
  inFlight: number
  /** The type is switched off: nothing new is begun. */
  switchedOff: boolean
  leaseLeftMs: number
  doubt: ClaimedShard['doubt']
  traceparent: string | null
}

/** Null: somebody else holds the shard, or nobody does. A lease that ran out and was not taken over stands. */
export const readHolding = async ({ sql }: Connection, lease: Lease): Promise<Holding | null> => {
  const [row] = await sql<Holding>`
    select s.cursor, s.to_ord as "toOrd", to_jsonb(s.steps) as steps, s.isolate_until as "isolateUntil",
      s.stop_requested as "stopRequested", s.in_flight as "inFlight",
      exists (select from operation_types p where p.name = s.type and p.paused_at is not null) as "switchedOff",
      extract(epoch from s.lease_expires_at - clock_timestamp())::float8 * 1000 as "leaseLeftMs",
      case when exists (select from restores) then restore_doubt(s.tenant_id, s.operation_id) end as doubt,
      (select o.traceparent from operations o where o.tenant_id = s.tenant_id and o.id = s.operation_id) as traceparent
    from operation_shards s
    where s.tenant_id = ${lease.tenantId} and s.operation_id = ${lease.operationId}::uuid and s.shard = ${lease.shard}
      and s.state = 'leased' and s.lease_epoch = ${lease.epoch} and s.lease_owner = ${lease.workerId}::uuid`
  return row ?? null
}

/**
 * Goes on with a lease under the next epoch, with all that is in flight in it. Whatever was asked for under the old one and is
 * still on its way claims nothing any more, and speaks of nothing that is handed out from now on. Null: the lease is lost.
 */
export const advanceEpoch = async (database: Database, lease: Lease): Promise<number | null> => {
  const [row] = await database.lockThenWork((sql) => ({
    lock: sql`
      select 1 from operation_shards
      where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
      for no key update`,
    work: sql<{ lease_epoch: string }>`
      with mine as (
        update operation_shards set lease_epoch = lease_epoch + 1, version = version + 1
        where tenant_id = ${lease.tenantId} and operation_id = ${lease.operationId}::uuid and shard = ${lease.shard}
          and state = 'leased' and lease_epoch = ${lease.epoch} and lease_owner = ${lease.workerId}::uuid
        returning tenant_id, operation_id, shard, lease_epoch),
      held as materialized (
        select e.tenant_id, e.effect_key, m.lease_epoch
        from mine m join effects e on e.tenant_id = m.tenant_id and e.operation_id = m.operation_id and e.shard = m.shard
        where e.state = 'intent' and e.lease_epoch = ${lease.epoch}
        order by e.effect_key for no key update of e),
      moved as (
        update effects e set lease_epoch = h.lease_epoch from held h
        where e.tenant_id = h.tenant_id and e.effect_key = h.effect_key)
      select lease_epoch from mine`,
  }))
  return row ? Number(row.lease_epoch) : null
}

/** The leases of a worker, with their types. */
export const readLeasesOf = async (
  { sql }: Connection,
  { tenantId, workerId }: { tenantId: number; workerId: string },
): Promise<(Lease & { type: string })[]> => {
  const rows = await sql<{ operation_id: string; shard: number; lease_epoch: string; type: string }>`
    select operation_id, shard, lease_epoch, type from operation_shards
    where tenant_id = ${tenantId} and state = 'leased' and lease_owner = ${workerId}::uuid
    order by operation_id, shard`
  return rows.map((row) => ({
    tenantId,
    operationId: row.operation_id,
    shard: row.shard,
    epoch: Number(row.lease_epoch),
    workerId,
    type: row.type,
  }))
}

/** An effect of a shard as a result of it is to be read. */
export interface SentEffect {
  ord: number
  key: string
  effectKey: string
  /** The latest one. */
  send: number
  attempt: number
  inFlight: boolean
  /** In flight as the repeat of a send whose outcome is unknown. */
  resend: boolean
}

/**
 * Effects that this shard has or had, by key; unknown keys are missing. One that another operation has claimed since is known by
 * this operation's ledger: what its holder saw is evidence for an older send.
 */
export const readSentEffects = async (
  { sql }: Connection,
  shard: ShardKey,
  effectKeys: readonly string[],
): Promise<Map<string, SentEffect>> => {
  const rows = await sql<SentEffect>`
    with known as materialized (
      select * from effects where tenant_id = ${shard.tenantId} and effect_key = any(${texts(effectKeys)}::text[]))
    select ord, item_key as key, effect_key as "effectKey", send, attempt, state = 'intent' as "inFlight",
      state = 'intent' and was is not distinct from 'uncertain' as resend
    from known where operation_id = ${shard.operationId}::uuid and shard = ${shard.shard}
    union all
    (select distinct on (l.effect_key) l.ord, l.item_key, l.effect_key, k.send, l.attempt, false, false
      from known k join ledger_entries l on l.tenant_id = k.tenant_id and l.operation_id = ${shard.operationId}::uuid
        and l.effect_key = k.effect_key
      where k.operation_id <> ${shard.operationId}::uuid
      order by l.effect_key, l.seq desc)`
  return new Map(rows.map((row) => [row.effectKey, row]))
}

/**
 * Which of these leases have an item in hand that should have been reported `stallMs` ago: their holder beats, and does not
 * work. Answers with their places in the list.
 */
export const findStalled = async (
  { sql }: Connection,
  leases: readonly (Lease & { stallMs: number })[],
): Promise<Set<number>> => {
  const rows = await sql<{ place: number }>`
    select u.place::int as place
    from unnest(${ints(leases.map((lease) => lease.tenantId))}::int[],
      ${texts(leases.map((lease) => lease.operationId))}::uuid[], ${ints(leases.map((lease) => lease.shard))}::int[],
      ${ints(leases.map((lease) => lease.epoch))}::bigint[], ${ints(leases.map((lease) => lease.stallMs))}::bigint[])
      with ordinality as u (t, o, s, e, stall_ms, place)
    where exists (
      select from effects x
      where x.tenant_id = u.t and x.operation_id = u.o and x.shard = u.s and x.state = 'intent' and x.lease_epoch = u.e
        and x.send_by < now() - u.stall_ms * interval '1 ms')`
  return new Set(rows.map((row) => row.place - 1))
}
