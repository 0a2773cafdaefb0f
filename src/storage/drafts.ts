import type { Audited } from '../domain/audit.ts'
import { ints, texts } from './array-literal.ts'
import { auditJson } from './audit.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import { UPLOAD_LEASE_SECONDS } from './uploads.ts'

export interface DraftState {
  status: string
  version: number
  itemsTotal: number
  type: string
  typeVersion: number
  /** An upload is live. */
  uploading: boolean
}

/** What decides whether a draft can be started. Null: no such operation. */
export const readDraft = async (
  { sql }: Connection,
  tenantId: number,
  operationId: string,
): Promise<DraftState | null> => {
  const [row] = await sql<DraftState>`
    select o.status, (o.version + (select coalesce(sum(s.version), 0) from operation_shards s
        where s.tenant_id = o.tenant_id and s.operation_id = o.id))::float8 as version,
      o.items_total::int as "itemsTotal", o.type, o.type_version as "typeVersion",
      exists (select from operation_uploads u
        where u.tenant_id = o.tenant_id and u.operation_id = o.id and u.state = 'live'
          and u.last_seen_at > clock_timestamp() - ${UPLOAD_LEASE_SECONDS} * interval '1 second') as uploading
    from operations o where o.tenant_id = ${tenantId} and o.id = ${operationId}::uuid`
  return row ?? null
}

/**
 * Closes a draft: from this commit on its items are fixed and its shards can be claimed, or it waits for an approval or for
 * other operations. An upload that has expired is fenced with it. False: it is no draft, has changed since it was read, or an upload is live.
 */
export const closeDraft = (
  database: Database,
  draft: Audited & {
    tenantId: number
    operationId: string
    itemsTotal: number
    actor: string
    reason: string | null
    /** Upper bounds of the shards' ranges, ascending; the first begins at 0. */
    shardEnds: readonly number[]
    steps: readonly string[]
  },
): Promise<boolean> =>
  database.lockThenWork((sql) => ({
    lock: Promise.all([
      sql`
        select 1 from operations where tenant_id = ${draft.tenantId} and id = ${draft.operationId}::uuid
        for no key update`,
      sql`
        select 1 from operation_uploads
        where tenant_id = ${draft.tenantId} and operation_id = ${draft.operationId}::uuid and state <> 'done'
        for no key update`,
    ]),
    work: sql`
      with o as (
        update operations o set
          status = case approval_required when 'always' then 'awaiting_approval' else 'pending' end, version = version + 1
        where tenant_id = ${draft.tenantId} and id = ${draft.operationId}::uuid and status = 'draft'
          and items_total = ${draft.itemsTotal} and not exists (
            select from operation_uploads u
            where u.tenant_id = o.tenant_id and u.operation_id = o.id and u.state = 'live'
              and u.last_seen_at > clock_timestamp() - ${UPLOAD_LEASE_SECONDS} * interval '1 second')
        returning tenant_id, id, version, status, type, type_version, priority, run_after, after_open),
      fenced as (
        update operation_uploads u set state = 'abandoned'
        from o where u.tenant_id = o.tenant_id and u.operation_id = o.id and u.state = 'live'),
      shard as (
        insert into operation_shards (tenant_id, operation_id, shard, type, type_version, priority, from_ord, to_ord, cursor,
          run_at, state, steps)
        select o.tenant_id, o.id, s.shard - 1, o.type, o.type_version, o.priority, s.from_ord, s.to_ord, s.from_ord,
          coalesce(o.run_after, now()), case when o.status = 'pending' and not o.after_open then 'ready' else 'done' end,
          ${texts(draft.steps)}::text[]
        from o, (
          select shard, to_ord, coalesce(lag(to_ord) over (order by shard), 0) as from_ord
          from unnest(${ints(draft.shardEnds)}::int[]) with ordinality as e (to_ord, shard)) s),
      event as (
        insert into operation_events (tenant_id, operation_id, version, kind, status, actor, reason)
        select tenant_id, id, version, 'draft_closed', status, ${draft.actor}, ${draft.reason} from o),
      audit as (
        insert into audit_entries select a.* from o, audit_row(o.tenant_id, ${auditJson(draft.audit)}::text::jsonb) a)
      select 1 from o`.then((rows) => rows.length > 0),
  }))
