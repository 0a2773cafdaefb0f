/**
 * What stands around in one tenant, or (`tenantId` null) in the whole service, over all of them. Each statement reads a bounded
 * number of rows; a count that reaches its limit is a floor. The two are different statements, each with a plan of its own: one
 * that may be of any tenant is planned as if it were of all.
 */
import { type SQL, sql as text } from 'drizzle-orm'
import type { Connection } from './connection.ts'

const OPERATIONS_MAX = 50_000
const SHARDS_MAX = 50_000
const CASES_MAX = 50_000
const DEAD_LETTERS_MAX = 50_000
const WEBHOOKS_MAX = 50_000

export interface TypeGauges {
  type: string
  shardsReady: number
  shardsLeased: number
  /** Of the leased ones: their lease ran out, and nobody has taken them over yet. */
  leasesExpired: number
  /** Since the oldest shard that nobody works on was due; 0: nothing waits. */
  oldestWaitingSeconds: number
  uncertainItems: number
  casesOpen: number
  /** Open ones. */
  deadLetters: number
}

/** What holds a table to the tenant. */
const held = (tenantId: number | null): SQL => (tenantId === null ? text`true` : text`tenant_id = ${tenantId}`)

/** Types with something standing around; the others are missing. */
export const readTypeGauges = async ({ db }: Connection, tenantId: number | null): Promise<TypeGauges[]> => {
  const isIts = held(tenantId)
  return db.execute<TypeGauges & Record<string, unknown>>(text`
    with shard as (
      (select type, state, run_at as since from operation_shards where state = 'ready' and ${isIts}
        limit ${SHARDS_MAX})
      union all
      (select type, state, lease_expires_at from operation_shards where state = 'leased' and ${isIts}
        limit ${SHARDS_MAX})),
    part as (
      select type, count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'leased') as leased,
        count(*) filter (where state = 'leased' and since <= now()) as expired,
        max(extract(epoch from now() - since)) filter (where since <= now()) as waiting,
        0::bigint as uncertain, 0::bigint as cases, 0::bigint as dead
      from shard group by type
      union all
      select s.type, 0, 0, 0, null, sum(s.uncertain)::bigint, 0, 0
      from (
        select tenant_id, id from operations where completed_at is null and ${isIts}
        limit ${OPERATIONS_MAX}) o
        -- by their key: a join may read the shards of all that ever ran
        cross join lateral (
          select type, uncertain from operation_shards s where s.tenant_id = o.tenant_id and s.operation_id = o.id offset 0) s
      group by s.type
      union all
      select type, 0, 0, 0, null, 0, count(*), 0
      from (
        select type from reconciliation_cases where closed_at is null and ${isIts}
        limit ${CASES_MAX}) c
      group by type
      union all
      select type, 0, 0, 0, null, 0, 0, count(*)
      from (
        select type from dead_letter_standings
        where closed_as is null and status = 'open' and ${isIts}
        limit ${DEAD_LETTERS_MAX}) d
      group by type)
    select type, sum(ready)::float8 as "shardsReady", sum(leased)::float8 as "shardsLeased",
      sum(expired)::float8 as "leasesExpired",
      coalesce(max(waiting), 0)::float8 as "oldestWaitingSeconds", sum(uncertain)::float8 as "uncertainItems",
      sum(cases)::float8 as "casesOpen", sum(dead)::float8 as "deadLetters"
    from part group by type`)
}

/** Open operations per status. */
export const readOpenOperations = async ({ db }: Connection, tenantId: number | null): Promise<Map<string, number>> => {
  const rows = await db.execute<{ status: string; n: number }>(text`
    select status, count(*)::float8 as n
    from (
      select status from operations where completed_at is null and ${held(tenantId)}
      limit ${OPERATIONS_MAX}) o
    group by status`)
  return new Map(rows.map((row) => [row.status, row.n]))
}

/** Workers whose last two heartbeats did not both fail to come. */
export const readWorkersLive = async ({ sql }: Connection): Promise<number> => {
  const [row] = await sql<{ n: number }>`
    select count(*)::float8 as n from workers
    where state <> 'gone' and last_seen_at > now() - 2 * beat_ms * interval '1 ms'`
  return row?.n ?? 0
}

/**
 * Age of the oldest transaction that keeps dead rows of this database from being removed: of sessions, as far as the role may see
 * them (its own; with pg_read_all_stats all), and of prepared transactions. 0: none.
 */
export const readOldestTransactionSeconds = async ({ sql }: Connection): Promise<number> => {
  const [row] = await sql<{ seconds: number }>`
    select coalesce(max(extract(epoch from clock_timestamp() - since)), 0)::float8 as seconds
    from (
      select xact_start as since from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
        and (backend_xmin is not null or backend_xid is not null)
      union all
      select prepared from pg_prepared_xacts where database = current_database()) t`
  return row?.seconds ?? 0
}

/** Deliveries that have not arrived, per state. */
export const readWebhookDeliveries = async (
  { db }: Connection,
  tenantId: number | null,
): Promise<Map<string, number>> => {
  const isIts = held(tenantId)
  const rows = await db.execute<{ state: string; n: number }>(text`
    select state, count(*)::float8 as n
    from (
      (select state from webhook_deliveries where state = 'pending' and ${isIts}
        limit ${WEBHOOKS_MAX})
      union all
      (select state from webhook_deliveries where state in ('failed', 'disabled') and ${isIts}
        limit ${WEBHOOKS_MAX})) d
    group by state`)
  return new Map(rows.map((row) => [row.state, row.n]))
}

/** Tenants that ever had an operation, lowest id first, `limit` at most: one index probe each. */
export const readTenantIds = async ({ sql }: Connection, limit: number): Promise<number[]> => {
  const rows = await sql<{ id: number }>`
    with recursive tenant (id) as (
      (select tenant_id from operations order by tenant_id limit 1)
      union all
      select (select o.tenant_id from operations o where o.tenant_id > t.id order by o.tenant_id limit 1)
      from tenant t where t.id is not null)
    select id from tenant where id is not null limit ${limit}`
  return rows.map(({ id }) => id)
}
