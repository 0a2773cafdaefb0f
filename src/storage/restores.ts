/**
 * A database that was taken back to an older point: by a restore from a backup, or by promoting a standby that had not got
 * everything. Effects that were sent in the lost time are applied in the world and unknown here, and so are operations,
 * cancels and resolutions of that time.
 *
 * What is recorded is that it happened, once, while no worker runs. From then on
 *  - no worker of the lost time passes a fence: the epochs of all open shards have moved far beyond those it can hold;
 *  - effects that may have been sent in that time are asked about before they are sent (domain/restore.ts says which): a
 *    shard is claimed with its `doubt`;
 *  - what is absent is trusted only when the last send of the lost time can no longer arrive.
 *
 * Transactional effects went back with the database, and what an artifact wrote is nothing until it is published: both are
 * simply done again.
 */
import type { Audited } from '../domain/audit.ts'
import { auditJson } from './audit.ts'
import type { Database } from './database.ts'

/** More claims than the lost time can have had. */
const EPOCHS_SKIPPED = 1_000_000
/** A worker that missed this many beats is gone. */
const BEATS_MISSED = 2

export interface RecordedRestore {
  restoredAt: string
  lostSince: string
  doubtUntil: string
  /** Operations that have no final status, and their shards. */
  operations: number
  shards: number
}

/** Refused while a worker was seen a moment ago: what it has in memory is of the lost time. */
export const recordRestore = (
  database: Database,
  { doubtDays, audit }: Audited & { doubtDays: number },
): Promise<RecordedRestore | { refused: 'worker-running'; host: string; pid: number; waitSeconds: number }> =>
  database.transaction(async ({ sql }) => {
    const [worker] = await sql<{ host: string; pid: number; waitSeconds: number }>`
      select host, pid, ceil(extract(epoch from last_seen_at - now()) + ${BEATS_MISSED} * beat_ms / 1000.0)::int as "waitSeconds"
      from workers where state <> 'gone' and last_seen_at > now() - ${BEATS_MISSED} * beat_ms * interval '1 ms'
      order by last_seen_at desc limit 1`
    if (worker) return { refused: 'worker-running' as const, ...worker }
    const [restore] = await sql<Omit<RecordedRestore, 'operations' | 'shards'>>`
      insert into restores (lost_since, doubt_until)
      -- the last sign of life that is left: an instant before the point of the restore
      select least(now(), coalesce((select max(last_seen_at) from workers), (select max(created_at) from operations), now())),
        clock_timestamp() + ${doubtDays} * interval '1 day'
      returning restored_at as "restoredAt", lost_since as "lostSince", doubt_until as "doubtUntil"`
    const [open] = await sql<{ operations: number; shards: number }>`
      with moved as (
        update operation_shards s set
          lease_epoch = s.lease_epoch + ${EPOCHS_SKIPPED}, version = s.version + 1,
          lease_expires_at = case s.state when 'leased' then now() end
        from operations o
        where o.tenant_id = s.tenant_id and o.id = s.operation_id and o.completed_at is null
        returning s.tenant_id, s.operation_id)
      select count(distinct (tenant_id, operation_id))::int as operations, count(*)::int as shards from moved`
    if (!restore || !open) throw new Error('the restore was not recorded')
    // of every tenant, as all of them went back
    await sql`
      insert into audit_entries select a.* from tenants t, audit_row(t.id, ${auditJson(audit)}::text::jsonb) a`
    return { ...restore, ...open }
  })
