import { CHECKPOINT_SCHEMA } from '../../domain/checkpoint.ts'
import { ints, texts } from '../array-literal.ts'
import type { Connection } from '../connection.ts'
import type { ClaimedShard } from './lease.ts'

/** A type as this worker can run it. */
export interface RunnableType {
  name: string
  version: number
  leaseMs: number
  /** A shard whose worker died runs its next items one by one, at least this many. */
  windowMax: number
  /** It can take effects back: shards of compensations are left to workers that can. */
  compensates: boolean
  /** Stands with the checkpoint from the claim on. */
  codeVersion: string
}

/** Tenants looked at in one claim, at most; the next claim of the turn goes on behind the last one. */
export const TENANTS_MAX = 64
/** No tenant has a greater id. */
export const LAST_TENANT = 2 ** 31 - 1

interface ClaimedRow {
  tenant_id: number
  operation_id: string
  shard: number
  type: string
  lease_epoch: string
  from_ord: number
  to_ord: number
  cursor: number
  traceparent: string | null
  steps: string[]
  claims: number
  claims_before: number
  isolate_until: number | null
  stop_requested: 'pause' | 'cancel' | null
  switched_off: boolean
  compensating: boolean
  doubt: { restoredMsAgo: number; predates: boolean } | null
}

const parse =
  (workerId: string) =>
  (row: ClaimedRow): ClaimedShard => ({
    tenantId: row.tenant_id,
    operationId: row.operation_id,
    shard: row.shard,
    workerId,
    epoch: Number(row.lease_epoch),
    type: row.type,
    fromOrd: row.from_ord,
    toOrd: row.to_ord,
    cursor: row.cursor,
    traceparent: row.traceparent,
    steps: row.steps,
    claims: row.claims,
    claimsBefore: row.claims_before,
    isolateUntil: row.isolate_until,
    stopRequested: row.stop_requested,
    switchedOff: row.switched_off,
    compensating: row.compensating,
    doubt: row.doubt,
  })

const columns = (
  types: readonly RunnableType[],
): { names: string; versions: string; leases: string; windows: string; compensators: string; codes: string } => ({
  names: texts(types.map((type) => type.name)),
  versions: ints(types.map((type) => type.version)),
  leases: ints(types.map((type) => type.leaseMs)),
  windows: ints(types.map((type) => type.windowMax)),
  compensators: texts(types.filter((type) => type.compensates).map((type) => type.name)),
  codes: texts(types.map((type) => type.codeVersion)),
})

/** What one claim has found, and where the next one goes on. */
export interface ReadyClaim {
  shards: ClaimedShard[]
  /** The last tenant that was served or looked at; null: no tenant is left behind it, up to `lastTenant`. */
  behind: number | null
}

/**
 * Claims up to `limit` due shards, at most `perTenant` of each tenant, beginning behind tenant `afterTenant` and up to
 * `lastTenant`: one index probe a tenant, so that a tenant with a million shards delays no other. The plain order served 1 of
 * 200 tenants. A tenant whose shards are ready, but not due or not for this worker, counts as looked at: `behind` says
 * where to go on, whatever was claimed.
 */
export const claimReadyShards = async (
  { sql }: Connection,
  claim: {
    workerId: string
    types: readonly RunnableType[]
    limit: number
    perTenant: number
    afterTenant: number
    lastTenant?: number
  },
): Promise<ReadyClaim> => {
  const { names, versions, leases, windows, compensators, codes } = columns(claim.types)
  const lastTenant = claim.lastTenant ?? LAST_TENANT
  const rows = await sql<(ClaimedRow | { operation_id: null }) & { behind: number | null }>`
    with recursive tenant (id, n) as (
      (select tenant_id, 1 from operation_shards
        where state = 'ready' and tenant_id > ${claim.afterTenant} and tenant_id <= ${lastTenant} order by tenant_id limit 1)
      union all
      select (select s.tenant_id from operation_shards s
        where s.state = 'ready' and s.tenant_id > t.id and s.tenant_id <= ${lastTenant} order by s.tenant_id limit 1), t.n + 1
      from tenant t where t.id is not null and t.n < ${TENANTS_MAX}),
    runnable as (
      select * from unnest(${names}::text[], ${versions}::int[], ${leases}::int[], ${windows}::int[], ${codes}::text[])
        as u (type, version, lease_ms, window_max, code_version)
      where not exists (select from operation_types p where p.name = u.type and p.paused_at is not null)),
    pick as materialized (
      select due.* from tenant t, lateral (
        select s.tenant_id, s.operation_id, s.shard, s.type, s.type_version, s.claims, s.priority, s.run_at
        from operation_shards s
        where s.tenant_id = t.id and s.state = 'ready' and s.run_at <= now()
          and (s.type, s.type_version) in (select type, version from runnable)
          and (not s.compensating or s.type = any(${compensators}::text[])) and s.schema_version <= ${CHECKPOINT_SCHEMA}
        order by s.priority desc, s.run_at
        limit ${claim.perTenant}
        for no key update skip locked) due
      limit ${claim.limit}),
    claimed as (
      update operation_shards s set
        state = 'leased', lease_owner = ${claim.workerId}::uuid, lease_epoch = s.lease_epoch + 1, claims = s.claims + 1,
        lease_ms = r.lease_ms, lease_expires_at = now() + r.lease_ms * interval '1 ms', version = s.version + 1,
        schema_version = ${CHECKPOINT_SCHEMA}, code_version = r.code_version
      from pick p join runnable r on r.type = p.type and r.version = p.type_version
      where s.tenant_id = p.tenant_id and s.operation_id = p.operation_id and s.shard = p.shard
      returning s.tenant_id, s.operation_id, s.shard, s.type, s.lease_epoch, s.from_ord, s.to_ord, s.cursor,
        (select o.traceparent from operations o where o.tenant_id = s.tenant_id and o.id = s.operation_id) as traceparent,
        to_jsonb(s.steps) as steps, s.claims, p.claims as claims_before, s.isolate_until,
        s.stop_requested, s.compensating, false as switched_off,
        case when exists (select from restores) then restore_doubt(s.tenant_id, s.operation_id) end as doubt)
    select c.*, walk.behind
    from (select case when count(*) = ${claim.limit} then max(tenant_id)
        else (select t.id from tenant t where t.n = ${TENANTS_MAX}) end as behind from pick) walk
      left join claimed c on true`
  return {
    shards: rows.filter((row) => row.operation_id !== null).map(parse(claim.workerId)),
    behind: rows[0]?.behind ?? null,
  }
}

/**
 * Takes over shards whose lease ran out, stopped ones too: their intents have to be explained before anybody can say that
 * the operation has stopped. So are those of a type that is switched off, which run nothing else. After a crash without
 * progress, or among isolated items, the next items run isolated: the worker may have died of one.
 *
 * `tenantId`: of this tenant only. `unexplained`: only where something is in flight, or a stop waits for its end.
 */
export const claimExpiredShards = async (
  { sql }: Connection,
  claim: {
    workerId: string
    types: readonly RunnableType[]
    limit: number
    tenantId?: number
    unexplained?: boolean
  },
): Promise<ClaimedShard[]> => {
  const { names, versions, leases, windows, compensators, codes } = columns(claim.types)
  const rows = await sql<ClaimedRow>`
    with runnable as (
      select * from unnest(${names}::text[], ${versions}::int[], ${leases}::int[], ${windows}::int[], ${codes}::text[])
        as u (type, version, lease_ms, window_max, code_version)),
    pick as materialized (
      select s.tenant_id, s.operation_id, s.shard, s.type, s.type_version, s.claims from operation_shards s
      where s.state = 'leased' and s.lease_expires_at < now()
        and (s.type, s.type_version) in (select type, version from runnable)
        and (not s.compensating or s.type = any(${compensators}::text[])) and s.schema_version <= ${CHECKPOINT_SCHEMA}
        and s.tenant_id = coalesce(${claim.tenantId ?? null}::int, s.tenant_id)
        and (${!claim.unexplained}::bool or s.in_flight > 0 or s.stop_requested is not null)
      limit ${claim.limit}
      for no key update skip locked)
    update operation_shards s set
      lease_owner = ${claim.workerId}::uuid, lease_epoch = s.lease_epoch + 1,
      claims = case when s.cursor < s.isolate_until then greatest(s.claims + 1, 2) else s.claims + 1 end,
      lease_ms = r.lease_ms, lease_expires_at = now() + r.lease_ms * interval '1 ms', version = s.version + 1,
      schema_version = ${CHECKPOINT_SCHEMA}, code_version = r.code_version,
      isolate_until = case when s.claims >= 1 then least(s.to_ord, greatest(s.isolate_until, s.cursor + r.window_max))
        else s.isolate_until end,
      stop_seen_at = case when s.stop_requested is null then null else coalesce(s.stop_seen_at, clock_timestamp()) end
    from pick p join runnable r on r.type = p.type and r.version = p.type_version
    where s.tenant_id = p.tenant_id and s.operation_id = p.operation_id and s.shard = p.shard
    returning s.tenant_id, s.operation_id, s.shard, s.type, s.lease_epoch, s.from_ord, s.to_ord, s.cursor,
      (select o.traceparent from operations o where o.tenant_id = s.tenant_id and o.id = s.operation_id) as traceparent,
      to_jsonb(s.steps) as steps, s.claims, p.claims as claims_before, s.isolate_until,
      s.stop_requested, s.compensating,
      exists (select from operation_types p where p.name = s.type and p.paused_at is not null) as switched_off,
      case when exists (select from restores) then restore_doubt(s.tenant_id, s.operation_id) end as doubt`
  return rows.map(parse(claim.workerId))
}

/** Whether shards of these types are due (of one tenant, where one is named): then one that has run for its turn gives itself back. */
export const othersWait = async (
  { sql }: Connection,
  types: readonly RunnableType[],
  tenantId: number | null = null,
): Promise<boolean> => {
  const { names, versions, compensators } = columns(types)
  const [row] = await sql<{ waits: boolean }>`
    select exists (
      select from operation_shards s where s.state = 'ready' and s.run_at <= now()
        and s.tenant_id = coalesce(${tenantId}::int, s.tenant_id)
        and (s.type, s.type_version) in (select * from unnest(${names}::text[], ${versions}::int[]))
        and (not s.compensating or s.type = any(${compensators}::text[])) and s.schema_version <= ${CHECKPOINT_SCHEMA}
        and not exists (select from operation_types p where p.name = s.type and p.paused_at is not null)) as waits`
  return row?.waits ?? false
}
