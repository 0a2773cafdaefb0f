import type { Connection } from './connection.ts'

export interface WorkerRow {
  id: string
  host: string
  pid: number
  state: string
  startedAt: string
  lastSeenAt: string
  codeVersion: string
  leases: number
}

const WORKERS_MAX = 1_000

/**
 * Workers that serve the tenant, seen within a day, the newest first, with the leases that they have of it. Two missed
 * heartbeats make one `gone`, whatever it last said of itself.
 */
export const listWorkerRows = ({ sql }: Connection, tenantId: number): Promise<WorkerRow[]> =>
  sql<WorkerRow>`
    select w.id, w.host, w.pid,
      case when w.last_seen_at < now() - 2 * w.beat_ms * interval '1 ms' then 'gone' else w.state end as state,
      w.started_at as "startedAt", w.last_seen_at as "lastSeenAt", w.code_version as "codeVersion",
      coalesce(s.leases, 0) as leases
    from workers w
      left join (select lease_owner, count(*)::int as leases from operation_shards
        where tenant_id = ${tenantId} and state = 'leased' group by lease_owner) s on s.lease_owner = w.id
    where w.last_seen_at > now() - interval '24 hours' and coalesce(w.tenant_id, ${tenantId}) = ${tenantId}
    order by w.started_at desc, w.id limit ${WORKERS_MAX}`
